"""Warm sandboxes, ready before a session needs one."""
