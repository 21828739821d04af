"""Environments: the image and the limits that a session gets."""
