"""What runs containers. `contract` is the interface, `docker` the implementation."""
