"""The gRPC edge: convert, call one domain method, convert back. The only place that knows gRPC."""
