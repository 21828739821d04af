"""The contexts of a sandbox: made when a run asks for one, kept until they end or are dropped."""

import os
import select
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from .. import frames
from ..code import protocol
from ..code.protocol import Modes
from ..frames import ContextPhase, ContextState, Ending, StartFailure
from . import processes
from .code_parent import CodeParent, CodeParents
from .context import CLOSED_SECONDS, BrokenChannel, ClosedChannel, Context
from .execution import Exec
from .refusal import Refusal

MAX_CONTEXTS = 32
"""The daemon allows fewer."""
BIRTH_SECONDS = 3.0
"""Until a context has to be there, or its parent is replaced. Doubled with every further try: a
parent that is only slow, as on an overloaded host, must not be begun anew until it cannot be."""
RETRY_SECONDS = 0.02


class CodeRequest(NamedTuple):
    """What a START frame asks for that runs code."""

    name: str
    label: bytes
    generation: int
    """The generation that it has to be on; 0 for any."""
    settings: bytes
    body: bytes
    has_input: bool
    language: str
    preload: Sequence[str]
    """Modules that a new parent imports ahead."""
    is_question: bool
    """Whether it is the daemon that asks, and no code of the user's is run."""


class Contexts:
    """All contexts by name, also those whose process has ended.

    `on_born` is called when the process of a run is known, `on_done` when a run has ended whose
    context lives on, `on_failed` for one whose context did not come to be, `on_lost` for a context
    that ended, `on_parent` when the daemon has to put the parent of contexts where it belongs.
    """

    def __init__(
        self,
        poll: select.epoll,
        parents: CodeParents,
        *,
        on_born: Callable[[Exec], None],
        on_done: Callable[[Exec, int], None],
        on_lost: Callable[[Context], None],
        on_failed: Callable[[Exec], None],
        on_parent: Callable[[int], None],
    ) -> None:
        self._poll = poll
        self._parents = parents
        self._on_born = on_born
        self._on_done = on_done
        self._on_lost = on_lost
        self._on_failed = on_failed
        self._on_parent = on_parent
        self._by_name: dict[str, Context] = {}
        self._by_control: dict[int, Context] = {}
        self._by_pid: dict[int, Context] = {}
        self._unborn: deque[tuple[Context, bytes]] = deque()
        """Those that wait for their parent, with their settings."""
        self._preload: Sequence[str] = ()

    def __bool__(self) -> bool:
        return bool(self._by_name)

    @property
    def pids(self) -> set[int]:
        """Processes that are not commands and that a kill of one has to spare."""
        return self._parents.pids | self._by_pid.keys()

    @property
    def idle_pids(self) -> set[int]:
        """Processes of contexts that run nothing."""
        return {pid for pid, context in self._by_pid.items() if context.execution is None}

    def states(self) -> list[ContextState]:
        return [context.describe() for context in self._by_name.values()]

    def state(self, name: str) -> ContextState:
        context = self._by_name.get(name)
        if context is None:
            return ContextState(name, 0, 0, ContextPhase.ABSENT, Ending.CODE, 0, b"", b"")
        if context.phase == ContextPhase.IDLE:
            context.read_background()
        return context.describe()

    # --- runs ---

    def obtain(self, request: CodeRequest, tries: int = 0) -> Context:
        """The context of a run, made if it is not there, which was tried so often before. Refusal,
        or OSError if there is no process for its parent."""
        known = self._by_name.get(request.name)
        if known is not None and known.phase == ContextPhase.BUSY:
            raise Refusal(StartFailure.OTHER, f"context {request.name} is busy")
        is_there = known is not None and known.phase == ContextPhase.IDLE
        generation = known.generation + (not is_there) if known is not None else 1
        if request.generation not in (0, generation):
            raise Refusal(
                StartFailure.CONTEXT_LOST,
                f"context {request.name} is on generation {generation}",
            )
        if known is not None and is_there:
            return known
        if known is None and len(self._by_name) >= MAX_CONTEXTS:
            raise Refusal(StartFailure.TOO_MANY_CONTEXTS, "there are too many contexts")
        if request.language == "javascript" and not self._parents.has("node"):
            raise Refusal(StartFailure.NO_INTERPRETER, "the image has no node")
        self._preload = request.preload
        self._parent()
        return self._make(request, generation, BIRTH_SECONDS * (1 << tries))

    def _parent(self) -> CodeParent:
        parent, is_new = self._parents.obtain(self._preload)
        if is_new:
            self._on_parent(parent.pid)
        return parent

    def _make(self, request: CodeRequest, generation: int, seconds: float) -> Context:
        context = Context(request.name, request.label, generation)
        self._by_name[request.name] = context
        self._by_control[context.control.fileno()] = context
        self._poll.register(context.control, select.EPOLLIN)
        context.born_by = time.monotonic() + seconds
        self._unborn.append((context, request.settings))
        self.give_birth()
        return context

    def begin(self, context: Context, execution: Exec, request: CodeRequest) -> None:
        context.begin(
            execution,
            request.body,
            has_input=request.has_input,
            is_question=request.is_question,
        )
        self._watch_orders(context)

    def _watch_orders(self, context: Context) -> None:
        mask = select.EPOLLIN | (select.EPOLLOUT if context.write_orders() else 0)
        if context.control.fileno() in self._by_control:  # not after its channel was closed
            self._poll.modify(context.control, mask)

    def finish(self, execution: Exec) -> None:
        """The run of a context is over."""
        context = execution.context
        if context is not None and context.execution is execution:
            context.finish()
            if context.status is not None:
                context.close_pipes()

    def answer_syncs(self) -> None:
        for context in self._by_pid.values():
            if context.is_syncing:
                context.answer_sync()

    # --- time ---

    @property
    def next_look_at(self) -> float:
        due = [
            min(context.read_background_at, context.break_off_at)
            for context in self._by_pid.values()
        ]
        due += [context.born_by for context in self._by_control.values() if not context.pid]
        if self._unborn:
            due.append(time.monotonic() + RETRY_SECONDS)
        return min(due, default=float("inf"))

    def look(self) -> None:
        now = time.monotonic()
        for context in self._by_pid.values():
            if context.read_background_at <= now:
                context.read_background()
            if context.break_off_at <= now:
                context.break_off_at = float("inf")
                self._break(context)
        if any(context.born_by <= now for context in self._by_control.values() if not context.pid):
            self._replace_parent()
        if self._unborn:
            self.give_birth()

    def _replace_parent(self) -> None:
        """It makes no contexts: it may be stopped. Those that it was given fail with it."""
        late = [context for context in self._by_control.values() if not context.pid]
        self._parents.discard()
        for context in late:
            self._fail(context)

    def give_birth(self) -> None:
        """Hand descriptors to the parent, as far as it takes them."""
        parent = self._parents.current
        while self._unborn:
            context, settings = self._unborn[0]
            if parent is None or not parent.is_ready or not parent.is_placed:
                return
            try:
                if not parent.make(settings, context.theirs):
                    return
            except OSError:
                return  # it is gone, which is noticed elsewhere
            self._unborn.popleft()
            context.close_theirs()

    def _fail(self, context: Context) -> None:
        """It did not come to be."""
        execution = context.execution
        self._drop(context)
        if self._by_name.get(context.name) is context:
            del self._by_name[context.name]
        if execution is not None and execution.status is None:
            self._on_failed(execution)

    # --- events ---

    def on_event(self, descriptor: int, mask: int) -> bool:
        """Whether the descriptor is one of these."""
        parent = self._parents.current
        if parent is not None and descriptor == parent.socket.fileno():
            self._hear(parent)
            return True
        context = self._by_control.get(descriptor)
        if context is None:
            return False
        if mask & select.EPOLLOUT:
            self._watch_orders(context)
        if mask & ~select.EPOLLOUT:
            self._read(context)
        return True

    def _hear(self, parent: CodeParent) -> None:
        if not parent.read():
            self._lose_parent()
        elif parent.is_placed:
            self.give_birth()

    def parent_is_placed(self) -> None:
        if self._parents.current is not None:
            self._parents.current.is_placed = True
            self.give_birth()

    def announce_parent(self) -> None:
        """To a daemon that may not know it."""
        parent = self._parents.current
        if parent is not None and not parent.is_placed:
            self._on_parent(parent.pid)

    def _lose_parent(self) -> None:
        """Contexts live on without it; those that wait get another, if there is one."""
        self._parents.discard()
        if self._unborn:
            try:
                self._parent()
            except (OSError, Refusal):
                while self._unborn:
                    self._fail(self._unborn.popleft()[0])

    def _read(self, context: Context) -> None:
        try:
            for status in context.read_reports(self._on_born):
                assert context.execution is not None
                self._on_done(context.execution, status)
        except BrokenChannel:
            self._break(context)
        except ClosedChannel:
            context.is_closed = True
            self._forget_control(context)
            if context.pid:
                context.break_off_at = time.monotonic() + CLOSED_SECONDS
            else:
                self._fail(context)
        if context.pid and context.status is None:
            self._by_pid[context.pid] = context

    def _break(self, context: Context) -> None:
        """The code closed the channel or wrote to it. Its end is seen when it is reaped; one that
        never said who it is has failed to start."""
        self._forget_control(context)
        if not context.pid:
            self._fail(context)
            return
        if context.execution is not None and not context.is_broken:
            context.execution.remarks |= frames.Remark.BROKE_CHANNEL
        context.break_off()

    def _forget_control(self, context: Context) -> None:
        if self._by_control.pop(context.control.fileno(), None) is not None:
            self._poll.unregister(context.control)

    # --- ends ---

    def forget(self, pid: int, status: int) -> Exec | None:
        """A process has ended; the run that was under way in it."""
        if self._parents.forget(pid):
            self._lose_parent()
        if pid not in self._by_pid:
            self._meet_newborn()
        context = self._by_pid.get(pid)
        if context is None:
            return None
        if context.control.fileno() in self._by_control:
            self._read(context)  # it may have ended its run before
        self._by_pid.pop(pid, None)
        context.status = status
        if context.execution is None:
            context.read_background()
        self._drop(context)
        self._on_lost(context)
        execution = context.execution
        return execution if execution is not None and execution.status is None else None

    def _meet_newborn(self) -> None:
        """One that ended at once may have said who it is, and nobody has read it yet."""
        for context in tuple(self._by_control.values()):
            if not context.pid and not context.theirs:
                self._read(context)

    def _drop(self, context: Context) -> None:
        self._unborn = deque(entry for entry in self._unborn if entry[0] is not context)
        self._forget_control(context)
        context.read_background_at = float("inf")
        context.close()

    def abandon(self, context: Context) -> None:
        """End one that is not there yet; its parent may be what keeps it from coming."""
        if any(entry[0] is context for entry in self._unborn):
            self._drop(context)
        else:
            self._forget_control(context)
            context.close()
            self._parents.discard()
        if self._by_name.get(context.name) is context:
            del self._by_name[context.name]

    def end(self, name: str, *, is_forgotten: bool) -> Context | None:
        """The context of this name, which its caller has to end; it is no longer found here if it
        is to be forgotten."""
        context = self._by_name.get(name)
        if context is not None and is_forgotten:
            del self._by_name[name]
        return context

    def change(self, environment: Mapping[str, str]) -> None:
        """Start further parents with these variables."""
        if environment != self._parents.environment:
            self._parents.environment = environment
            self._parents.discard()

    def kill_all(self) -> None:
        for pid in tuple(self._by_pid):
            processes.kill(pid)


def code_request_of(request: Mapping[str, object], start_dir: str) -> CodeRequest | None:
    """What a request asks for, if it is for code."""
    code, context, options = (request.get(key) for key in ("code", "context", "options"))
    if not isinstance(code, str) or not isinstance(context, dict):
        return None
    assert isinstance(options, dict)
    settings = context["settings"]
    settings["cwd"] = os.path.normpath(os.path.join(start_dir, settings["cwd"]))
    return CodeRequest(
        name=str(context["name"]),
        label=str(context.get("label") or "").encode(),
        generation=int(context.get("generation") or 0),
        settings=protocol.encode_settings(**settings),
        body=protocol.encode_run(code, **options),
        has_input=request.get("stdin") is True,
        language=str(settings.get("language", "")),
        preload=settings.get("preload", ()),
        is_question=options.get("mode") in (Modes.STATE, Modes.CHECK),
    )
