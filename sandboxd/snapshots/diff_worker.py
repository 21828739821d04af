"""A process that compares texts, one pair after the other.

A comparison holds the interpreter's lock. A line of JSON says how, the texts follow, and a line of
JSON answers. One that takes too much processor time or memory ends the process.
"""

from __future__ import annotations

import json
import resource
import signal
import sys
from typing import Any

from sandboxd.snapshots.text_diff import TextDiff, text_diff

MAX_PROCESSOR_SECONDS = 5.0
"""Processor time of one comparison, some times what its steps should take."""
MAX_MEMORY_BYTES = 1 << 30


def encode_request(before: bytes, after: bytes, **arguments: Any) -> bytes:
    """`arguments` are those of `text_diff`."""
    head = {"sizes": [len(before), len(after)], "arguments": arguments}
    return b"%s\n%s%s" % (json.dumps(head).encode(), before, after)


def decode_answer(line: bytes) -> TextDiff:
    return TextDiff(*json.loads(line))


def main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    for line in requests:
        head = json.loads(line)
        before, after = map(requests.read, head["sizes"])
        signal.setitimer(signal.ITIMER_PROF, MAX_PROCESSOR_SECONDS)
        diff = text_diff(before, after, **head["arguments"])
        signal.setitimer(signal.ITIMER_PROF, 0)
        answers.write(json.dumps(diff).encode() + b"\n")
        answers.flush()


if __name__ == "__main__":
    main()
