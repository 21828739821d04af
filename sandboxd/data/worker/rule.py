"""Which statements of PostgreSQL may run: a check of the tree that its own grammar makes.

The check only decides what the database gets to see. What it may do there is decided by the rights
of the login, by the read-only transaction and by the rollback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from sandboxd.data.worker import grammar

MAX_DEPTH = 700
READ_TABLES = frozenset(
    {
        *("pg_attrdef", "pg_attribute", "pg_class", "pg_constraint", "pg_description", "pg_enum"),
        *("pg_index", "pg_indexes", "pg_namespace", "pg_tables", "pg_type", "pg_views"),
    }
)
"""Tables of pg_catalog that describe the schema; others show what other users do."""
_SAMPLING = frozenset({"system", "bernoulli"})
_WRITES = {"InsertStmt": "INSERT", "UpdateStmt": "UPDATE", "DeleteStmt": "DELETE"}
_WRITING_NODES = frozenset({*_WRITES, "MergeStmt"})
_CATALOGUE = "pg_catalog"


class Rule(StrEnum):
    """Why a statement is refused."""

    ONE_STATEMENT = "ONE_STATEMENT"
    KIND = "KIND"
    FUNCTION = "FUNCTION"
    RELATION = "RELATION"
    DEPTH = "DEPTH"
    GRANT = "GRANT"
    """The rights of the login in the database."""


class Refused(Exception):
    """The statement may not run. `word` is what offends, if it is one word."""

    def __init__(self, rule: Rule, problem: str, word: str = "") -> None:
        super().__init__(problem)
        self.rule = rule
        self.word = word


@dataclass(frozen=True, kw_only=True)
class Permits:
    """What the statements of a source may use."""

    schemas: Sequence[str] = ("public",)
    """Schemas whose tables can be read; names without a schema are those of the first."""
    tables: Set[str] = frozenset()
    """If there are any, the only tables that can be read, as `schema.table`."""
    writes: Set[str] = frozenset()
    """Tables that accept INSERT, UPDATE and DELETE, as `schema.table`."""
    functions: Set[str] = frozenset()
    """Names of functions that may be called, in lower case as the database has them."""
    refused_operators: Set[str] = frozenset()
    row_functions: Set[str] = frozenset()
    """Functions that `row.name` would call and that may not be called."""


@dataclass(frozen=True)
class Statement:
    """What a statement does that may run."""

    kind: str
    """Its first word, such as SELECT."""
    write_target: str = ""
    """The table that it changes; empty if it only reads."""

    @property
    def is_write(self) -> bool:
        return bool(self.write_target)


def check(sql: str, permits: Permits) -> Statement:
    """Refused unless the statement may run; NotSql if it is none."""
    try:
        statements = grammar.parse(sql)
        if len(statements) != 1:
            raise Refused(
                Rule.ONE_STATEMENT,
                f"this is {len(statements) or 'no'} statement{'s' * (len(statements) > 1)}; "
                "send one at a time",
            )
        return _Check(permits).statement(statements[0])
    except (grammar.TooComplex, RecursionError):
        raise Refused(
            Rule.DEPTH, "the statement nests too deeply; write it with fewer nested terms"
        ) from None


@dataclass
class _Scope:
    """Names that WITH has given to queries."""

    names: frozenset[str] = field(default_factory=frozenset)

    def having(self, names: Iterator[str] | Sequence[str]) -> _Scope:
        return _Scope(self.names | frozenset(names))


class _Check:
    def __init__(self, permits: Permits) -> None:
        self._permits = permits

    def statement(self, tree: Mapping[str, Any]) -> Statement:
        kind, body = next(iter(tree.items()))
        if kind in _WRITES:
            target = self._write_target(kind, body)
            self._walk(body, _Scope(), 0)
            return Statement(_WRITES[kind], target)
        if kind == "VariableShowStmt":
            return Statement("SHOW")
        if kind == "ExplainStmt":
            self._check_explained(body)
        elif kind != "SelectStmt":
            raise _wrong_kind(kind)
        self._walk(tree, _Scope(), 0)
        return Statement("EXPLAIN" if kind == "ExplainStmt" else "SELECT")

    def _check_explained(self, body: Mapping[str, Any]) -> None:
        inner = next(iter(body["query"]))
        if inner != "SelectStmt":
            raise _wrong_kind(inner)

    def _write_target(self, kind: str, body: Mapping[str, Any]) -> str:
        target = self._qualified(body["relation"])
        if target in self._permits.writes:
            return target
        known = ", ".join(sorted(self._permits.writes))
        raise Refused(
            Rule.KIND,
            f"{_WRITES[kind]} is not allowed on {_as_written(body['relation'])}: "
            + (f"this source accepts changes of {known}" if known else "this source is read-only"),
            target,
        )

    def _qualified(self, relation: Mapping[str, Any]) -> str:
        schema = relation.get("schemaname") or self._permits.schemas[0]
        return f"{schema}.{relation['relname']}"

    def _walk(self, node: Any, scope: _Scope, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise grammar.TooComplex
        if isinstance(node, list):
            for item in node:
                self._walk(item, scope, depth + 1)
        elif isinstance(node, dict):
            self._check_node(node, scope)
            inner = self._check_with(node, scope, depth)
            for key, value in node.items():
                if key != "withClause" and isinstance(value, dict | list):
                    if key in _WRITING_NODES:
                        raise _wrong_kind(key)
                    self._walk(value, inner, depth + 1)

    def _check_with(self, node: Mapping[str, Any], scope: _Scope, depth: int) -> _Scope:
        """Check the queries of WITH; return the scope of the statement after it."""
        clause = node.get("withClause")
        if not isinstance(clause, dict):
            return scope
        queries = [item["CommonTableExpr"] for item in clause["ctes"]]
        names = [query["ctename"] for query in queries]
        for place, query in enumerate(queries):
            seen = names if clause.get("recursive") else names[:place]
            self._walk(query, scope.having(seen), depth + 1)
        return scope.having(names)

    def _check_node(self, node: Mapping[str, Any], scope: _Scope) -> None:
        if "intoClause" in node:
            raise Refused(Rule.KIND, "SELECT INTO makes a table; leave INTO out", "INTO")
        if "lockingClause" in node:
            raise Refused(Rule.KIND, "FOR UPDATE and FOR SHARE lock rows; leave them out", "FOR")
        if "funcname" in node:
            self._check_function(_names(node["funcname"]))
        if "relname" in node:
            self._check_relation(node, scope)
        if "A_Expr" in node:
            self._check_operator(_names(node["A_Expr"].get("name", [])))
        if "RangeTableSample" in node:
            self._check_sampling(_names(node["RangeTableSample"]["method"]))
        if "ColumnRef" in node:
            self._check_fields(_names(node["ColumnRef"].get("fields", [])), first=1)
        if "A_Indirection" in node:
            self._check_fields(_names(node["A_Indirection"].get("indirection", [])), first=0)

    def _check_function(self, names: Sequence[str]) -> None:
        name, permits = names[-1], self._permits
        schema = names[-2] if len(names) > 1 else ""
        # A listed name means the same in every schema of the source.
        is_known = not schema or schema == _CATALOGUE or schema in permits.schemas
        if name not in permits.functions or not is_known:
            raise _refused_function(".".join(names))

    def _check_relation(self, node: Mapping[str, Any], scope: _Scope) -> None:
        schema, name = node.get("schemaname", ""), node["relname"]
        if (not schema and name in scope.names) or schema == "information_schema":
            return
        is_catalogue = schema == _CATALOGUE or (not schema and name.startswith("pg_"))
        if is_catalogue:
            if name not in READ_TABLES:
                raise Refused(
                    Rule.RELATION, f"{name} shows more than the schema of this database", name
                )
            return
        if node.get("catalogname") or (schema and schema not in self._permits.schemas):
            known = ", ".join(self._permits.schemas)
            raise Refused(
                Rule.RELATION, f"{schema}.{name} is not in this source; its schemas: {known}", name
            )
        if self._permits.tables and self._qualified(node) not in self._permits.tables:
            raise Refused(Rule.RELATION, f"this source has no table {name}", name)

    def _check_operator(self, names: Sequence[str]) -> None:
        if names and names[-1] in self._permits.refused_operators:
            raise _refused_function(f"the operator {names[-1]}")

    def _check_sampling(self, names: Sequence[str]) -> None:
        if names[-1] not in _SAMPLING:
            raise _refused_function(names[-1])

    def _check_fields(self, names: Sequence[str], *, first: int) -> None:
        """`row.name` calls a function if the row has no such column."""
        for name in names[first:]:
            if name in self._permits.row_functions:
                raise _refused_function(name)


def _as_written(relation: Mapping[str, Any]) -> str:
    names = (relation.get("schemaname"), relation["relname"])
    return ".".join(filter(None, names))


def _names(parts: Sequence[Mapping[str, Any]]) -> list[str]:
    return [part["String"]["sval"] for part in parts if "String" in part]


def _wrong_kind(kind: str) -> Refused:
    word = kind.removesuffix("Stmt").upper()
    return Refused(
        Rule.KIND,
        f"{word} is not allowed; this source runs SELECT, VALUES, TABLE, SHOW and EXPLAIN of them",
        word,
    )


def _refused_function(name: str) -> Refused:
    return Refused(
        Rule.FUNCTION,
        f"{name} is not a function that statements may call: it may change something or show what "
        "others do. An operator can add it to `functions` of this source",
        name,
    )
