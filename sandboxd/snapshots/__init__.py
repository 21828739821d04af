"""Snapshots of workspaces: what a disk held, stored once, to be read, compared and restored."""
