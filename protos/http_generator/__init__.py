"""Makes the table of routes, the OpenAPI document and its page from the protos and http.yaml."""
