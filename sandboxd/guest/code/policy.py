"""The code policy: which modules and names code may use, checked in its syntax tree.

It is policy, not a boundary: the kernel is that. It stops what code should not do by accident or by
a habit of the model that wrote it, with a sentence that names the line and an allowed way. Whatever
it does not see at all, such as `python3` in a shell command, it does not stop.
"""

from __future__ import annotations

import _ast
from typing import Any, NamedTuple

from .policy_names import (
    ALLOWED_MODULES,
    BLOCKED_CALLS,
    BLOCKED_MEMBERS,
    BLOCKED_NAMES,
    FRAME_ATTRIBUTES,
    MODULE_ATTRIBUTES,
    SAFE_DUNDERS,
    WAYS,
)

STRICT, OPEN = "strict", "open"
NO_POLICY = frozenset(("", "off", OPEN))
MAX_VIOLATIONS = 50


class Violation(NamedTuple):
    rule: str
    line: int
    name: str
    message: str


class Policy:
    """Rules of one context."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.name = settings.get("name") or OPEN
        self.is_off = self.name in NO_POLICY
        modules = settings.get("allowed_modules")
        calls = settings.get("blocked_calls")
        self.modules = frozenset(ALLOWED_MODULES if modules is None else modules)
        self.calls = frozenset(BLOCKED_CALLS if calls is None else calls)

    def check(self, tree: Any) -> list[Violation]:
        """What the policy refuses, in the order of the lines."""
        if self.is_off:
            return []
        check = _Check(self)
        waiting = [(tree, 1)]
        while waiting and len(check.found) < MAX_VIOLATIONS:
            node, line = waiting.pop()
            line = getattr(node, "lineno", line)
            check.look_at(node, line)
            for field in reversed(node._fields):
                value = getattr(node, field, None)
                for one in reversed(value) if type(value) is list else (value,):
                    if isinstance(one, _ast.AST):
                        waiting.append((one, line))
        return sorted(check.found, key=lambda one: one.line)

    def allows_module(self, name: str) -> bool:
        """A module is allowed if it or a package around it is listed."""
        parts = name.split(".")
        return any(".".join(parts[: end + 1]) in self.modules for end in range(len(parts)))

    def allows_package(self, name: str) -> bool:
        """Also a package that only has an allowed module in it, such as `urllib`."""
        return self.allows_module(name) or any(
            module.startswith(name + ".") for module in self.modules
        )

    def attribute_rule(self, name: str) -> str:
        """Why an attribute is refused: the name of the rule; empty if it is allowed."""
        if name in FRAME_ATTRIBUTES or (_is_dunder(name) and name not in SAFE_DUNDERS):
            return "attribute"
        if name in MODULE_ATTRIBUTES and not self.allows_module(name):
            return "module"
        if name in BLOCKED_MEMBERS and name not in self.modules:
            return "call"
        return ""

    def marker(self, text: str) -> str:
        """A name in a text that gives access to the interpreter; empty if there is none."""
        start = text.find("__")
        while start >= 0:
            end = text.find("__", start + 2)
            name = text[start : end + 2] if end > 0 else ""
            if name and name[2:-2].isidentifier() and name not in SAFE_DUNDERS:
                return name
            start = text.find("__", start + 2)
        for name in FRAME_ATTRIBUTES:
            if name != "mro" and name in text:
                return name
        return ""

    def module_message(self, name: str) -> str:
        root = name.partition(".")[0]
        way = WAYS.get(name) or WAYS.get(root) or "the list of functions has the allowed modules"
        return f"the module `{name}` is not allowed by the policy `{self.name}`; {way}"

    def call_message(self, name: str) -> str:
        way = WAYS.get(name, "write what it would do as plain code")
        return f"`{name}` is not allowed by the policy `{self.name}`; {way}"

    def attribute_message(self, name: str) -> str:
        return (
            f"the attribute `{name}` leads into the interpreter and is not allowed by the policy "
            f"`{self.name}`; use the public attributes of the value"
        )


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Check:
    """Looks at one tree."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.found: list[Violation] = []

    def look_at(self, node: Any, line: int) -> None:
        look = getattr(self, "_at_" + type(node).__name__.lower(), None)
        if look is not None:
            look(node, line)

    def _refuse(self, rule: str, line: int, name: str, message: str) -> None:
        self.found.append(Violation(rule, line, name[:200], message))

    def _module(self, line: int, name: str) -> None:
        self._refuse("module", line, name, self._policy.module_message(name))

    def _at_import(self, node: Any, line: int) -> None:
        for alias in node.names:
            if not self._policy.allows_module(alias.name):
                self._module(line, alias.name)

    def _at_importfrom(self, node: Any, line: int) -> None:
        module = node.module or ""
        if node.level:
            self._module(line, "." * node.level + module)
            return
        if not self._policy.allows_package(module):
            self._module(line, module)
            return
        for alias in node.names:
            self._imported(module, alias.name, line)

    def _imported(self, module: str, name: str, line: int) -> None:
        if not self._policy.allows_module(module):
            if not self._policy.allows_module(module + "." + name):
                self._module(line, module + "." + name)
        elif name.startswith("_") or self._policy.attribute_rule(name):
            self._refuse("attribute", line, name, self._policy.attribute_message(name))

    def _at_name(self, node: Any, line: int) -> None:
        name = node.id
        if name in self._policy.calls:
            self._refuse("call", line, name, self._policy.call_message(name))
        elif name in BLOCKED_NAMES or (_is_dunder(name) and name not in SAFE_DUNDERS):
            self._refuse("name", line, name, self._policy.call_message(name))
        elif name in ("getattr", "hasattr") and not self._is_called(node):
            self._refuse("call", line, name, self._policy.call_message(name))

    def _is_called(self, node: Any) -> bool:
        return getattr(node, "sandboxd_called", False)

    def _at_call(self, node: Any, line: int) -> None:
        """`getattr` with a name that is written out is an attribute; any other is refused."""
        name = getattr(node.func, "id", "")
        if name not in ("getattr", "hasattr"):
            return
        if len(node.args) >= 2 and type(getattr(node.args[1], "value", None)) is str:
            node.func.sandboxd_called = True
            self._attribute_name(node.args[1].value, line)

    def _at_attribute(self, node: Any, line: int) -> None:
        self._attribute_name(node.attr, line)

    def _attribute_name(self, name: str, line: int) -> None:
        rule = self._policy.attribute_rule(name)
        if rule == "module":
            self._module(line, name.lstrip("_"))
        elif rule == "call":
            self._refuse("call", line, name, self._policy.call_message(name))
        elif rule:
            self._refuse("attribute", line, name, self._policy.attribute_message(name))

    def _at_matchclass(self, node: Any, line: int) -> None:
        for name in node.kwd_attrs:
            self._attribute_name(name, line)

    def _at_constant(self, node: Any, line: int) -> None:
        if type(node.value) is not str:
            return
        name = self._policy.marker(node.value)
        if name:
            self._refuse("text", line, name, self._policy.attribute_message(name))
