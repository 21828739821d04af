"""The API as the protos describe it, with their comments, and the routes of http.yaml."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
    MethodDescriptorProto,
)

PACKAGE = "sandboxd.v1."
_VERBS = ("get", "post", "put", "patch", "delete")
_VARIABLE = re.compile(r"\{([a-z_.]+)(?:=\*\*)?\}")
# Numbers of the fields of descriptor.proto, as the paths of comments name them.
_MESSAGES, _ENUMS, _SERVICES, _MEMBERS = 4, 5, 6, 2


class Wrong(Exception):
    """The rules do not fit the protos; the text says where."""


@dataclass(frozen=True)
class Endpoint:
    """A method with its route."""

    service: str
    method: MethodDescriptorProto
    comment: str
    verb: str
    path: str
    has_body: bool
    kind: str

    @property
    def name(self) -> str:
        return f"{self.service}.{self.method.name}"

    @property
    def variables(self) -> list[str]:
        return _VARIABLE.findall(self.path)


class Api:
    """Messages, enums and methods by their names, each with its comment."""

    def __init__(self, files: FileDescriptorSet) -> None:
        self.messages: dict[str, DescriptorProto] = {}
        self.enums: dict[str, Any] = {}
        self.methods: dict[str, MethodDescriptorProto] = {}
        self.comments: dict[str, str] = {}
        for file in files.file:
            self._read(file)

    def _read(self, file: FileDescriptorProto) -> None:
        comments = {
            tuple(place.path): _text(place.leading_comments)
            for place in file.source_code_info.location
        }
        package = f"{file.package}."

        def note(name: str, *path: int) -> None:
            self.comments[name] = comments.get(path, "")

        for i, message in enumerate(file.message_type):
            name = package + message.name
            self.messages[name] = message
            for nested in message.nested_type:  # entries of maps
                self.messages[f"{name}.{nested.name}"] = nested
            note(name, _MESSAGES, i)
            for j, field in enumerate(message.field):
                note(f"{name}.{field.name}", _MESSAGES, i, _MEMBERS, j)
        for i, enum in enumerate(file.enum_type):
            self.enums[package + enum.name] = enum
            note(package + enum.name, _ENUMS, i)
            for j, value in enumerate(enum.value):
                note(f"{package}{enum.name}.{value.name}", _ENUMS, i, _MEMBERS, j)
        for i, service in enumerate(file.service):
            for j, method in enumerate(service.method):
                name = f"{service.name}.{method.name}"
                self.methods[name] = method
                note(name, _SERVICES, i, _MEMBERS, j)

    def message_of(self, type_name: str) -> DescriptorProto:
        return self.messages[type_name.removeprefix(".")]

    def entry_of(self, field: FieldDescriptorProto) -> DescriptorProto | None:
        """The entry of a map; None if the field is none."""
        message = self.messages.get(field.type_name.removeprefix("."))
        return message if message is not None and message.options.map_entry else None


def endpoints(api: Api, rules: Path) -> list[Endpoint]:
    """Every method with its route, in the order of the rules; Wrong."""
    found = [_endpoint(api, rule) for rule in yaml.safe_load(rules.read_text())["http"]["rules"]]
    missing = set(api.methods) - {endpoint.name for endpoint in found}
    if missing:
        raise Wrong(f"methods without a route in {rules.name}: {', '.join(sorted(missing))}")
    routes = [(endpoint.verb, _VARIABLE.sub("{}", endpoint.path)) for endpoint in found]
    if doubled := {route for route in routes if routes.count(route) > 1}:
        raise Wrong(f"routes of several methods in {rules.name}: {sorted(doubled)}")
    return found


def _endpoint(api: Api, rule: Mapping[str, str]) -> Endpoint:
    name = rule["selector"]
    if name not in api.methods:
        raise Wrong(f"the API has no method {name}")
    verb = next(verb for verb in _VERBS if verb in rule)
    method = api.methods[name]
    endpoint = Endpoint(
        service=name.partition(".")[0],
        method=method,
        comment=api.comments[name],
        verb=verb.upper(),
        path=rule[verb],
        has_body="body" in rule,
        kind=_kind(api, method),
    )
    for variable in endpoint.variables:
        if field_of(api, method.input_type, variable) is None:
            raise Wrong(f"{name}: the request has no field {variable}")
    return endpoint


def _kind(api: Api, method: MethodDescriptorProto) -> str:
    if method.client_streaming:
        return "socket" if method.server_streaming else "upload"
    if not method.server_streaming:
        return "call"
    answer = api.message_of(method.output_type)
    is_file = any(field.name == "chunk" for field in answer.field)
    return "download" if is_file else "events"


def field_of(api: Api, type_name: str, path: str) -> FieldDescriptorProto | None:
    """The field at a path of names, `header.session_id`."""
    name, _, below = path.partition(".")
    for field in api.message_of(type_name).field:
        if field.name == name:
            return field_of(api, field.type_name, below) if below else field
    return None


def used_types(api: Api, names: Iterator[str]) -> list[str]:
    """These messages and enums, and all that they refer to."""
    found: dict[str, None] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop().removeprefix(".")
        if name in found or not name.startswith(PACKAGE):
            continue
        found[name] = None
        if name in api.messages:
            waiting += [field.type_name for field in api.messages[name].field if field.type_name]
    return sorted(name for name in found if not is_entry(api, name))


def is_entry(api: Api, name: str) -> bool:
    """Whether it is the entry of a map."""
    return name in api.messages and api.messages[name].options.map_entry


def _text(comment: str) -> str:
    return " ".join(line.strip() for line in comment.strip().splitlines())
