"""Packages: sets that are built once, kept on the host, and attached to sandboxes."""
