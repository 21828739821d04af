"""Messages of CodeService to domain objects and back."""

from __future__ import annotations

from typing import Any

from sandboxd.code.context import MAIN, PYTHON, Context, ContextPlan, Phase
from sandboxd.code.contexts import CodeRun, SessionContexts
from sandboxd.code.examples import examples
from sandboxd.code.functions import functions, rules_of
from sandboxd.code.outcome import CodeStatus, ContextOutcome, outcome_of, status_of
from sandboxd.code.report import Report
from sandboxd.code.settings import CodeSettings, Limits
from sandboxd.config import Config
from sandboxd.errors import CodeNotAllowed, InvalidRequest
from sandboxd.execs.ending import ExitStatus
from sandboxd.execs.exec import Exec
from sandboxd.execs.spec import MAX_VARIABLES, new_exec_id
from sandboxd.guest.code.protocol import MAX_COMMAND, Modes, encode_command
from sandboxd.guest.frames import TEXT_STREAMS
from sandboxd.service import code_event_wire, exec_wire, wire
from sandboxd_proto.v1 import code_pb2
from sandboxd_proto.v1 import code_service_pb2 as pb

MAX_BREAKPOINTS = 100
MAX_EXPRESSION = 16 << 10
MAX_STEPS = 20_000
DEBUG_SECONDS = 600.0
"""Time of a run under the debugger that does not ask for another."""

_STATUSES = {
    CodeStatus.OK: pb.CODE_STATUS_OK,
    CodeStatus.RAISED: pb.CODE_STATUS_RAISED,
    CodeStatus.INTERRUPTED: pb.CODE_STATUS_INTERRUPTED,
    CodeStatus.TIMED_OUT: pb.CODE_STATUS_TIMED_OUT,
    CodeStatus.CONTEXT_LOST: pb.CODE_STATUS_CONTEXT_LOST,
    CodeStatus.REFUSED: pb.CODE_STATUS_REFUSED,
}
_OUTCOMES = {
    ContextOutcome.CREATED: pb.CONTEXT_OUTCOME_CREATED,
    ContextOutcome.KEPT: pb.CONTEXT_OUTCOME_KEPT,
    ContextOutcome.RECREATED: pb.CONTEXT_OUTCOME_RECREATED,
}
_PHASES = {
    Phase.IDLE: pb.CONTEXT_STATE_IDLE,
    Phase.BUSY: pb.CONTEXT_STATE_BUSY,
    Phase.LOST: pb.CONTEXT_STATE_LOST,
}
_RESUME_MODES = {
    pb.RESUME_MODE_UNSPECIFIED: "continue",
    pb.RESUME_MODE_CONTINUE: "continue",
    pb.RESUME_MODE_STEP_IN: "step_in",
    pb.RESUME_MODE_STEP_OVER: "step_over",
    pb.RESUME_MODE_STEP_OUT: "step_out",
}


# --- requests ---


def code_run(
    request: pb.RunCodeRequest,
    config: Config,
    *,
    is_run: bool = False,
    is_detached: bool = False,
    mode: str = Modes.RUN,
    **options: object,
) -> CodeRun:
    if not request.session_id:
        raise InvalidRequest("session_id", "required; open a session to get one")
    if not request.code.strip():
        raise InvalidRequest("code", "must not be empty")
    limit = config.max_run_output_bytes
    if request.max_output_bytes > limit:
        raise InvalidRequest("max_output_bytes", f"must be at most {limit}")
    is_debugged = mode in (Modes.DEBUG, Modes.STEPS)
    return CodeRun(
        exec_id=request.exec_id or new_exec_id(),
        code=request.code,
        context=request.context or MAIN,
        language=request.language,
        generation=request.generation,
        timeout_seconds=_timeout(request, config) or (DEBUG_SECONDS if is_debugged else None),
        survives_disconnect=is_detached or exec_wire.keeps_running(request.on_disconnect),
        is_chosen=bool(request.exec_id),
        reports_start=is_detached,
        capture_bytes=output_bytes(request.max_output_bytes, config) if is_run else None,
        has_input=mode == Modes.DEBUG,
        options={"mode": mode, **options},
    )


