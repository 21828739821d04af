"""The host end of the channel to a guest. Knows frames and sockets, no containers."""

from sandboxd.link.connection import Channel, GuestLink, LinkClosed
from sandboxd.link.listener import GuestListener, peer_pid
from sandboxd.link.patience import PatientTimer, patient_timeout

__all__ = [
    "Channel",
    "GuestLink",
    "GuestListener",
    "LinkClosed",
    "PatientTimer",
    "patient_timeout",
    "peer_pid",
]
