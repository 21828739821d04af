"""The settings as data, from which flags, variables, keys and pages are generated."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin

from annotated_types import Ge, Gt, Le
from pydantic import AliasChoices, BaseModel, SecretStr
from pydantic.fields import FieldInfo

from sandboxd.config.definition import SIZE, TABLES, Config

MASK = "********"
_CHOICE = re.compile(r"\^\(?([a-z0-9_|-]+)\)?\$")
"""A pattern that only lists alternatives."""
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
"""Credentials before the host of a URL."""
_UNITS = ((1 << 30, "g"), (1 << 20, "m"), (1 << 10, "k"))


class Kind(Enum):
    """Type of a setting's value."""

    SWITCH = auto()
    WHOLE = auto()
    NUMBER = auto()
    SIZE = auto()
    PATH = auto()
    TEXT = auto()
    LIST = auto()
    TABLE = auto()


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting of the definition."""

    name: str
    """Name of the field, and of the key in the file."""
    table: str
    variables: Sequence[str]
    """Names in the environment; the first that is set counts."""
    kind: Kind
    choices: Sequence[str]
    """Accepted words, if only some words are accepted."""
    accepts: str
    """Accepted values, as the end of a sentence."""
    description: str
    default: Any
    has_varying_default: bool
    """Whether the default depends on the host."""
    is_bounded: bool
    """Whether `accepts` says more than the type."""
    is_optional: bool
    is_secret: bool

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    def flag_for(self, text: str) -> str:
        """The flag that sets this value."""
        is_no = self.kind is Kind.SWITCH and text == "false"
        return f"--no-{self.flag[2:]}" if is_no else self.flag

    @property
    def key(self) -> str:
        is_named = TABLES[self.table].named == self.name
        return self.table if is_named else f"{self.table}.{self.name}"

    @property
    def variable(self) -> str:
        """The shortest name in the environment."""
        return self.variables[-1]

    def is_nothing(self, value: Any) -> bool:
        """Whether the value counts as not set; an empty path would be the current directory."""
        return value == "" and (self.is_optional or self.kind is Kind.PATH)

    def from_text(self, text: str) -> Any:
        """The value of a flag or a variable, not yet validated."""
        if self.is_nothing(text):
            return None
        if self.kind is Kind.LIST:
            return [word for part in text.split(",") if (word := part.strip())]
        if self.kind is Kind.TABLE:
            try:
                return json.loads(text)
            except ValueError:
                return text  # the validation reports that it is not a table
        return text

    def shown(self, value: Any) -> Any:
        """A value for output, with secrets masked."""
        if value is not None and self.is_secret:
            return MASK
        if isinstance(value, Path):
            return str(value)
        if isinstance(value, dict):
            return {name: _shown_table(table) for name, table in value.items()}
        return _CREDENTIALS.sub(MASK, value) if isinstance(value, str) else value

    def in_toml(self, value: Any) -> str:
        """A value in the syntax of the file."""
        value = self.shown(value)
        if value is None:
            return '""'
        if self.kind is Kind.SIZE:
            return json.dumps(size_text(value))
        if isinstance(value, float) and value.is_integer():
            return str(int(value))
        # TOML writes strings, lists and the like as JSON does.
        return json.dumps(value, ensure_ascii=False, default=str)


def _shown_table(table: Any) -> Any:
    """A table for output, without the values of variables, which may be secrets."""
    shown = (
        table.model_dump(mode="json", exclude_unset=True) if isinstance(table, BaseModel) else table
    )
    if isinstance(shown, dict) and "env_vars" in shown:
        shown = {**shown, "env_vars": dict.fromkeys(shown["env_vars"], MASK)}
    return shown


def size_text(size: int) -> str:
    """A size in the largest unit that divides it."""
    for unit, letter in _UNITS:
        if size and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def describe(name: str, table: str, field: FieldInfo) -> Setting:
    """Make a Setting from its field."""
    parts = _parts(field.annotation)
    is_optional = NoneType in parts
    kind = _kind(parts, field)
    choices = _choices(field)
    return Setting(
        name=name,
        table=table,
        variables=_variables(field),
        kind=kind,
        choices=choices,
        accepts=_accepts(kind, choices, field) + (", or nothing" if is_optional else ""),
        description=" ".join((field.description or "").split()),
        default=field.get_default(call_default_factory=True, validated_data={}),
        has_varying_default=field.default_factory is not None,
        is_bounded=bool(choices or _pattern(field) or _bounds(kind, field)),
        is_optional=is_optional,
        is_secret=SecretStr in parts,
    )


def _parts(annotation: Any) -> Sequence[Any]:
    """The members of a union; an optional type has two."""
    return get_args(annotation) if get_origin(annotation) in (Union, UnionType) else [annotation]


def _kind(parts: Sequence[Any], field: FieldInfo) -> Kind:
    if SIZE in field.metadata:
        return Kind.SIZE
    kinds = {
        bool: Kind.SWITCH,
        int: Kind.WHOLE,
        float: Kind.NUMBER,
        Path: Kind.PATH,
        list: Kind.LIST,
        tuple: Kind.LIST,
        frozenset: Kind.LIST,
        dict: Kind.TABLE,
    }
    return next((kinds[t] for part in parts if (t := get_origin(part) or part) in kinds), Kind.TEXT)


def _variables(field: FieldInfo) -> Sequence[str]:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        return tuple(str(choice) for choice in alias.choices)
    return (str(alias),)


def _pattern(field: FieldInfo) -> str | None:
    patterns = (getattr(constraint, "pattern", None) for constraint in field.metadata)
    return next(filter(None, patterns), None)


def _choices(field: FieldInfo) -> Sequence[str]:
    match = _CHOICE.fullmatch(_pattern(field) or "")
    return tuple(match[1].split("|")) if match else ()


def _accepts(kind: Kind, choices: Sequence[str], field: FieldInfo) -> str:
    if choices:
        *most, last = choices
        return f"{', '.join(most)} or {last}" if most else last
    if pattern := _pattern(field):
        return f"text that matches {pattern}"
    plain = {
        Kind.SWITCH: "true or false",
        Kind.WHOLE: "a whole number",
        Kind.NUMBER: "a number",
        Kind.SIZE: "a size",
        Kind.PATH: "a path",
        Kind.TEXT: "text",
        Kind.LIST: "a list of texts",
        Kind.TABLE: "a table",
    }[kind]
    words = f"{plain} {bounds}" if (bounds := _bounds(kind, field)) else plain
    return f"{words}, such as 256m" if kind is Kind.SIZE else words


def _bounds(kind: Kind, field: FieldInfo) -> str:
    def text(bound: Any) -> str:
        return size_text(bound) if kind is Kind.SIZE else f"{bound:g}"

    above = [text(bound.gt) for bound in field.metadata if isinstance(bound, Gt)]
    least = [text(bound.ge) for bound in field.metadata if isinstance(bound, Ge)]
    most = [text(bound.le) for bound in field.metadata if isinstance(bound, Le)]
    if least and most:
        return f"from {least[0]} to {most[0]}"
    words = [f"above {bound}" for bound in above] + [f"of at least {bound}" for bound in least]
    return " and ".join([*words, *(f"of at most {bound}" for bound in most)])


def _catalogue() -> Mapping[str, Setting]:
    begins = {table.first: name for name, table in TABLES.items()}
    settings, table = {}, ""
    for name, field in Config.model_fields.items():
        table = begins.get(name, table)
        settings[name] = describe(name, table, field)
    return settings


SETTINGS = _catalogue()
"""All settings by name, in the order of the definition."""
BY_VARIABLE = {name: setting for setting in SETTINGS.values() for name in setting.variables}
OF_A_SERVER = frozenset(
    [name for name, setting in SETTINGS.items() if setting.table == "cluster"]
    + ["host", "port", "worker_id", "socket_path", "reflection", "metrics_port"]
    + ["console_port", "console_host", "console_names"]
    + ["http_address", "http_names", "http_origins", "http_open"]
    + ["tokens_file", "socket_auth", "tls_cert", "tls_key", "tls_client_ca"]
    + ["allow_network_access_without_authentication"]
)
"""Settings that mean nothing to a daemon inside another program, whose environment may well have
HOST, PORT or REDIS_HOST for itself."""
