"""The contexts of one session."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from sandboxd.code.context import (
    INTERPRETERS,
    MAIN,
    PYTHON,
    Context,
    ContextPlan,
    Settings,
    plan_of,
)
from sandboxd.code.settings import CodeSettings, Limits
from sandboxd.errors import (
    CodeUnavailable,
    CommandNotStartable,
    ContextBusy,
    ContextConflict,
    ContextLimitReached,
    ContextLost,
    ContextNotFound,
    SandboxLost,
)
from sandboxd.execs.ending import Reason
from sandboxd.execs.exec import Exec
from sandboxd.execs.records import Labels
from sandboxd.execs.session_execs import SessionExecs
from sandboxd.execs.spec import CodeSpec, ExecSpec, new_exec_id
from sandboxd.guest.frames import ContextPhase, StartFailure
from sandboxd.guest.frames import ContextState as GuestContext
from sandboxd.isolation.cgroups import CPU_PERIOD_US, CodeLimits
from sandboxd.link import LinkClosed
from sandboxd.sandboxes.sandbox import Sandbox

log = structlog.get_logger()

QUESTION_SECONDS = 10.0
"""How long a context may take to describe its variables or to check code."""
PARENTS = 2
"""Processes that contexts are forked from: the parent, and the one that is forked ahead."""


@dataclass(frozen=True, kw_only=True)
class CodeRun:
    """A checked request to run code."""

    exec_id: str
    code: str
    context: str
    language: str = ""
    """Of a context that has to be made; empty for the usual one."""
    generation: int = 0
    timeout_seconds: float | None = None
    survives_disconnect: bool = False
    is_chosen: bool = False
    reports_start: bool = False
    capture_bytes: int | None = None
    has_input: bool = False
    options: Mapping[str, object] = field(default_factory=dict)


class Question(NamedTuple):
    """Something that the daemon asks a context, without code of the user's being run."""

    mode: str
    code: str = ""


