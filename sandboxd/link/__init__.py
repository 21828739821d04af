"""The host end of the channel to a guest. Knows frames and sockets, no containers."""

from sandboxd.link.connection import Channel, GuestLink, LinkClosed

__all__ = ["Channel", "GuestLink", "LinkClosed"]
