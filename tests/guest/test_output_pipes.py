"""Reading what commands write."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest

from sandboxd.guest.commands.execution import Exec
from sandboxd.guest.commands.output_pipes import OutputPipes
from sandboxd.guest.commands.processes import Beginning


@pytest.fixture
def poll() -> Iterator[select.epoll]:
    with select.epoll() as poll:
        yield poll


def test_a_closed_pipe_is_not_reported_again(poll: select.epoll) -> None:
    """Not even while a copy of its descriptor is open: a process between its fork and its program
    has one, and on a busy host that takes long."""
    pipes = OutputPipes(poll, lambda execution, output, data: None)
    stdout, stderr = os.pipe(), os.pipe()
    execution = Exec(
        1, pid=1, beginning=Beginning(0, frozenset()), stdout=stdout[0], stderr=stderr[0]
    )
    copies = [os.dup(stdout[0]), os.dup(stderr[0])]
    execution.started_at = 0.0
    pipes.add(execution)
    pipes.watch_grown_up()
    for descriptor in (stdout[1], stderr[1]):
        os.close(descriptor)

    for descriptor in tuple(pipes.ready()):
        pipes.read_some(descriptor)

    assert not execution.is_open
    assert poll.poll(0) == []
    for copy in copies:
        os.close(copy)
