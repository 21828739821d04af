"""Who calls, by token or certificate, and whether they may."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.descriptor import MethodDescriptor
from structlog.contextvars import bind_contextvars

from sandboxd.access import HOST, UNKNOWN, Access, Caller, RateLimit, act_as
from sandboxd.errors import CallNotPermitted, Unauthenticated
from sandboxd.service.rules import RULES
from sandboxd.service.wire import Context

SCHEME = "bearer"


class Entrance:
    """Lets calls in, each as its caller. Without access rules everyone is the host."""

    def __init__(
        self,
        access: Access | None = None,
        *,
        trusts_socket: bool = True,
        rate: RateLimit | None = None,
    ) -> None:
        self._access = access
        self._trusts_socket = trusts_socket
        self._rate = rate

    def before(self, method: MethodDescriptor, servicer: object) -> Callable[[Any, Context], Any]:
        """The servicer's method, behind a check of who calls it.

        A plain function: what the method returns, a coroutine or a stream, goes on unwrapped, so
        nothing is paid per message.
        """
        behaviour: Callable[[Any, Context], Any] = getattr(servicer, method.name)
        allowed = RULES[method.full_name]
        if self._access is None:
            return behaviour
        access = self._access

        def enter(request: Any, context: Context) -> Any:
            try:
                caller = self._caller(access, context)
            except Unauthenticated:
                act_as(UNKNOWN)
                raise
            act_as(caller)  # before the checks: refusals are put down to whom they met
            if caller is not HOST:
                bind_contextvars(caller=caller.name)  # for every line that is logged meanwhile
            if caller.scope not in allowed:
                raise CallNotPermitted(
                    f"A token with the scope {caller.scope.value} may not call {method.name}; use "
                    f"one with the scope {' or '.join(sorted(allowed))}."
                )
            if self._rate is not None:
                self._rate.take(caller)
            return behaviour(request, context)

        return enter

    def _caller(self, access: Access, context: Context) -> Caller:
        if self._trusts_socket and context.peer().startswith("unix:"):
            return HOST
        if (token := _bearer(context)) is not None:
            if (caller := access.of_token(token)) is None:
                raise Unauthenticated(
                    "This daemon does not know the token; check that it is complete, or ask for a "
                    "new one."
                )
            return caller
        if (name := _certificate_name(context)) is not None:
            if (caller := access.of_certificate(name)) is None:
                raise Unauthenticated(
                    "The certificate is valid, but its name is not among those that may call; "
                    "send a token as metadata `authorization: Bearer TOKEN`."
                )
            return caller
        raise Unauthenticated(
            "Nobody knows who calls; send a token as metadata `authorization: Bearer TOKEN`."
        )


def _bearer(context: Context) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            scheme, _, token = str(value).partition(" ")
            return token.strip() if scheme.lower() == SCHEME else ""
    return None


def _certificate_name(context: Context) -> str | None:
    names = context.auth_context().get("x509_common_name", ())
    return next((name.decode(errors="replace") for name in names), None)
