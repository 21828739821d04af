"""What code may use: functions, modules, limits, and what a policy refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sandboxd_client.records import Record, record
from sandboxd_client.results import seconds_of
from sandboxd_client.session import duration

if TYPE_CHECKING:
    from sandboxd_proto.v1 import code_service_pb2 as pb


@record(frozen=True)
class CodeViolation(Record):
    """Something that a code policy refuses."""

    rule: str
    line: int
    name: str
    message: str
    """What is refused, why, and an allowed way."""


@record(frozen=True)
class CodeCheck(Record):
    """Whether a code policy allows some code."""

    allowed: bool
    violations: tuple[CodeViolation, ...]

    @classmethod
    def of(cls, found: pb.CheckCodeResponse) -> CodeCheck:
        return cls(
            found.allowed,
            tuple(
                CodeViolation(one.rule, one.line, one.name, one.message) for one in found.violations
            ),
        )


@record(frozen=True)
class CodeFunction(Record):
    """A function that sandboxd adds to the language."""

    name: str
    signature: str
    description: str


@record(frozen=True)
class CodeExample(Record):
    """A worked example."""

    title: str
    code: str


@record(frozen=True)
class CodeLimits(Record):
    """Limits of contexts; None means the daemon's default."""

    memory_bytes: int | None = None
    """Memory of all contexts of a session together."""
    cpu_percent: int | None = None
    """CPU of all contexts together, in percent of one processor."""
    timeout: float | None = None
    """Longest time of a run in seconds."""
    open_files: int | None = None
    threads: int | None = None
    """Threads and processes of a context besides its first."""

    @classmethod
    def of(cls, found: pb.CodeLimits) -> CodeLimits:
        return cls(
            found.memory_bytes or None,
            found.cpu_percent or None,
            seconds_of(found.timeout) or None,
            found.open_files or None,
            found.threads or None,
        )

    def message(self) -> pb.CodeLimits:
        """As it is sent."""
        from sandboxd_proto.v1 import code_service_pb2 as pb

        limits = pb.CodeLimits(
            memory_bytes=self.memory_bytes or 0,
            cpu_percent=self.cpu_percent or 0,
            open_files=self.open_files or 0,
            threads=self.threads or 0,
        )
        if self.timeout is not None:
            limits.timeout.CopyFrom(duration(self.timeout))
        return limits


@record(frozen=True)
class CodeHelp(Record):
    """What code can use in a context."""

    functions: tuple[CodeFunction, ...]
    """Functions that sandboxd adds."""
    allowed_modules: tuple[str, ...]
    """Modules that the policy allows; empty for all."""
    blocked_calls: tuple[str, ...]
    limits: CodeLimits
    examples: tuple[CodeExample, ...]
    policy: str

    @classmethod
    def of(cls, found: pb.ListFunctionsResponse) -> CodeHelp:
        return cls(
            tuple(CodeFunction(f.name, f.signature, f.description) for f in found.functions),
            tuple(found.allowed_modules),
            tuple(found.blocked_calls),
            CodeLimits.of(found.limits),
            tuple(CodeExample(one.title, one.code) for one in found.examples),
            found.policy,
        )