def _timeout(request: pb.RunCodeRequest | pb.QuickExecuteRequest, config: Config) -> float | None:
    if not request.HasField("timeout"):
        return None
    longest = config.max_exec_seconds
    if not request.timeout.ListFields():
        return longest
    return wire.seconds(request, "timeout", low=0.001, high=longest)


def output_bytes(asked: int, config: Config) -> int:
    return wire.bounded(
        "max_output_bytes",
        asked,
        default=config.max_run_output_bytes,
        limit=config.max_run_output_bytes,
    )


def quick_run(request: pb.QuickExecuteRequest, config: Config) -> pb.RunCodeRequest:
    """The run of a call that opens a session for it."""
    if not request.user_id:
        raise wire.missing("user_id")
    run = pb.RunCodeRequest(
        session_id="to be opened",
        code=request.code,
        language=request.language,
        max_output_bytes=request.max_output_bytes,
    )
    if request.HasField("timeout"):
        run.timeout.CopyFrom(request.timeout)
    code_run(run, config, is_run=True)  # before anything is opened
    return run


def steps_run(request: pb.StepThroughRequest, config: Config) -> CodeRun:
    steps = wire.bounded("max_steps", request.max_steps, default=MAX_STEPS, limit=MAX_STEPS)
    return code_run(
        request.run,
        config,
        mode=Modes.STEPS,
        max_steps=steps,
        step_into_functions=request.step_into_functions,
    )


def debug_run(request: pb.StartDebug, config: Config) -> CodeRun:
    if len(request.breakpoints) > MAX_BREAKPOINTS:
        raise InvalidRequest("breakpoints", f"must be at most {MAX_BREAKPOINTS}")
    return code_run(
        request.run,
        config,
        mode=Modes.DEBUG,
        breakpoints=[_breakpoint(one) for one in request.breakpoints],
        run_to_breakpoint=request.run_to_breakpoint,
        ignore_exceptions=request.ignore_exceptions,
    )


def _breakpoint(message: code_pb2.Breakpoint) -> dict[str, Any]:
    if len(message.condition) > MAX_EXPRESSION:
        raise InvalidRequest("condition", f"must have at most {MAX_EXPRESSION} characters")
    return {
        "file": message.file,
        "line": message.line,
        "condition": message.condition,
        "function": message.function,
    }


def debug_command(request: pb.DebugCodeRequest) -> bytes:
    """A command as the context takes it."""
    do, arguments = _command(request)
    data = encode_command(request.command, do, **arguments)
    if len(data) > MAX_COMMAND:
        raise InvalidRequest("request", f"must have at most {MAX_COMMAND} bytes")
    return data


def _command(request: pb.DebugCodeRequest) -> tuple[str, dict[str, Any]]:
    match request.WhichOneof("request"):
        case "set_breakpoint":
            return "set_breakpoint", _breakpoint(request.set_breakpoint)
        case "clear_breakpoint":
            return "clear_breakpoint", {"id": request.clear_breakpoint}
        case "resume":
            mode = request.resume.mode
            wire.check_enum("mode", mode, pb.ResumeMode.DESCRIPTOR, noun="mode")
            return "resume", {"mode": _RESUME_MODES[mode]}
        case "pause":
            return "pause", {}
        case "quit":
            return "quit", {}
        case "evaluate":
            asked = request.evaluate
            return "evaluate", {"expression": asked.expression, "frame": asked.frame}
        case "stack":
            return "stack", {"max_frames": min(request.stack.max_frames or 50, 200)}
        case "variables":
            wanted = request.variables
            return "variables", {
                "frame": wanted.frame,
                "handle": wanted.handle,
                "globals": wanted.globals,
                "offset": wanted.offset,
            }
        case _:
            raise InvalidRequest("request", "give a command; only the first one starts a run")


def context_plan(request: pb.CreateContextRequest) -> ContextPlan:
    if not request.name:
        raise wire.missing("name")
    return ContextPlan(
        language=request.language or ContextPlan().language,
        cwd=request.cwd,
        env=wire.mapping(request.env, MAX_VARIABLES),
        policy=request.policy,
        limits=Limits(
            memory_bytes=request.limits.memory_bytes,
            cpu_percent=request.limits.cpu_percent,
            open_files=request.limits.open_files,
            threads=request.limits.threads,
            timeout_seconds=wire.seconds(request.limits, "timeout", low=0.001, high=1e6) or 0.0,
        ),
    )


