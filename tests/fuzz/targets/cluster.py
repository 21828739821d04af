"""Replies of the store that the workers of a cluster share."""

from __future__ import annotations

from collections.abc import Hashable

from sandboxd.cluster import answers
from sandboxd.cluster.contract import Load
from sandboxd.cluster.store import StoreUnavailable
from tests.fuzz.target import Target, stateless

READERS = (
    answers.registered,
    answers.renewed,
    answers.asserted,
    answers.claimed,
    answers.written,
    answers.found,
    answers.workers,
)


async def read(data: bytes) -> Hashable:
    """Each reader gives a value, or says that the store gave a reply it does not understand."""
    taken = []
    for reader in READERS:
        try:
            taken.append((reader.__name__, type(reader(data)).__name__))
        except StoreUnavailable:
            continue
    return tuple(taken)


LOAD = answers.load_text(Load(warm=1, environments=("default",))).replace('"', '\\"').encode()

REPLIES = Target(
    name="cluster-replies",
    open=stateless(read),
    seeds=[
        b'["taken","18000"]',
        b'["ok","3","0f0f","1"]',
        b'["ok","0f0f","1",true,false]',
        b'["ok","0f0f","1",true,"ses_1","ses_2"]',
        b'["waits","0f0f","250"]',
        b'["elsewhere","0f0f","ses_1","w1","w1:50051","1794955545575"]',
        b'["mine","0f0f","ses_1","1794955545575","head","7","parked"]',
        b'["fenced","0f0f"]',
        b'["none"]',
        b'["place","00ff","ses_1","w1","w1:50051","1794955545575","held","head","7"]',
        b'["workers",["w1","w1:50051","1","ready","12000","1.0","' + LOAD + b'"]]',
    ],
    words=[b'"ok"', b'"mine"', b"true", b"null", b"[", b"]", b'"-1"', b'"1e9"', b"{}", b"[" * 2000],
)
