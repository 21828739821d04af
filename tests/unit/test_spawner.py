"""What becomes of a process that takes too long to start."""

from __future__ import annotations

import _thread
import threading
from collections.abc import Callable

import pytest

from sandboxd.guest.commands.spawner import Late, Spawner

LONG_SECONDS = 20.0


class Slow:
    """A start that is held up until it is let go."""

    def __init__(self, result: str = "process", error: OSError | None = None) -> None:
        self._result = result
        self._error = error
        self._gate = threading.Event()
        self.undone: list[str] = []
        self.runs = 0

    def __call__(self) -> str:
        self.runs += 1
        assert self._gate.wait(LONG_SECONDS)
        if self._error is not None:
            raise self._error
        return self._result

    def let_go(self) -> None:
        self._gate.set()


@pytest.fixture
def spawner() -> Spawner:
    return Spawner()


def begun(spawner: Spawner, slow: Slow, purpose: object = "bash") -> None:
    """It is late, and goes on."""
    spawner.patience = 0.0
    with pytest.raises(Late):
        spawner.run(slow, slow.undone.append, purpose=purpose)
    with pytest.raises(Late):
        spawner.run(slow, slow.undone.append, purpose=purpose)
    spawner.patience = LONG_SECONDS
    slow.let_go()


def start(made: str) -> Callable[[], str]:
    return lambda: made


def test_a_late_start_is_for_whoever_asks_for_the_same_again(spawner: Spawner) -> None:
    """It is not made twice, and not undone."""
    slow = Slow()
    begun(spawner, slow)

    assert spawner.run(start("another"), slow.undone.append, purpose="bash") == "process"
    assert (slow.runs, slow.undone) == (1, [])
    assert spawner.run(start("next"), slow.undone.append, purpose="bash") == "next"


def test_a_late_start_is_undone_before_another(spawner: Spawner) -> None:
    """What nobody asks for any more does not stay."""
    slow = Slow()
    begun(spawner, slow)

    assert spawner.run(start("sh"), slow.undone.append, purpose="sh") == "sh"
    assert slow.undone == ["process"]


def test_a_disowned_start_is_given_to_nobody(spawner: Spawner) -> None:
    """It may have been killed meanwhile, also if the same is asked for again."""
    slow = Slow()
    begun(spawner, slow)
    spawner.disown()

    assert spawner.run(start("new"), slow.undone.append, purpose="bash") == "new"
    assert slow.undone == ["process"]


def test_a_late_failure_is_told(spawner: Spawner) -> None:
    """Whoever asks again hears why it failed, and may try anew."""
    slow = Slow(error=PermissionError("no"))
    begun(spawner, slow)

    with pytest.raises(PermissionError):
        spawner.run(start("process"), slow.undone.append, purpose="bash")
    assert spawner.run(start("process"), slow.undone.append, purpose="bash") == "process"


def test_a_thread_is_for_one_domain(spawner: Spawner) -> None:
    """What must not reach into each other is started by different threads."""
    threads = [
        spawner.run(threading.get_native_id, str, purpose=number, needs_new_domain=needs_new_domain)
        for number, needs_new_domain in enumerate([True, False, True, False])
    ]

    assert threads[0] == threads[1]
    assert threads[2] == threads[3]
    assert threads[0] != threads[2]


def test_no_room_for_a_thread_is_no_room_for_a_process(
    spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again with the next call."""

    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        with pytest.raises(BlockingIOError):
            spawner.run(start("shell"), str, purpose="bash")

    assert spawner.run(start("shell"), str, purpose="bash", needs_new_domain=False) == "shell"


def test_a_thread_that_never_began_gets_no_further_call(
    spawner: Spawner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A call that was disowned before there was room for its thread does not cost those after it,
    which would wait for that thread for ever."""
    full = Slow(error=BlockingIOError("can't start new thread"))

    def refuse(*_: object) -> None:
        try:
            full()
        except BlockingIOError as error:
            raise RuntimeError(str(error)) from None

    with monkeypatch.context() as patch:
        patch.setattr(_thread, "start_new_thread", refuse)
        begun(spawner, full)
        spawner.disown()
        assert spawner._late is not None
        assert spawner._late.has_ended(LONG_SECONDS)

    assert spawner.run(start("shell"), str, purpose="bash", needs_new_domain=False) == "shell"
