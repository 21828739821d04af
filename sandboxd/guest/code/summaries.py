"""Values in a few words. Nothing of the user's code runs: no method, no property, no __repr__.

What is shown is read with functions of C types, taken from the types themselves, and only if the
value's type is one of them or inherits from one.
"""

from __future__ import annotations

import sys
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

MAX_TEXT = 200
MAX_SHOWN = 10
"""Items of a container that are shown."""
MAX_DEPTH = 2
_MAX_BITS = 2000

_mro: Any = type.__dict__["__mro__"].__get__
_name = type.__dict__["__name__"].__get__
_attributes = type.__dict__["__dict__"].__get__
_module_name = type.__dict__["__module__"].__get__
_sizeof = object.__sizeof__
_PLAIN = (int, float, complex, bool, type(None), type(Ellipsis), type(NotImplemented))
_SEQUENCES: dict[Any, tuple[str, str]] = {
    list: ("[", "]"),
    tuple: ("(", ")"),
    set: ("{", "}"),
    frozenset: ("{", "}"),
}
_MEASURED: tuple[Any, ...] = (str, bytes, bytearray, list, tuple, dict, set, frozenset)


def type_name(value: Any) -> str:
    name: str = _name(type(value))
    return name[:MAX_TEXT]


def cut(text: str, limit: int = MAX_TEXT) -> str:
    return text if len(text) <= limit else text[: limit - 3] + "..."


def summary(value: Any) -> str:
    try:
        return cut(_show(value, MAX_DEPTH))
    except Exception as error:  # a container that another thread changes meanwhile
        return f"<{type_name(value)}, not shown: {type_name(error)}>"


def _show(value: Any, depth: int) -> str:
    kind = type(value)
    if kind in _PLAIN:
        return _number(value)
    base = _base(kind)
    if base is None:
        return _object(value, kind, depth)
    shown = _builtin(value, base, depth)
    return shown if kind is base else f"{type_name(value)}({shown})"


def _number(value: Any) -> str:
    if type(value) is int and value.bit_length() > _MAX_BITS:
        return f"int of {value.bit_length()} bits"
    return repr(value)


def _base(kind: type) -> Any:
    for base in _mro(kind):
        if base in _MEASURED or base in (int, float):
            return base
    return None


def _builtin(value: Any, base: Any, depth: int) -> str:
    if base is dict:
        return _mapping(value, depth)
    if base in _SEQUENCES:
        return _sequence(value, base, depth)
    if base is int:
        return _number(int.__add__(value, 0))
    if base is float:
        return float.__repr__(value)
    return _text(value, base)


def _text(value: Any, base: Any) -> str:
    size = base.__len__(value)
    part = base.__getitem__(value, slice(0, MAX_TEXT))
    return repr(part) + ("" if size <= MAX_TEXT else "...")


def _sequence(value: Any, base: Any, depth: int) -> str:
    opening, closing = _SEQUENCES[base]
    size = base.__len__(value)
    if not size and base in (set, frozenset):
        return "set()"
    if depth == 0 and size:
        return f"{opening}... {size} items{closing}"
    items = islice(base.__iter__(value), MAX_SHOWN)
    parts = [_show(item, depth - 1) for item in items]
    if size > MAX_SHOWN:
        parts.append(f"... {size} items")
    if base is tuple and size == 1:
        parts.append("")
    return opening + ", ".join(parts).rstrip(" ") + closing


def _mapping(value: Any, depth: int) -> str:
    size = dict.__len__(value)
    if depth == 0 and size:
        return f"{{... {size} items}}"
    pairs = islice(dict.items(value), MAX_SHOWN)
    parts = [f"{_show(key, 0)}: {_show(item, depth - 1)}" for key, item in pairs]
    if size > MAX_SHOWN:
        parts.append(f"... {size} items")
    return "{" + ", ".join(parts) + "}"


