"""The OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from http_generator.api import Api, Endpoint, field_of, used_types
from http_generator.schemas import field_schema, is_message, schema_name, schema_of

DEPTH = 2
"""Levels of fields that a query names, as in `before.label`."""
ABOUT = (
    "Persistent, isolated Linux workspaces for AI agents. JSON is as protobuf defines it: names in "
    "lowerCamelCase (snake_case is read too), 64-bit numbers and durations (`30s`) as text, bytes "
    "as base64. Refusals are problem details with a typed `reason`. Where the daemon asks for a "
    "token, send `Authorization: Bearer TOKEN`."
)
PROBLEM = {
    "type": "object",
    "description": "Why a request was refused, and what to do next (RFC 9457).",
    "required": ["title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "reason": {"type": "string", "description": "A value of ErrorReason."},
        "metadata": {"type": "object", "additionalProperties": {"type": "string"}},
        "retry_after_seconds": {"type": "number"},
        "violations": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"field": {"type": "string"}, "description": {"type": "string"}},
            },
        },
    },
}
_PROBLEM_REF = {"$ref": "#/components/schemas/Problem"}
REFUSED = {
    "description": "Refused.",
    "content": {"application/problem+json": {"schema": _PROBLEM_REF}},
}
BYTES = {"type": "string", "format": "binary"}
_VARIABLE = re.compile(r"\{(?:[a-z_]+\.)*([a-z_]+)(?:=\*\*)?\}")


def openapi(api: Api, endpoints: Sequence[Endpoint], version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = _VARIABLE.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.verb.lower()] = _operation(api, endpoint)
    schemas = {
        schema_name(name): schema_of(api, name) for name in used_types(api, _types(endpoints))
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "sandboxd", "version": version, "description": ABOUT},
        "security": [{}, {"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "Problem": PROBLEM},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _types(endpoints: Sequence[Endpoint]) -> Iterator[str]:
    for endpoint in endpoints:
        yield endpoint.method.input_type
        yield endpoint.method.output_type


def _operation(api: Api, endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "operationId": endpoint.name.replace(".", "_"),
        "tags": [endpoint.service.removesuffix("Service")],
        "summary": re.split(r"(?<=\.) ", endpoint.comment)[0],
        "description": endpoint.comment,
        "parameters": [*_path_parameters(api, endpoint), *_query_parameters(api, endpoint)],
        "responses": {**_responses(endpoint), "default": REFUSED},
    }
    if endpoint.has_body:
        schema = {"$ref": f"#/components/schemas/{schema_name(endpoint.method.input_type)}"}
        operation["requestBody"] = {"content": {"application/json": {"schema": schema}}}
    elif endpoint.kind == "upload":
        content = {"application/octet-stream": {"schema": BYTES}}
        operation["requestBody"] = {"required": True, "content": content}
    return operation


def _path_parameters(api: Api, endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    for variable in endpoint.variables:
        field = field_of(api, endpoint.method.input_type, variable)
        assert field is not None
        schema = field_schema(api, field)
        if schema.get("type") == "string":
            schema["minLength"] = 1
        about = api.comments.get(_owner(api, endpoint.method.input_type, variable), "")
        yield {
            "name": variable.rpartition(".")[2],
            "in": "path",
            "required": True,
            "schema": schema,
            "description": about,
        }


def _query_parameters(api: Api, endpoint: Endpoint) -> Iterator[dict[str, Any]]:
    if endpoint.has_body or endpoint.kind == "socket":
        return
    start = endpoint.method.input_type
    prefix = "header." if endpoint.kind == "upload" else ""
    if prefix:
        header = field_of(api, start, "header")
        assert header is not None
        start = header.type_name
    for path, type_name, field in _leaves(api, start):
        if prefix + path not in endpoint.variables:
            yield {
                "name": path,
                "in": "query",
                "schema": field_schema(api, field),
                "description": api.comments[f"{type_name.removeprefix('.')}.{field.name}"],
            }


def _leaves(api: Api, type_name: str, prefix: str = "") -> Iterator[tuple[str, str, Any]]:
    for field in api.message_of(type_name).field:
        path = f"{prefix}{field.name}"
        if api.entry_of(field) is not None:
            continue  # a query names the entries themselves: metadata.KEY=VALUE
        if not is_message(field):
            yield path, type_name, field
        elif path.count(".") < DEPTH - 1:
            yield from _leaves(api, field.type_name, f"{path}.")


def _owner(api: Api, type_name: str, path: str) -> str:
    """The full name of the field at a path."""
    name, _, below = path.partition(".")
    if not below:
        return f"{type_name.removeprefix('.')}.{name}"
    field = field_of(api, type_name, name)
    assert field is not None
    return _owner(api, field.type_name, below)


def _responses(endpoint: Endpoint) -> dict[str, Any]:
    reference = {"$ref": f"#/components/schemas/{schema_name(endpoint.method.output_type)}"}
    if endpoint.kind == "socket":
        about = "A WebSocket: a text frame is a message as JSON; see docs/http.md."
        return {"101": {"description": about}}
    if endpoint.kind == "events":
        text = {"schema": {"type": "string"}, "x-item-schema": reference}
        content = {"application/x-ndjson": text, "text/event-stream": text}
        about = "A line of JSON for each message; server-sent events if `Accept` asks for them."
        return {"200": {"description": about, "content": content}}
    if endpoint.kind == "download":
        file = {"application/octet-stream": {"schema": BYTES}}
        return {
            "200": {"description": "The bytes of the file.", "content": file},
            "206": {"description": "The range that `Range` asked for.", "content": file},
            "304": {"description": "The file is the one of `If-None-Match`."},
            "416": {"description": "The file has no byte of the range."},
        }
    content = {"application/json": {"schema": reference}}
    return {"200": {"description": "The answer.", "content": content}}
