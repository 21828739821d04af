"""Doors: sockets inside a sandbox that the daemon holds, in place of a network."""
