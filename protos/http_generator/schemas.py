"""Types of the protos as JSON Schema, as protobuf writes them in JSON."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from http_generator.api import PACKAGE, Api

_UNSIGNED_64 = {"type": "string", "pattern": "^[0-9]{1,20}$", "format": "uint64"}
_SIGNED_64 = {"type": "string", "pattern": "^-?[0-9]{1,19}$", "format": "int64"}
_UNSIGNED_32 = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_SIGNED_32 = {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_NUMBER = {"anyOf": [{"type": "number"}, {"enum": ["NaN", "Infinity", "-Infinity"]}]}
_SCALARS = {
    Field.TYPE_STRING: {"type": "string"},
    Field.TYPE_BOOL: {"type": "boolean"},
    Field.TYPE_BYTES: {"type": "string", "contentEncoding": "base64"},
    Field.TYPE_DOUBLE: _NUMBER,
    Field.TYPE_FLOAT: _NUMBER,
    Field.TYPE_UINT32: _UNSIGNED_32,
    Field.TYPE_FIXED32: _UNSIGNED_32,
    Field.TYPE_INT32: _SIGNED_32,
    Field.TYPE_SINT32: _SIGNED_32,
    Field.TYPE_UINT64: _UNSIGNED_64,
    Field.TYPE_INT64: _SIGNED_64,
}
_KNOWN = {
    ".google.protobuf.Duration": {
        "type": "string",
        "pattern": r"^-?[0-9]{1,12}(\.[0-9]{1,9})?s$",
        "examples": ["30s"],
    },
    ".google.protobuf.Timestamp": {"type": "string", "format": "date-time"},
}


def schema_name(type_name: str) -> str:
    return type_name.removeprefix(".").removeprefix(PACKAGE)


def schema_of(api: Api, name: str) -> dict[str, Any]:
    """Schema of a message or an enum."""
    if name in api.enums:
        return _enum(api, name)
    message = api.messages[name]
    properties = {
        field.json_name: _described(field_schema(api, field), api.comments[f"{name}.{field.name}"])
        for field in message.field
    }
    schema: dict[str, Any] = {"type": "object", "properties": properties}
    schema["additionalProperties"] = False
    return _described(schema, api.comments[name])


def field_schema(api: Api, field: Field) -> dict[str, Any]:
    entry = api.entry_of(field)
    if entry is not None:
        return {"type": "object", "additionalProperties": _one(entry.field[1])}
    if field.label == Field.LABEL_REPEATED:
        return {"type": "array", "items": _one(field)}
    return _one(field)


def is_message(field: Field) -> bool:
    """Whether the field has fields of its own."""
    return field.type == Field.TYPE_MESSAGE and field.type_name not in _KNOWN


def _one(field: Field) -> dict[str, Any]:
    if field.type in _SCALARS:
        return dict(_SCALARS[field.type])
    known = _KNOWN.get(field.type_name)
    return (
        dict(known) if known else {"$ref": f"#/components/schemas/{schema_name(field.type_name)}"}
    )


def _enum(api: Api, name: str) -> dict[str, Any]:
    values = [value.name for value in api.enums[name].value]
    lines = [f"- `{value}`: {api.comments[f'{name}.{value}']}" for value in values]
    about = "\n".join([api.comments[name], "", *lines])
    return {"type": "string", "enum": values, "description": about.strip()}


def _described(schema: dict[str, Any], comment: str) -> dict[str, Any]:
    return {**schema, "description": comment} if comment else schema
