"""Policies that an operator writes: in a TOML file, or as tables of the settings."""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sandboxd.policy.profile import BUILTINS, INSTEAD, OPEN, STRICT, Policy

MAX_FILE_BYTES = 1 << 20
CUSTOM = "custom"
"""Name of the policy of the file."""
_LISTS = ("allow", "forbid", "forbid_patterns", "forbid_writes")
_KEYS = (*_LISTS, "extends", "inline_code", "instead")


class InvalidPolicy(Exception):
    """This is not a valid policy; the text says why and what to write."""


def load(path: Path) -> Policy:
    """Read the policy from a file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InvalidPolicy("The policy file is larger than 1 MiB; write a shorter one.")
        return from_toml(data.decode())
    except OSError as error:
        raise InvalidPolicy(
            f"The policy file cannot be read ({error.strerror}); check its path and permissions."
        ) from error
    except UnicodeDecodeError as error:
        raise InvalidPolicy("The policy file is not valid UTF-8; save it as UTF-8.") from error


def from_toml(text: str) -> Policy:
    """Parse the text of a policy file."""
    try:
        return from_table(CUSTOM, tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InvalidPolicy(f"The policy is not valid TOML: {error}.") from error


def from_table(name: str, table: Mapping[str, Any]) -> Policy:
    """The policy of this name that a table describes."""
    for key in table:
        if key not in _KEYS:
            near = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean `{near[0]}`?" if near else f"the settings are {', '.join(_KEYS)}."
            raise InvalidPolicy(f"`{key}` is not a setting of a policy; {hint}")
    lists = {key: _strings(key, table.get(key, [])) for key in _LISTS}
    base = _base(table)
    own_allow, own_forbid = frozenset(lists["allow"]), frozenset(lists["forbid"])
    allow = base.allow if base.allow is None else base.allow | own_allow
    return Policy(
        name=name,
        allow=None if allow is None else allow - own_forbid,
        # What the file allows by name overrides what it extends.
        forbid=(base.forbid - own_allow) | own_forbid,
        forbid_patterns=tuple(lists["forbid_patterns"]),
        forbid_writes=tuple(lists["forbid_writes"]),
        inline_code=_inline_code(table),
        instead={**INSTEAD, **_instead(table)},
    )


def _base(table: Mapping[str, Any]) -> Policy:
    extends = table.get("extends")
    if extends is None:
        if not table.get("allow"):
            raise InvalidPolicy('Write `allow = [...]`, or `extends = "strict"` or "open".')
        return Policy(name=CUSTOM, allow=BUILTINS)
    for known in (STRICT, OPEN):
        if extends == known.name:
            return known
    raise InvalidPolicy('`extends` must be "strict" or "open".')


def _strings(key: str, value: object) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) and name for name in value):
        raise InvalidPolicy(f'`{key}` must be a list of names, as in {key} = ["git", "make"].')
    return value


def _inline_code(table: Mapping[str, Any]) -> bool:
    value = table.get("inline_code", True)
    if not isinstance(value, bool):
        raise InvalidPolicy("`inline_code` must be true or false.")
    return value


def _instead(table: Mapping[str, Any]) -> dict[str, str]:
    value = table.get("instead", {})
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise InvalidPolicy(
            '`[instead]` must have a sentence for each command, as in git = "Ask for it."'
        )
    return value
