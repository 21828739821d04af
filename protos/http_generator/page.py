"""The OpenAPI document as a page of HTML that needs no script and no network."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; margin-bottom: .2rem } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem }
nav a { margin-right: .8rem; white-space: nowrap }
details { border: 1px solid var(--line); border-radius: .4rem; margin: .3rem 0; padding: .3rem .7rem }
summary { cursor: pointer; overflow-wrap: anywhere } summary b { display: inline-block; width: 4.2rem }
code, pre { font: 13px/1.45 ui-monospace, monospace } pre { background: var(--soft); padding: .6rem; overflow-x: auto }
table { border-collapse: collapse; width: 100% } td, th { border-top: 1px solid var(--line); padding: .25rem .5rem;
text-align: left; vertical-align: top } td:first-child { white-space: nowrap } .about { opacity: .75 }
"""


def page(document: Mapping[str, Any]) -> str:
    tags = dict.fromkeys(operation["tags"][0] for _, _, operation in _operations(document))
    links = "".join(f'<a href="#{tag}">{tag}</a>' for tag in (*tags, "types"))
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width"><title>sandboxd API</title>',
        f"<style>{STYLE}</style><h1>sandboxd API</h1>",
        f"<p>{_words(document['info']['description'])}</p>",
        '<p>The same as <a href="/openapi.json">openapi.json</a>.</p>',
        f"<nav>{links}</nav>",
    ]
    for tag in tags:
        parts.append(f'<h2 id="{tag}">{tag}</h2>')
        parts += [
            _operation(verb, path, operation)
            for verb, path, operation in _operations(document)
            if operation["tags"][0] == tag
        ]
    parts.append('<h2 id="types">Types</h2>')
    parts += [_type(name, schema) for name, schema in document["components"]["schemas"].items()]
    return "\n".join(parts) + "\n"


def _operations(document: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for path, operations in document["paths"].items():
        for verb, operation in operations.items():
            yield verb.upper(), path, operation


def _operation(verb: str, path: str, operation: Mapping[str, Any]) -> str:
    rows = "".join(
        _row(f"{one['name']} ({one['in']})", one["schema"], one.get("description", ""))
        for one in operation["parameters"]
    )
    table = f"<table>{rows}</table>" if rows else ""
    body = ""
    for media_type, content in operation.get("requestBody", {}).get("content", {}).items():
        body += f"<p>Body: {_shape(content['schema'])} as <code>{media_type}</code></p>"
    answers = "".join(
        f"<p>{status}: {_words(answer['description'])} {_content(answer)}</p>"
        for status, answer in operation["responses"].items()
        if status != "default"
    )
    return (
        f'<details id="{operation["operationId"]}"><summary><b>{verb}</b><code>{escape(path)}</code> '
        f'<span class="about">{_words(operation["summary"])}</span></summary>'
        f"<p>{_words(operation['description'])}</p>{table}{body}{answers}</details>"
    )


def _content(answer: Mapping[str, Any]) -> str:
    for content in answer.get("content", {}).values():
        return _shape(content.get("x-item-schema", content["schema"]))
    return ""


def _type(name: str, schema: Mapping[str, Any]) -> str:
    rows = "".join(
        _row(field, value, value.get("description", ""))
        for field, value in schema.get("properties", {}).items()
    )
    return (
        f'<details id="type-{name}"><summary><code>{name}</code></summary>'
        f"<p>{_words(schema.get('description', ''))}</p><table>{rows}</table></details>"
    )


def _row(name: str, schema: Mapping[str, Any], about: str) -> str:
    return f"<tr><td><code>{escape(name)}</code></td><td>{_shape(schema)}</td><td>{_words(about)}</td></tr>"


def _shape(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#type-{name}">{name}</a>'
    if schema.get("type") == "array":
        return f"list of {_shape(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return f"map of {_shape(schema['additionalProperties'])}"
    if "anyOf" in schema:
        return "number"
    kind = schema.get("format") or schema.get("contentEncoding") or schema.get("type", "")
    return escape("duration" if schema.get("examples") == ["30s"] else str(kind))


def _words(text: str) -> str:
    pieces = escape(text, quote=False).split("`")
    marked = (f"<code>{piece}</code>" if i % 2 else piece for i, piece in enumerate(pieces))
    return "".join(marked).replace("\n- ", "<br>• ").replace("\n", " ")


def as_text(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"
