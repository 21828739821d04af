"""Authenticates callers by token or certificate, and checks what they may call."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Protocol

from structlog.contextvars import bind_contextvars

from sandboxd.access import HOST, UNKNOWN, Access, Caller, RateLimit, Scope, act_as
from sandboxd.access.vouching import NotInTime, NotVouched, vouched
from sandboxd.errors import CallNotPermitted, Unauthenticated
from sandboxd.service.in_process import InProcessContext
from sandboxd.service.transport.forwarding import VOUCHED_METADATA
from sandboxd.service.transport.rules import OVERSEE
from sandboxd.service.wire import Context

SCHEME = "bearer"


class Visitor(Protocol):
    """Where a caller shows who it is, in a call of gRPC and in a request of HTTP."""

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]] | None: ...
    def auth_context(self) -> Mapping[str, Iterable[bytes]]: ...
    def peer(self) -> str: ...


class Entrance:
    """Serves each call as its caller. Without access rules every caller is the host."""

    def __init__(
        self,
        access: Access | None = None,
        *,
        trusts_socket: bool = True,
        rate: RateLimit | None = None,
        cluster_key: bytes = b"",
    ) -> None:
        """`cluster_key`: with which other workers vouch for the callers of calls they forward."""
        self._access = access
        self._trusts_socket = trusts_socket
        self._rate = rate
        self._cluster_key = cluster_key

    @property
    def has_rules(self) -> bool:
        """Whether a caller may turn out to be unknown."""
        return self._access is not None

    def identify(self, context: Context | Visitor, method: str) -> Caller:
        """Serve the rest of the call as its caller; Unauthenticated if that is unknown."""
        if isinstance(context, InProcessContext):
            act_as(context.caller)
            return context.caller
        if self._cluster_key and (statement := _statement(context)) is not None:
            return self._act_as_vouched(statement, method)
        if self._access is None:
            return HOST
        try:
            caller = self._find(self._access, context)
        except Unauthenticated:
            act_as(UNKNOWN)
            raise
        act_as(caller)  # before any check: the audit log names the caller of a refused call
        if caller is not HOST:
            bind_contextvars(caller=caller.name)  # for every log line of the call
        return caller

    def _act_as_vouched(self, statement: bytes, method: str) -> Caller:
        """Serve a forwarded call as the caller that another worker has identified."""
        try:
            caller = vouched(self._cluster_key, statement, method)
        except NotInTime as error:
            act_as(UNKNOWN)
            raise Unauthenticated(
                f"This worker does not accept the forwarded call: {error}; it is repeated with the "
                "time of this worker.",
                workerTime=f"{error.now:.3f}",
            ) from error
        except NotVouched as error:
            act_as(UNKNOWN)
            raise Unauthenticated(
                f"This worker does not accept the forwarded call: {error}; check that all workers "
                "have the same SANDBOXD_CLUSTER_KEY_FILE."
            ) from error
        act_as(caller)
        bind_contextvars(caller=caller.name)
        return caller

    def check(self, caller: Caller, method: str, allowed: Set[Scope]) -> None:
        """Refuse a call that its caller may not make, or not yet."""
        if self._access is None:
            return
        if caller.scope not in allowed:
            raise CallNotPermitted(
                f"The scope of this token, {caller.scope.value}, does not allow this; use a token "
                f"with the scope {' or '.join(sorted(allowed))}.",
                method=method,
            )
        if allowed is OVERSEE and caller.user_id is not None:
            raise CallNotPermitted(
                "This is about all users, and this token belongs to one; use a token with "
                f"the scope {' or '.join(sorted(allowed))}.",
                method=method,
            )
        if self._rate is not None:
            self._rate.take(caller)

    def _find(self, access: Access, context: Context | Visitor) -> Caller:
        if self._trusts_socket and context.peer().startswith("unix:"):
            return HOST
        if (token := _bearer(context)) is not None:
            if (caller := access.find_by_token(token)) is None:
                raise Unauthenticated(
                    "This daemon does not know the token; check that it is complete, or request a "
                    "new one."
                )
            return caller
        if (name := _certificate_name(context)) is not None:
            if (caller := access.find_by_certificate(name)) is None:
                raise Unauthenticated(
                    "The certificate is valid, but this daemon does not know its name; send "
                    "`authorization: Bearer <token>` as request metadata, or have the name added."
                )
            return caller
        raise Unauthenticated(
            "Authentication required: set SANDBOXD_TOKEN for the SDK and the command line, or send "
            "`authorization: Bearer <token>` with the call."
        )


def _statement(context: Context | Visitor) -> bytes | None:
    for key, value in context.invocation_metadata() or ():
        if key == VOUCHED_METADATA:
            return value if isinstance(value, bytes) else b""
    return None


def _bearer(context: Context | Visitor) -> str | None:
    for key, value in context.invocation_metadata() or ():
        if key == "authorization":
            scheme, _, token = str(value).partition(" ")
            return token.strip() if scheme.lower() == SCHEME else ""
    return None


def _certificate_name(context: Context | Visitor) -> str | None:
    names = context.auth_context().get("x509_common_name", ())
    return next((name.decode(errors="replace") for name in names), None)
