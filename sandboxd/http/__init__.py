"""The API over HTTP: the same guarded handlers as gRPC's, by the routes of protos/http.yaml."""
