"""The policy at run time: builtins for the user's code, and an audit hook for what they reach."""

from __future__ import annotations

import builtins
import sys
from sys import _getframe
from typing import Any

from .policy import Policy
from .tracebacks import is_users

_REFUSED = frozenset(
    [
        "os.system",
        "os.exec",
        "os.posix_spawn",
        "os.spawn",
        "os.fork",
        "os.forkpty",
        "os.startfile",
        "os.kill",
        "pty.spawn",
        "subprocess.Popen",
        "ctypes.dlopen",
        "ctypes.dlsym",
        "ctypes.cdata",
        "ctypes.call_function",
        "pickle.find_class",
    ]
)
_NETWORK = frozenset(["socket.connect", "socket.bind", "socket.getaddrinfo", "socket.sendto"])
_CLIENTS = frozenset(["requests", "urllib3", "aiohttp", "httpx"])
_FILES = frozenset(("/proc/self/mem", "/proc/thread-self/mem"))
_IMPORTING = ("<frozen importlib._bootstrap>", "<frozen importlib._bootstrap_external>")
_USERS, _OTHERS = "users", "others"


class NotAllowed(PermissionError):
    """The policy refuses something at run time."""


NotAllowed.__name__ = NotAllowed.__qualname__ = "CodeNotAllowed"


class Guards:
    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.is_active = False
        self._given: Any = None
        self._kept: dict[str, Any] = {}

    def builtins(self, names: dict[str, Any]) -> dict[str, Any]:
        """The builtins of the user's code; without a policy they are Python's own."""
        if self._policy.is_off:
            self._given = builtins
            names["__builtins__"] = builtins
            return vars(builtins)
        self._given = dict(vars(builtins))
        self._given["__import__"] = self._import
        self._given["getattr"] = self._getattr
        for name in self._policy.calls:
            if name in self._given and name != "__import__":
                self._given[name] = self._refusing(name)
        names["__builtins__"] = self._given
        found: dict[str, Any] = self._given
        return found

    def restore(self, names: dict[str, Any]) -> None:
        """Before each run: the code of the last one may have deleted them."""
        names["__builtins__"] = self._given
        there = vars(builtins) if self._given is builtins else self._given
        if len(there) < len(self._kept):
            for name, value in self._kept.items():
                there.setdefault(name, value)

    def install(self) -> None:
        """For the rest of the process; a hook cannot be removed."""
        self._kept = dict(vars(builtins) if self._given is builtins else self._given)
        if not self._policy.is_off:
            sys.addaudithook(self._audit)

    def _import(
        self, name: str, names: Any = None, scope: Any = None, wanted: Any = (), level: int = 0
    ) -> Any:
        if level or not self._policy.allows_package(name):
            raise NotAllowed(self._policy.module_message(name))
        for one in wanted or ():
            if not self._policy.allows_module(name) and not self._policy.allows_module(
                name + "." + str(one)
            ):
                raise NotAllowed(self._policy.module_message(name + "." + str(one)))
        return builtins.__import__(name, names, scope, wanted or (), level)

    def _getattr(self, value: Any, name: str, *default: Any) -> Any:
        if type(name) is str and self._policy.attribute_rule(name):
            raise NotAllowed(self._policy.attribute_message(name))
        return getattr(value, name, *default)

    def _refusing(self, name: str) -> Any:
        message = self._policy.call_message(name)

        def refuse(*given: Any, **named: Any) -> Any:
            raise NotAllowed(message)

        refuse.__name__ = refuse.__qualname__ = name
        return refuse

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.is_active:
            return
        if event in _REFUSED:
            if _origin(frozenset()) is _USERS:
                self._refuse(event)
        elif event in _NETWORK:
            if _origin(_CLIENTS) is _USERS:
                self._refuse(f"{event}; use requests or aiohttp for connections")
        elif event == "open" and arguments[0] in _FILES:
            self._refuse(f"opening {arguments[0]}")

    def _refuse(self, what: str) -> None:
        raise NotAllowed(f"the policy `{self._policy.name}` does not allow {what}")


def _origin(clients: frozenset[str]) -> str:
    """On whose account something happens.

    The user's, unless a frame of an import, of the runner or of a client is nearer.
    """
    frame: Any = _getframe(2)
    for _ in range(500):
        if frame is None:
            break
        name = frame.f_globals.get("__name__")
        root = name.partition(".")[0] if type(name) is str else ""
        if is_users(frame.f_code.co_filename) or name == "sandboxd_code.execution":
            return _USERS
        if root in clients or root == "sandboxd_code":
            return _OTHERS
        if frame.f_code.co_filename in _IMPORTING:
            return _OTHERS
        frame = frame.f_back
    return _USERS
