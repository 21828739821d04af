"""A checked request to run something."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from sandboxd.errors import InvalidRequest, RequestTooLarge, quoted
from sandboxd.guest.frames import MAX_DAEMON_PAYLOAD

MAX_ARGUMENT_BYTES = 128 * 1024 - 1
"""The kernel's limit for one argument."""
MAX_VECTOR_BYTES = (2 << 20) - (64 << 10)
"""Command and environment together, as the kernel counts them; it takes 2 MiB, and the image has
variables too. A command line is not an argument, and so it may be as long."""
POINTER_BYTES = 8
"""What the kernel counts for each argument and variable besides its bytes and the NUL."""
MAX_WORDS = 32768
"""Far more than most programs are called with; each costs the daemon a microsecond."""
MAX_VARIABLES = 4096
MAX_SHOWN = 200
"""Characters of a command that listings show."""

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_encode_json = json.JSONEncoder(ensure_ascii=False).encode
"""Does not escape to ASCII, which could grow a request beyond the frame limit."""


class TerminalSize(NamedTuple):
    rows: int
    columns: int


MAX_CODE_BYTES = 512 << 10


@dataclass(frozen=True, kw_only=True)
class CodeSpec:
    """Code to run in a context."""

    code: str
    context: str
    settings: Mapping[str, object]
    """For a context that has to be made; see encode_settings of the guest. Not part of the content,
    as they may change before a repeat."""
    label: str = ""
    """What the guest hands back about the context after a restart of the daemon."""
    generation: int = 0
    """The generation that the context has to be on; 0 for any."""
    options: Mapping[str, object] = field(default_factory=dict)
    """How to run it; see Modes of the guest."""
    is_internal: bool = False
    """Whether the daemon itself asks the context something."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.context):
            raise InvalidRequest("context", "use 1 to 64 letters, digits, `_`, `-` or `.`")
        if _is_longer(self.code, MAX_CODE_BYTES):
            raise RequestTooLarge(
                "code", f"must have at most {MAX_CODE_BYTES} bytes; put data in a file"
            )

    def content(self) -> dict[str, object]:
        return {"code": self.code, "options": dict(self.options)}

    def request(self) -> dict[str, object]:
        """The part of the request to the guest."""
        context: dict[str, object] = {"name": self.context, "settings": dict(self.settings)}
        if self.label:
            context["label"] = self.label
        if self.generation:
            context["generation"] = self.generation
        return {"context": context}


@dataclass(frozen=True, kw_only=True)
class ExecSpec:
    """A checked request to run something."""

    exec_id: str
    shell: str | None
    argv: Sequence[str]
    cwd: str
    env: Mapping[str, str]
    timeout_seconds: float
    no_output_seconds: float | None = None
    """Time without output after which it is ended."""
    has_stdin: bool = False
    merges_stderr: bool = False
    """Whether standard error is part of standard output, in the order of writing."""
    terminal: TerminalSize | None = None
    shell_name: str = ""
    """Name of the shell it runs in; empty for a shell of its own."""
    survives_disconnect: bool = False
    """Whether it keeps running when its caller disconnects."""
    is_kept: bool = True
    """Whether output and exit stay readable after the end."""
    is_chosen: bool = True
    """Whether the caller chose the id, and so may ask for it after a restart of the daemon."""
    session_env: Mapping[str, str] = field(default_factory=dict)
    """Variables of the session; not part of the content, as they may change before a repeat."""
    reports_start: bool = False
    """Whether the guest reports that it runs, and as which process."""
    capture_bytes: int | None = None
    """Bytes of each stream to return in a single response."""
    code: CodeSpec | None = None
    """Code to run, in place of a command."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.exec_id):
            raise InvalidRequest("exec_id", "use 1 to 64 letters, digits, `_`, `-` or `.`")
        if self.code is not None:
            return
        if self.shell is not None:
            self._check_line(self.shell)
        else:
            self._check_words()
        if self.shell_name:
            self._check_shell_name()
        _no_nul("cwd", self.cwd)
        if _is_longer(self.cwd, 4096):
            raise RequestTooLarge("cwd", "must have at most 4096 bytes")
        if self.env:
            check_env(self.env)
        if (self.argv or self.env or self.session_env) and self._size() > MAX_VECTOR_BYTES:
            raise RequestTooLarge(
                "command",
                f"must have at most {MAX_VECTOR_BYTES} bytes with its environment; use a file for "
                "data",
            )

    def _check_shell_name(self) -> None:
        if not _NAME.fullmatch(self.shell_name):
            raise InvalidRequest("shell_name", "use 1 to 64 letters, digits, `_`, `-` or `.`")
        if self.shell is None:
            raise InvalidRequest("shell_name", "a named shell runs a command line, not argv")
        if self.terminal is not None or self.has_stdin:
            raise InvalidRequest("shell_name", "a named shell has neither input nor terminal")

    def _check_line(self, line: str) -> None:
        if not line.strip():
            raise InvalidRequest("command", "must not be empty; give a command line or argv")
        _no_nul("command", line)
        if _is_longer(line, MAX_VECTOR_BYTES):
            raise RequestTooLarge(
                "command",
                f"a command line must have at most {MAX_VECTOR_BYTES} bytes; put large data in a "
                "file",
            )

    def _check_words(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidRequest("command", "argv needs a program as its first word")
        if len(self.argv) > MAX_WORDS:
            raise RequestTooLarge("command", f"argv must have at most {MAX_WORDS} words")
        _no_nul("command", "".join(self.argv))
        if any(_is_longer(word, MAX_ARGUMENT_BYTES) for word in self.argv):
            raise RequestTooLarge(
                "command", f"a word of argv must have at most {MAX_ARGUMENT_BYTES} bytes"
            )

    @property
    def _whole_env(self) -> dict[str, str]:
        return {**self.session_env, **self.env}

    def _size(self) -> int:
        """Bytes of command and environment, as the kernel counts them."""
        env = self._whole_env
        count = len(self.argv) + len(env)
        text = "".join((self.shell or "", *self.argv, *env, *env.values()))
        return len(text.encode()) + count * (POINTER_BYTES + 1) + len(env)

    @cached_property
    def digest(self) -> str:
        """Digest of the content, which depends neither on the id nor on the size of the terminal:
        two windows may share one, and each may resize it."""
        asked = {**self.content(), "env": dict(self.env)}
        if self.terminal is not None:
            asked["terminal"] = True
        content = (asked, self.timeout_seconds, self.no_output_seconds)
        text = json.dumps(content, ensure_ascii=False, sort_keys=True)
        return hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]

    @property
    def command(self) -> str:
        """The command line, shortened for listings."""
        if self.code is not None:
            words = self.code.code
        elif self.shell is not None:
            words = self.shell
        else:  # no more of it than can be shown: it may be large
            words = shlex.join(word[: MAX_SHOWN + 1] for word in self.argv[:MAX_SHOWN])
        return words if len(words) <= MAX_SHOWN else words[: MAX_SHOWN - 3] + "..."

    def content(self) -> dict[str, object]:
        """The request to the guest without its label; unused options are left out."""
        content: dict[str, object] = {
            "shell": self.shell,
            "argv": list(self.argv),
            "cwd": self.cwd,
            "env": self._whole_env,
        }
        if self.has_stdin:
            content["stdin"] = True
        if self.merges_stderr:
            content["merge_stderr"] = True
        if self.terminal is not None:
            content["terminal"] = self.terminal._asdict()
        if self.shell_name:
            content["shell_state"] = {"name": self.shell_name}
        if self.code is not None:
            content |= self.code.content() | {"context": self.code.context}
        return content

    def encode(self, label: str) -> bytes:
        """The request in the form that a guest reads."""
        request = self.content()
        request["timeout"] = self.timeout_seconds
        if self.code is not None:
            request |= self.code.request()
        if self.reports_start:
            request["report_start"] = True
        if self.is_kept:
            request |= {"label": label, "keep": True}
        data = _encode_json(request).encode()
        if len(data) > MAX_DAEMON_PAYLOAD:
            raise RequestTooLarge("command", "the request is too large once encoded")
        return data


def new_exec_id() -> str:
    return f"exe_{os.urandom(8).hex()}"


def check_env(env: Mapping[str, str]) -> None:
    """InvalidRequest unless these are valid environment variables."""
    if len(env) > MAX_VARIABLES:
        raise RequestTooLarge("env", f"must have at most {MAX_VARIABLES} variables")
    for name, value in env.items():
        if not name or "=" in name:
            raise InvalidRequest("env", f"{quoted(name)} is not a valid variable name")
        _no_nul("env", name + value)
        if len(name.encode()) + len(value.encode()) >= MAX_ARGUMENT_BYTES:
            raise RequestTooLarge("env", f"variable {quoted(name)} is too large")


def _is_longer(text: str, size: int) -> bool:
    """Whether a text has more bytes; most are so short that nothing has to be encoded."""
    return len(text) * 4 > size and len(text.encode()) > size


def _no_nul(field: str, text: str) -> None:
    if "\0" in text:
        raise InvalidRequest(field, "must not contain a NUL byte")
