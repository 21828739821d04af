"""What a PostgreSQL database says about itself: its functions, its types, the rights of a login."""

from __future__ import annotations

import re
from collections.abc import Sequence, Set
from typing import NamedTuple

FUNCTIONS = """
SELECT p.proname,
  bool_and(n.nspname = 'pg_catalog' AND p.provolatile <> 'v' AND p.prokind <> 'p')
FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
GROUP BY p.proname
"""
OPERATORS = """
SELECT DISTINCT o.oprname FROM pg_catalog.pg_operator o
JOIN pg_catalog.pg_proc p ON p.oid = o.oprcode
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
WHERE n.nspname <> 'pg_catalog' AND (p.provolatile = 'v' OR p.prosecdef)
"""
ROW_FUNCTIONS = """
SELECT DISTINCT p.proname FROM pg_catalog.pg_proc p
JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_type t ON t.oid = p.proargtypes[0]
WHERE n.nspname <> 'pg_catalog' AND p.pronargs - p.pronargdefaults <= 1 AND p.pronargs >= 1
  AND t.typtype IN ('c', 'p')
"""
TYPES = "SELECT oid, typname, typcategory, typelem FROM pg_catalog.pg_type"
LOGIN = """
SELECT r.rolsuper, r.rolcreaterole, r.rolbypassrls, r.rolreplication,
  coalesce((SELECT string_agg(g.rolname, ', ' ORDER BY g.rolname) FROM pg_catalog.pg_roles g
    WHERE g.rolname = ANY('{pg_read_server_files,pg_write_server_files,pg_execute_server_program,
      pg_signal_backend,pg_write_all_data,pg_checkpoint,pg_maintain,pg_create_subscription}')
    AND pg_has_role(r.oid, g.oid, 'MEMBER')), ''),
  (SELECT count(*) FROM pg_catalog.pg_roles g WHERE g.rolsuper AND g.oid <> r.oid
    AND pg_has_role(r.oid, g.oid, 'MEMBER')),
  (SELECT count(*) FROM pg_catalog.pg_class c WHERE c.relkind IN ('r', 'p', 'v', 'f')
    AND c.relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
    AND has_table_privilege(c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE')),
  (SELECT count(*) FROM pg_catalog.pg_namespace n WHERE n.nspname !~ '^pg_'
    AND has_schema_privilege(n.oid, 'CREATE')),
  (SELECT count(*) FROM pg_catalog.pg_proc p
    WHERE p.prosecdef AND p.pronamespace <> 'pg_catalog'::regnamespace
    AND has_function_privilege(p.oid, 'EXECUTE')),
  (SELECT count(*) FROM pg_catalog.pg_extension e WHERE e.extname IN ('dblink', 'postgres_fdw'))
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""
_HARMLESS_THOUGH_VOLATILE = frozenset(
    {
        *("random", "clock_timestamp", "timeofday", "gen_random_uuid", "pg_relation_size"),
        *("pg_table_size", "pg_total_relation_size", "pg_indexes_size", "pg_database_size"),
    }
)
_REVEALING = re.compile(
    r"""(?x)
      .*_to_xml(schema)?(_and_xmlschema)? | .*_to_xml_and_xmlschema | pg_stat_get_.*
    | pg_show_all_.* | pg_(prepared_.*|cursor|config|current_logfile|lock_status|hba_.*|ident_.*)
    | inet_(server|client)_(addr|port) | txid_current | pg_current_xact_id | pg_ls_.* | pg_read_.*
    | pg_get_(functiondef|function_sqlbody) | ts_(stat|rewrite)
    """
)
"""Functions that take the text of a statement, or show files, settings or what others do."""


class LoginFacts(NamedTuple):
    """The rights of a login."""

    is_superuser: bool
    creates_roles: bool
    bypasses_policies: bool
    replicates: bool
    strong_roles: str
    """Roles of the server that reach beyond tables, joined with commas."""
    superusers: int
    """Superusers that it can become."""
    writable_tables: int
    creatable_schemas: int
    definer_functions: int
    """Functions with the rights of others that it may call."""
    linking_extensions: int

    @classmethod
    def read(cls, row: Sequence[str | None]) -> LoginFacts:
        superuser, creates, bypasses, replicates = (value == "t" for value in row[:4])
        numbers = [int(value or 0) for value in row[5:10]]
        return cls(superuser, creates, bypasses, replicates, row[4] or "", *numbers)

    @property
    def problem(self) -> str:
        """Why this login must not be used; empty if it may."""
        if self.is_superuser or self.superusers:
            return "its login is a superuser or can become one"
        if self.strong_roles:
            return f"its login is a member of {self.strong_roles}"
        if self.creates_roles or self.replicates:
            return "its login may create roles or replicate"
        return ""

    def remarks(self, *, is_writer: bool) -> list[str]:
        """What an operator should know: the database does not stop these by itself."""
        found = [
            (self.bypasses_policies, "its login bypasses row-level security"),
            (
                not is_writer and self.writable_tables,
                f"its login may write to {self.writable_tables} tables: the read-only transaction "
                "and the check hold, the grants do not",
            ),
            (self.creatable_schemas, f"its login may create in {self.creatable_schemas} schemas"),
            (
                self.definer_functions,
                f"{self.definer_functions} functions run with the rights of others",
            ),
            (self.linking_extensions, "dblink or postgres_fdw is installed"),
        ]
        return [text for applies, text in found if applies]


def callable_functions(rows: Sequence[Sequence[str | None]], added: Set[str]) -> frozenset[str]:
    """Names of functions that statements may call: all versions of the name belong to PostgreSQL
    and none is volatile, which all functions are that change something."""
    names = {name for name, is_harmless in rows if name and is_harmless == "t"}
    plain = {name for name in names if not _REVEALING.fullmatch(name)}
    return frozenset(plain | _HARMLESS_THOUGH_VOLATILE | added)
