"""Snapshots of real filesystems: as root, without Docker."""
