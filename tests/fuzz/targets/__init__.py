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
    "data-requests": "tests.fuzz.targets.data:REQUESTS",
    "data-statements": "tests.fuzz.targets.data:STATEMENT",
    "data-parameters": "tests.fuzz.targets.data:PARAMETERS",
    "data-arrays": "tests.fuzz.targets.data:ARRAYS",
    "exec-records": "tests.fuzz.targets.exec_records:EXEC_RECORDS",
    "output": "tests.fuzz.targets.output:OUTPUT",
    "shell-state": "tests.fuzz.targets.shell_state:SHELL_STATE",
    "code-events": "tests.fuzz.targets.code_events:CODE_EVENTS",
    "patterns": "tests.fuzz.targets.patterns:PATTERNS",
    "ext4": "tests.fuzz.targets.snapshots:EXT4",
    "snapshots": "tests.fuzz.targets.snapshots:STORED",
    "snapshot-archives": "tests.fuzz.targets.snapshots:ARCHIVES",
    "door-heads": "tests.fuzz.targets.doors:HEADS",
    "door-client-hello": "tests.fuzz.targets.doors:HELLO",
    "door-rules": "tests.fuzz.targets.doors:RULES",
    "e2b-frames": "tests.fuzz.targets.e2b_frames:E2B_FRAMES",
    "code-answers": "tests.fuzz.targets.code_answers:CODE_ANSWERS",
    "dap": "tests.fuzz.targets.dap:DAP",
    "http-edge": "tests.fuzz.targets.http_edge:HTTP_EDGE",
    "http-requests": "tests.fuzz.targets.http:HTTP_REQUESTS",
    "cluster-replies": "tests.fuzz.targets.cluster:REPLIES",
}
"""Where each is found; only the process that fuzzes it imports it."""
