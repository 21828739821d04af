"""Structured logs on standard error: readable on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import sys

import structlog
import structlog.tracebacks

from sandboxd.observability import calls

# Without local variables: they hold requests, and those hold secrets.
_TRACEBACKS = structlog.processors.ExceptionRenderer(
    structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
)


def configure(level: str) -> None:
    """Set up logging for the process."""
    is_terminal = sys.stderr.isatty()
    renderer: structlog.types.Processor = (
        structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
        if is_terminal
        else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _add_call,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.set_exc_info if is_terminal else _TRACEBACKS,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(level=logging.WARNING, handlers=[_Libraries()], force=True)


def _add_call(_: object, __: str, event: structlog.types.EventDict) -> structlog.types.EventDict:
    """Add the current call to a line. Looked up per line, so that a call costs nothing."""
    call = calls.current.get()
    if call is not None:
        for name in ("method", "session_id", "exec_id"):
            if value := getattr(call, name):
                event.setdefault(name, value)
    return event


class _Libraries(logging.Handler):
    """Logs the records of libraries in the form of our own."""

    def emit(self, record: logging.LogRecord) -> None:
        logger = structlog.get_logger()
        level = min(record.levelno, logging.ERROR)
        logger.log(
            level,
            "library",
            logger=record.name,
            message=record.getMessage(),
            exc_info=record.exc_info,
        )