# --- responses ---


def run_response(
    execution: Exec,
    status: ExitStatus,
    report: Report,
    contexts: SessionContexts,
    max_bytes: int,
) -> pb.RunCodeResponse:
    response = pb.RunCodeResponse(
        exec_id=execution.id,
        status=_STATUSES[status_of(status)],
        outcome=_OUTCOMES[outcome_of(execution.details)],
        left_out_displays=report.left_out_displays,
        left_out_logs=report.left_out_logs,
    )
    context = contexts.find(execution.details.context)
    if context is not None:
        fill_context(response.context, context)
    _fill_report(response, report)
    for stream, message in zip(TEXT_STREAMS, (response.stdout, response.stderr), strict=True):
        message.SetInParent()
        if execution.length(stream):
            exec_wire.fill_excerpt(message, execution.output.excerpt(stream, max_bytes))
    exec_wire.fill_exit(response.exit, status)
    return response


def _fill_report(response: pb.RunCodeResponse, report: Report) -> None:
    if report.result is not None:
        response.result.SetInParent()
        code_event_wire.fill_result(response.result, report.result)
    if report.value is not None:
        response.value.SetInParent()
        code_event_wire.fill_display(response.value, report.value)
    for display in report.displays:
        code_event_wire.fill_display(response.displays.add(), display)
    if report.error is not None:
        code_event_wire.fill_error(response.error, report.error)
    for log in report.logs:
        code_event_wire.fill_log(response.logs.add(), log)
    response.notes.extend(report.notes)


def raise_if_refused(status: ExitStatus, report: Report, policy: str) -> None:
    """CodeNotAllowed if the policy refused the code."""
    if status_of(status) is not CodeStatus.REFUSED:
        return
    if not report.violations:
        raise CodeNotAllowed(policy, rule="policy", line=0, name="", why="it is not allowed.")
    first = report.violations[0]
    raise CodeNotAllowed(
        policy, rule=first.rule, line=first.line, name=first.name, why=first.message
    )


def fill_context(message: pb.Context, context: Context) -> None:
    message.name, message.generation = context.name, context.generation
    message.state = _PHASES[context.phase]
    message.language, message.version = context.plan.language, context.version
    message.runs, message.cwd, message.policy = context.runs, context.plan.cwd, context.policy
    message.background_output = context.background
    message.exec_id = context.exec_id
    if context.lost is not None:
        exec_wire.fill_exit(message.lost, context.lost)
    if context.started_at:
        message.start_time.CopyFrom(wire.timestamp(context.started_at))


def context_message(context: Context) -> pb.Context:
    message = pb.Context()
    fill_context(message, context)
    return message


def state_response(context: Context, report: Report | None) -> pb.GetContextStateResponse:
    response = pb.GetContextStateResponse()
    fill_context(response.context, context)
    if report is not None and report.variables is not None:
        response.variables.extend(map(code_event_wire.variable, report.variables.variables))
        response.left_out = report.variables.left_out
    return response


def check_response(report: Report) -> pb.CheckCodeResponse:
    violations = [code_event_wire.violation(one) for one in report.violations]
    return pb.CheckCodeResponse(allowed=not violations, violations=violations)


def functions_response(
    context: Context, settings: CodeSettings, *, has_data: bool
) -> pb.ListFunctionsResponse:
    rules, limits = rules_of(settings, context.policy), settings.limits_of(context.plan.limits)
    is_python = context.plan.language == PYTHON
    return pb.ListFunctionsResponse(
        functions=[pb.CodeFunction(**one._asdict()) for one in functions(has_data) if is_python],
        allowed_modules=rules.modules,
        blocked_calls=rules.blocked_calls,
        limits=pb.CodeLimits(
            memory_bytes=limits.memory_bytes,
            cpu_percent=limits.cpu_percent,
            timeout=wire.duration(limits.timeout_seconds),
            open_files=limits.open_files,
            threads=limits.threads,
        ),
        examples=[pb.CodeExample(**one._asdict()) for one in examples(has_data) if is_python],
        policy=context.policy,
    )
