"""The container engine: `contract` is the interface, `docker` the implementation."""
