"""Databases that sessions can query without a network: the daemon asks for them."""
