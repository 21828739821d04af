"""Everything of ours that parses bytes of a sandbox, of a caller, or of a file."""

from __future__ import annotations

TARGETS = {
    "guest-frames": "tests.fuzz.targets.frames:FROM_GUEST",
    "daemon-frames": "tests.fuzz.targets.frames:FROM_DAEMON",
    "file-answers": "tests.fuzz.targets.file_answers:ANSWERS",
    "tar": "tests.fuzz.targets.tar:TAR",
    "gzip": "tests.fuzz.targets.compression:GZIP",
    "zstd": "tests.fuzz.targets.compression:ZSTD",
    "policy": "tests.fuzz.targets.policy:POLICY",
    "page-tokens": "tests.fuzz.targets.page_tokens:PAGE_TOKENS",
    "requests": "tests.fuzz.targets.requests:REQUESTS",
    "exec-records": "tests.fuzz.targets.exec_records:EXEC_RECORDS",
    "output": "tests.fuzz.targets.output:OUTPUT",
    "shell-state": "tests.fuzz.targets.shell_state:SHELL_STATE",
    "patterns": "tests.fuzz.targets.patterns:PATTERNS",
}
"""Where each is found; only the process that fuzzes it imports it."""
