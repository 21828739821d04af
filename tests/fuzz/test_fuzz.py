"""Nothing that a sandbox, a caller or a file can send breaks what reads it."""

from __future__ import annotations

import pytest

from tests.fuzz.supervision import decoded, encoded, fuzz, reproduce
from tests.fuzz.targets import TARGETS
from tests.scale import SCALE

SEED = 20260301
"""The same inputs in every run: what is new is looked for with scripts/fuzz."""


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.timeout(SCALE + 180)
def test_no_input_breaks_its_parser(name: str) -> None:
    """It ends with a result or a typed error, in bounded time and memory."""
    report = fuzz(TARGETS[name], seed=SEED, seconds=SCALE + 60, processor_seconds=SCALE / 2)

    print(f"fuzz {str(report).replace('-', ' ', 1)}")
    assert not report.failure, str(report)
    assert report.outcomes > 1, "every input has the same end: the target reaches nothing"


# --- that it finds what it looks for ---

BROKEN = "tests.fuzz.broken"


@pytest.mark.parametrize(
    ("target", "kind", "says"),
    [
        ("CRASH", "crash", "SIGSEGV"),
        ("SPIN", "hang", "processor time"),
        ("SPIN_IN_C", "hang", "processor time"),
        ("RAISE", "exception", "KeyError"),
        ("GROW", "exception", "memory grew by"),
    ],
)
def test_fault_is_found_with_its_input(target: str, kind: str, says: str) -> None:
    """The report names the fault and has an input that brings it about again."""
    report = fuzz(f"{BROKEN}:{target}", seed=1)

    assert (report.kind, says in report.failure) == (kind, True), str(report)
    assert encoded(report.data) in str(report).replace("\n", "")
    if target != "GROW":
        again = reproduce(f"{BROKEN}:{target}", report.data)
        assert (again.kind, report.data) == (kind, decoded(encoded(report.data)))


def test_sound_parser_passes() -> None:
    """No fault is found where there is none."""
    report = fuzz(f"{BROKEN}:SOUND", seed=1, processor_seconds=0.1)

    assert (report.failure, report.inputs > 100) == ("", True)