class SessionContexts:
    """Names, generations and limits of a session's contexts. Their processes are the guest's."""

    def __init__(self, execs: SessionExecs, settings: CodeSettings, labels: Labels) -> None:
        self._execs = execs
        self.settings = settings
        self._labels = labels
        self._contexts: dict[str, Context] = {}
        self._sandbox: Sandbox | None = None

    # --- the sandbox ---

    def place(self, sandbox: Sandbox) -> None:
        """Use this sandbox; contexts of another one ended with it."""
        self._contexts.clear()
        self._sandbox = sandbox
        sandbox.link.on_context = self._on_context
        for state in sandbox.link.contexts.values():
            self._restore(state, sandbox)
        if self._contexts:
            self._set_limits(sandbox)

    def leave(self) -> None:
        """The session has ended, and is remembered without its sandbox."""
        self._sandbox = None

    def _restore(self, state: GuestContext, sandbox: Sandbox) -> None:
        """A context that an earlier daemon made; one that no daemon made is not ours to show."""
        text = self._labels.open_text(state.label, sandbox.id)
        plan = plan_of(text) if text is not None else None
        if plan is not None and state.phase is not ContextPhase.ABSENT:
            context = self._make(state.name, plan)
            context.take(state)

    def _on_context(self, state: GuestContext) -> None:
        context = self._contexts.get(state.name)
        if context is not None and state.phase is not ContextPhase.ABSENT:
            context.take(state)

    def _link_sandbox(self) -> Sandbox:
        if self._sandbox is None:
            raise SandboxLost("the session has no sandbox")
        if not self._sandbox.link.runs_code:
            raise CodeUnavailable(
                "any", "its sandbox was made by an earlier release; reset the session."
            )
        return self._sandbox

    # --- contexts ---

    def list(self) -> Sequence[Context]:
        return [self._described(context) for context in self._contexts.values()]

    def get(self, name: str) -> Context:
        """ContextNotFound if there is none; the default one always is."""
        if name not in self._contexts and name == MAIN:
            return Context(MAIN, ContextPlan(), self.settings.policy)
        if name not in self._contexts:
            raise ContextNotFound(name)
        return self._described(self._contexts[name])

    def find(self, name: str) -> Context | None:
        """The context of a run, unless it was deleted."""
        context = self._contexts.get(name)
        return self._described(context) if context is not None else None

    def _described(self, context: Context) -> Context:
        busy = self._execs.in_context(context.name)
        if busy is not None:
            self._note_process(context, busy)
        context.exec_id = busy.id if busy is not None and not busy.details.is_internal else ""
        return context

    def _make(self, name: str, plan: ContextPlan) -> Context:
        context = Context(name, plan, plan.policy or self.settings.policy)
        self._contexts[name] = context
        return context

    def _obtain(self, name: str, language: str = "") -> Context:
        """The context of a run, new if there is none of this name."""
        context = self._contexts.get(name)
        if context is None:
            self._check_room()
            plan = ContextPlan(language=language or PYTHON)
            plan.check()
            return self._make(name, plan)
        if language and language != context.plan.language:
            raise ContextConflict(name, "language")
        return context

    def forget_unused(self, name: str) -> None:
        """A run that was to make this context was refused."""
        context = self._contexts.get(name)
        if context is not None and not context.generation and self._execs.in_context(name) is None:
            del self._contexts[name]

    def _check_room(self) -> None:
        if len(self._contexts) >= self.settings.max_contexts:
            raise ContextLimitReached(self.settings.max_contexts)

    async def create(
        self, name: str, plan: ContextPlan, *, session_env: Mapping[str, str]
    ) -> tuple[Context, bool]:
        """Make a context with its process; False if it was there. ContextConflict if it was there
        with other settings."""
        plan.check()
        self.settings.policy_of(plan.policy or self.settings.policy)
        self.settings.limits_of(plan.limits)
        self._link_sandbox()
        known = self._contexts.get(name)
        if known is not None:
            if differs := known.plan.difference(plan):
                raise ContextConflict(name, differs)
            return self._described(known), False
        self._check_room()
        context = self._make(name, plan)
        try:
            self.discard(await self.ask(name, Question("state"), session_env=session_env))
            await self.refresh(name)
        except BaseException:
            if not context.generation:  # it has no process
                self._contexts.pop(name, None)
            raise
        return self._described(context), True

    async def refresh(self, name: str) -> Context:
        """The context as its guest describes it now."""
        context = self.get(name)
        if context.generation and self._sandbox is not None:
            try:
                await self._sandbox.link.ask_context(name)
            except (LinkClosed, TimeoutError) as error:
                raise SandboxLost(str(error)) from None
        return self._described(context)

    async def learn_version(self, name: str) -> None:
        """Ask for the interpreter's version, which no answer to a run has, unless it is known."""
        context = self._contexts.get(name)
        if context is not None and context.generation and not context.version:
            with suppress(SandboxLost):  # the run itself has ended well
                await self.refresh(name)

    # --- runs ---

    def spec(self, run: CodeRun, *, session_env: Mapping[str, str]) -> ExecSpec:
        """The exec of a run. InvalidRequest, RequestTooLarge, ContextLimitReached."""
        sandbox = self._link_sandbox()
        context = self._obtain(run.context, run.language)
        self._execs.check_interpreter(INTERPRETERS[context.plan.language])
        limits = self.settings.limits_of(context.plan.limits)
        spec = ExecSpec(
            exec_id=run.exec_id,
            shell=None,
            argv=(),
            cwd="",
            env={},
            timeout_seconds=run.timeout_seconds or limits.timeout_seconds,
            has_stdin=run.has_input,
            survives_disconnect=run.survives_disconnect,
            is_chosen=run.is_chosen,
            reports_start=run.reports_start,
            capture_bytes=run.capture_bytes,
            code=self._code(run, context, sandbox, session_env),
        )
        self._set_limits(sandbox)
        return spec

    def _code(
        self, run: CodeRun, context: Context, sandbox: Sandbox, session_env: Mapping[str, str]
    ) -> CodeSpec:
        return CodeSpec(
            code=run.code,
            context=context.name,
            generation=run.generation,
            settings=self._guest_settings(context, sandbox, session_env),
            label=self._labels.seal_text(context.plan.encode(), sandbox.id),
            options={"sync": True, **run.options},
            is_internal=run.options.get("mode") in ("state", "check"),
        )

    def _guest_settings(
        self, context: Context, sandbox: Sandbox, session_env: Mapping[str, str]
    ) -> Settings:
        plan = context.plan
        limits = self.settings.limits_of(plan.limits)
        return {
            "name": context.name,
            "cwd": plan.cwd,
            "env": {**session_env, **plan.env},
            "policy": dict(self.settings.policy_of(context.policy)),
            "limits": {"open_files": limits.open_files},
            "preload": list(self.settings.preload),
            "language": plan.language,
        }

    def on_ended(self, execution: Exec) -> None:
        """A run has ended: its context is as its exit says."""
        details, status = execution.details, execution.exit
        context = self._contexts.get(details.context)
        if context is None or status is None or not details.generation:
            return
        self._note_process(context, execution)
        context.is_lost = status.done is None
        if context.is_lost:
            context.lost = status

    def _note_process(self, context: Context, execution: Exec) -> None:
        """Take over which process a run got, if that is known."""
        details = execution.details
        if details.generation > context.generation:
            context.generation, context.runs = details.generation, 0
            context.started_at, context.is_lost = details.started_at, False
        if details.generation == context.generation:
            context.runs = max(context.runs, details.run)

    def raise_if_never_ran(self, execution: Exec, asked: int = 0) -> None:
        """Why a run did not begin, in terms of contexts; `asked` is the generation it asked for."""
        try:
            execution.raise_if_never_ran()
        except CommandNotStartable as error:
            name, kind = execution.details.context, error.metadata.get("kind", "")
            context = self._contexts.get(name)
            if kind == StartFailure.CONTEXT_LOST.name.lower():
                current = context.generation if context else 0
                raise ContextLost(name, expected=asked, current=current) from None
            if kind == StartFailure.NO_INTERPRETER.name.lower():
                language = context.plan.language if context else PYTHON
                raise CodeUnavailable(language, f"{error.message}") from None
            raise

    # --- questions ---

    async def ask(
        self,
        name: str,
        question: Question,
        *,
        wait_seconds: float = 0.0,
        session_env: Mapping[str, str] | None = None,
    ) -> Exec:
        """An ended exec in which the context has answered. ContextBusy if a run of the user's is
        still under way after the time; forget it with `discard`."""
        await self._wait_until_idle(name, wait_seconds)
        sandbox = self._link_sandbox()
        run = CodeRun(
            exec_id=new_exec_id(),
            code=question.code,
            context=name,
            timeout_seconds=QUESTION_SECONDS,
            options={"mode": question.mode},
        )
        execution, _ = self._execs.start(self.spec(run, session_env=session_env or {}), sandbox)
        execution.hold()
        try:
            await execution.ended()
        finally:
            execution.abandon()
        self.raise_if_never_ran(execution)
        return execution

    def discard(self, execution: Exec) -> None:
        self._execs.discard(execution)

    async def _wait_until_idle(self, name: str, seconds: float) -> None:
        busy = self._execs.in_context(name)
        if busy is None or busy.details.is_internal:
            return
        try:
            async with asyncio.timeout(seconds):
                while (running := self._execs.in_context(name)) is not None:
                    busy = running
                    await busy.ended()
        except TimeoutError:
            raise ContextBusy(name, busy.id) from None

    # --- ends ---

    def interrupt(self, name: str) -> bool:
        """Whether a run was under way and is interrupted."""
        self.get(name)
        busy = self._execs.in_context(name)
        return busy is not None and not busy.details.is_internal and busy.interrupt()

    async def restart(self, name: str) -> Context:
        """End the process of a context; the next run gets a fresh one."""
        context = self.get(name)
        if context.generation:
            await self._end_process(name, is_forgotten=False)
        return self._described(context)

    async def delete(self, name: str) -> None:
        """End the process of a context and forget it."""
        if name not in self._contexts:
            raise ContextNotFound(name)
        await self._end_process(name, is_forgotten=True)
        self._contexts.pop(name, None)
        if self._sandbox is not None:
            self._set_limits(self._sandbox)

    async def _end_process(self, name: str, *, is_forgotten: bool) -> None:
        for execution in self._execs.of_context(name):
            execution.kill(Reason.CANCELLED)
        sandbox = self._link_sandbox()
        try:
            state = await sandbox.link.drop_context(name, is_forgotten=is_forgotten)
            while state.phase not in (ContextPhase.LOST, ContextPhase.ABSENT):
                await asyncio.sleep(0.01)
                state = await sandbox.link.ask_context(name)
        except (LinkClosed, TimeoutError) as error:
            raise SandboxLost(str(error)) from None

    # --- limits ---

    def group_limits(self) -> CodeLimits:
        """The limits of all contexts together: the lowest that any of them was made with."""
        plans = [self.settings.limits_of(c.plan.limits) for c in self._contexts.values()]
        lowest = Limits(*map(min, zip(self.settings.limits, *plans, strict=True)))
        processes = PARENTS + max(1, len(self._contexts)) * (1 + lowest.threads)
        return CodeLimits(
            memory_bytes=lowest.memory_bytes,
            processes=processes,
            cpu_quota_us=lowest.cpu_percent * CPU_PERIOD_US // 100,
        )

    def _set_limits(self, sandbox: Sandbox) -> None:
        limits = self.group_limits()
        if limits != sandbox.code_limits:
            sandbox.limit_code(limits)
