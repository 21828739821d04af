"""Results that become dataclasses when they are first used."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import subprocess
import sys
import threading

import pytest

from sandboxd_client.records import Record, record


@pytest.fixture
def kind() -> type:
    """A class that nobody has used."""

    @record(frozen=True)
    class Point(Record):
        """A place."""

        x: int
        y: int = 2
        names: list[str] = dataclasses.field(default_factory=list)

    return Point


def test_it_is_a_dataclass(kind: type) -> None:
    """Same constructor, comparison, text and protection as of one that is made at once."""
    one = kind(1, names=["a"])

    assert repr(one).endswith("Point(x=1, y=2, names=['a'])")
    assert one == kind(1, 2, ["a"])
    assert one != kind(3)
    assert dataclasses.asdict(one) == {"x": 1, "y": 2, "names": ["a"]}
    assert dataclasses.replace(one, x=7).x == 7
    assert kind(1).names is not kind(1).names
    with pytest.raises(dataclasses.FrozenInstanceError):
        one.x = 5
    with pytest.raises(dataclasses.FrozenInstanceError):
        del one.x
    with pytest.raises(TypeError):
        kind()
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)  # a list in it


@pytest.mark.parametrize(
    "look",
    [
        lambda kind: [field.name for field in dataclasses.fields(kind)],
        lambda kind: list(inspect.signature(kind).parameters),
        lambda kind: list(kind.__match_args__),
        lambda kind: dataclasses.is_dataclass(kind) and ["x", "y", "names"],
        lambda kind: kind.__dataclass_params__.frozen and ["x", "y", "names"],
    ],
)
def test_the_class_can_be_looked_at_first(kind: type, look: object) -> None:
    """Before there is an instance."""
    assert callable(look)
    assert look(kind) == ["x", "y", "names"]
    assert kind(1).x == 1


def test_the_base_is_none() -> None:
    """Only classes with the decorator are dataclasses."""
    assert not dataclasses.is_dataclass(Record)


@pytest.mark.parametrize(
    "use",
    [
        "assert repr(chunk) == \"OutputGap(stream='stdout', offset=1, size_bytes=2)\"",
        "assert chunk == copy.copy(chunk)",
        "assert len({chunk, copy.deepcopy(chunk)}) == 1",
        "try: chunk.offset = 3\nexcept AttributeError: pass\nelse: raise SystemExit",
        "try: del chunk.offset\nexcept AttributeError: pass\nelse: raise SystemExit",
        "match chunk:\n    case results.OutputGap(stream, 1): assert stream == 'stdout'",
        "assert dataclasses.astuple(chunk) == ('stdout', 1, 2)",
    ],
)
def test_an_unpickled_one_is_complete(use: str) -> None:
    """Although its constructor was never called in that process."""
    from sandboxd_client import OutputGap

    packed = pickle.dumps(OutputGap("stdout", 1, 2))
    program = f"""
import copy, dataclasses, pickle
chunk = pickle.loads({packed!r})
from sandboxd_client import results
{use}
print("done")
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "done\n", done.stderr


def test_classes_of_users_can_inherit(kind: type) -> None:
    """With a constructor of their own, and as a dataclass."""

    class Named(kind):  # type: ignore[misc]
        def __init__(self, name: str) -> None:
            super().__init__(4)
            object.__setattr__(self, "name", name)

        def __repr__(self) -> str:
            return f"{self.name}: {super().__repr__()}"

    @dataclasses.dataclass(frozen=True)
    class Deep(kind):  # type: ignore[misc]
        z: int = 3

    named = Named("here")
    assert (named.name, named.x) == ("here", 4)
    assert repr(named).startswith("here: ")
    assert dataclasses.astuple(Deep(1)) == (1, 2, [], 3)


def test_records_inherit_from_records(kind: type) -> None:
    """Fields of the base come first."""

    @record(frozen=True, kw_only=True)
    class Deep(kind, Record):  # type: ignore[misc]
        z: int

    assert [field.name for field in dataclasses.fields(Deep)] == ["x", "y", "names", "z"]
    assert copy.copy(Deep(1, z=3)) == Deep(1, z=3)


def test_threads_may_use_it_first_together() -> None:
    """Each gets an instance, whoever generates the methods."""
    for _ in range(50):

        @record(frozen=True)
        class Fresh(Record):
            """New in each round."""

            x: int

        barrier, made = threading.Barrier(4), []

        def make(kind: type = Fresh, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            made.append(kind(x=1) == kind(x=1))  # noqa: B023

        threads = [threading.Thread(target=make) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert made == [True] * 4