def _object(value: Any, kind: type, depth: int) -> str:
    named = _named(value, kind)
    if named:
        return named
    shape = _shape(value, kind)
    if shape:
        return shape
    found = attributes(value)
    if depth == 0 or not found:
        return "{}({})".format(type_name(value), "..." if found else "")
    parts = [f"{name}={_show(item, depth - 1)}" for name, item in islice(found.items(), MAX_SHOWN)]
    if len(found) > MAX_SHOWN:
        parts.append("...")
    return "{}({})".format(type_name(value), ", ".join(parts))


def _named(value: Any, kind: type) -> str:
    if kind is FunctionType:
        return f"function {value.__qualname__}"
    if kind is BuiltinFunctionType:
        return f"built-in function {value.__name__}"
    if kind is MethodType:
        return f"method of {type_name(value.__self__)}"
    if kind is ModuleType:
        name = value.__dict__.get("__name__")
        return f"module {name}" if type(name) is str else "module"
    if kind is CodeType:
        return f"code of {value.co_name}"
    if type in _mro(kind):
        return f"class {_name(value)}"
    return ""


def attributes(value: Any) -> dict[str, Any]:
    """Attributes that the instance itself has, from its dictionary and its slots."""
    found: dict[str, Any] = {}
    for base in _mro(type(value)):
        for name, entry in list(_attributes(base).items()):
            if type(entry) is MemberDescriptorType and base.__flags__ & (1 << 9):
                _add_slot(found, value, name, entry)
    inner = instance_dictionary(value)
    if inner is not None:
        found.update((name, item) for name, item in dict.items(inner) if type(name) is str)
    return found


def _add_slot(found: dict[str, Any], value: Any, name: str, slot: Any) -> None:
    try:
        found[name] = slot.__get__(value)
    except AttributeError:
        pass  # never set


def instance_dictionary(value: Any) -> dict[str, Any] | None:
    for base in _mro(type(value)):
        entry = _attributes(base).get("__dict__")
        if entry is None:
            continue
        if type(entry) is not GetSetDescriptorType or base is type:
            return None
        inner = entry.__get__(value)
        return inner if dict in _mro(type(inner)) else None
    return None


def _shape(value: Any, kind: Any) -> str:
    """Arrays and tables by their size: of their libraries, if the code is that of the library."""
    module = _module_name(kind)
    if type(module) is not str:
        return ""
    root = module.partition(".")[0]
    if root == "numpy" and _name(kind) == "ndarray":
        return f"ndarray(shape={kind.shape.__get__(value)}, dtype={kind.dtype.__get__(value)})"
    if root == "pandas" and _name(kind) in ("DataFrame", "Series"):
        return _table(value, kind)
    return ""


def _table(value: Any, kind: type) -> str:
    for base in _mro(kind):
        entry = _attributes(base).get("shape")
        if isinstance(entry, property):
            code = getattr(entry.fget, "__code__", None)
            if code is None or "/pandas/core/" not in code.co_filename:
                return ""
            shape = entry.__get__(value)
            return "{}({})".format(_name(kind), " x ".join(str(size) for size in shape))
    return ""


def size_of(value: Any) -> int:
    """Bytes of the value without what it refers to."""
    kind = type(value)
    if kind in _PLAIN or kind in _MEASURED:
        return sys.getsizeof(value)
    if _module_name(kind) == "numpy" and _name(kind) == "ndarray":
        return int(kind.nbytes.__get__(value))
    return _sizeof(value)


def length_of(value: Any) -> int | None:
    base = _base(type(value))
    return int(base.__len__(value)) if base in _MEASURED else None


def parts_of(value: Any) -> list[tuple[str, Any]] | None:
    """What the value consists of, by name; None if it has no parts."""
    base = _base(type(value))
    if base is dict:
        return [(cut(_show(key, 1)), item) for key, item in dict.items(value)]
    if base in _SEQUENCES:
        return [(f"[{index}]", item) for index, item in enumerate(base.__iter__(value))]
    if base is not None or type(value) in _PLAIN or _named(value, type(value)):
        return None
    return list(attributes(value).items()) or None


def has_parts(value: Any) -> bool:
    base = _base(type(value))
    if base is dict or base in _SEQUENCES:
        return bool(base.__len__(value))
    if base is not None or type(value) in _PLAIN or _named(value, type(value)):
        return False
    return bool(attributes(value))
