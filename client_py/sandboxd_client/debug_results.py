"""What the debugger and the state of a context return."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from sandboxd_client.code_results import CodeException, CodeLog, CodeNote, Display, name_of
from sandboxd_client.records import Record, record
from sandboxd_client.results import OutputChunk, OutputGap

if TYPE_CHECKING:
    from sandboxd_proto.v1 import code_pb2

ResumeName: TypeAlias = Literal["step_in", "step_over", "step_out", "continue"]
"""How far the debugger continues."""


@record(frozen=True)
class Variable(Record):
    """A variable as the debugger or the state of a context shows it."""

    name: str
    type: str
    value: str
    """Summary of its value, cut to a limit."""
    previous_value: str | None = None
    """Summary at the previous step; None if it is new or did not change."""
    handle: int = 0
    """To look into the value with `variables` while the debugger is stopped; 0 if it has no
    parts."""
    size_bytes: int = 0
    length: int | None = None

    @classmethod
    def of(cls, found: code_pb2.Variable) -> Variable:
        return cls(
            found.name,
            found.type,
            found.value,
            found.previous_value if found.HasField("previous_value") else None,
            found.handle,
            found.size_bytes,
            found.length if found.HasField("length") else None,
        )


@record(frozen=True)
class Variables(Record, Sequence[Variable]):
    """Variables in their order; `["name"]` finds one."""

    items: tuple[Variable, ...]
    left_out: int = 0
    """Number of variables that were left out."""

    def __len__(self) -> int:
        return len(self.items)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            for variable in self.items:
                if variable.name == key:
                    return variable
            raise KeyError(key)
        return self.items[key]

    @classmethod
    def of(cls, found: Sequence[code_pb2.Variable], left_out: int) -> Variables:
        return cls(tuple(Variable.of(variable) for variable in found), left_out)


@record(frozen=True)
class Breakpoint(Record):
    """A place where the debugger stops."""

    line: int = 0
    condition: str = ""
    """Expression that must be true to stop; empty for always."""
    file: str = ""
    """File; empty for the code of the run."""
    function: str = ""
    """Name of a function to stop in, instead of a line."""
    id: int = 0
    """Id, given by the debugger."""

    @classmethod
    def of(cls, found: code_pb2.Breakpoint) -> Breakpoint:
        return cls(found.line, found.condition, found.file, found.function, found.id)

    def message(self) -> code_pb2.Breakpoint:
        """As it is sent."""
        from sandboxd_proto.v1 import code_pb2

        return code_pb2.Breakpoint(
            id=self.id,
            line=self.line,
            condition=self.condition,
            file=self.file,
            function=self.function,
        )


@record(frozen=True)
class DebugStep(Record):
    """Where the debugger stopped, what changed, and what was written on the way there."""

    number: int
    reason: str
    """`entry`, `step`, `breakpoint`, `pause`, `exception`, `return` or `code` (`breakpoint()`)."""
    file: str
    line: int
    """Line that is executed next."""
    source: str
    function: str
    depth: int
    """Depth of the stack; 1 is the code of the run itself."""
    changed: tuple[Variable, ...]
    """Variables of the frame that are new or have changed since the last step in it."""
    removed: tuple[str, ...]
    """Names of variables that are gone since then."""
    stdout: str
    """What was written since the last step."""
    stderr: str
    error: CodeException | None
    thread: int
    breakpoint_id: int
    return_value: str
    """Summary of the value that is returned, for `return`."""
    left_out_variables: int

    @classmethod
    def of(cls, found: code_pb2.DebugStep, *, stdout: str, stderr: str) -> DebugStep:
        from sandboxd_proto.v1 import code_pb2

        return cls(
            number=found.number,
            reason=name_of(code_pb2.StopReason, found.reason, "STOP_REASON_"),
            file=found.file,
            line=found.line,
            source=found.source,
            function=found.function,
            depth=found.depth,
            changed=tuple(Variable.of(variable) for variable in found.changed),
            removed=tuple(found.removed),
            stdout=stdout,
            stderr=stderr,
            error=CodeException.of(found.error) if found.HasField("error") else None,
            thread=found.thread,
            breakpoint_id=found.breakpoint_id,
            return_value=found.return_value,
            left_out_variables=found.left_out_variables,
        )


@record(frozen=True)
class DebugValue(Record):
    """An expression that was evaluated in a frame."""

    type: str
    value: str
    """Summary of the value, cut to a limit."""
    handle: int = 0
    """To look into the value with `variables`."""
    error: CodeException | None = None
    """What the expression raised; None if it raised nothing."""


CodeEvent: TypeAlias = (
    OutputChunk | OutputGap | Display | CodeLog | CodeNote | CodeException | DebugStep
)
"""What a run reports while it runs."""
