"""What tables a login of PostgreSQL can read, and their columns and keys.

A table that the login cannot read does not exist here. Each row is one array in JSON, made by the
database.
"""

from collections.abc import Sequence

TABLE_COLUMNS: Sequence[tuple[str, str, str]] = (
    ("schema", "text", "text"),
    ("name", "text", "text"),
    ("kind", "text", "text"),
    ("rows", "int", "int8"),
    ("comment", "text", "text"),
)
SCHEMA_COLUMNS: Sequence[tuple[str, str, str]] = (*TABLE_COLUMNS, ("columns", "json", "jsonb"))

_FROM = """
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ANY($1::text[]) AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
  AND NOT c.relispartition
  AND (cardinality($2::text[]) = 0 OR n.nspname || '.' || c.relname = ANY($2::text[]))
  AND (has_table_privilege(c.oid, 'SELECT') OR has_any_column_privilege(c.oid, 'SELECT'))
"""
_FIELDS = """
n.nspname, c.relname,
CASE c.relkind WHEN 'v' THEN 'view' WHEN 'm' THEN 'view' WHEN 'f' THEN 'foreign' ELSE 'table' END,
CASE WHEN c.reltuples < 0 THEN NULL ELSE c.reltuples::int8 END,
coalesce(obj_description(c.oid, 'pg_class'), '')
"""
_COLUMNS = """
coalesce((SELECT jsonb_agg(jsonb_strip_nulls(jsonb_build_object(
  'name', a.attname,
  'type', format_type(a.atttypid, a.atttypmod),
  'nullable', NOT a.attnotnull,
  'default', pg_get_expr(d.adbin, d.adrelid),
  'generated', nullif(a.attidentity::text || a.attgenerated::text, '') IS NOT NULL,
  'primary_key', EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
    AND k.contype = 'p' AND a.attnum = ANY(k.conkey)),
  'unique', EXISTS (SELECT FROM pg_catalog.pg_constraint k WHERE k.conrelid = c.oid
    AND k.contype = 'u' AND k.conkey = ARRAY[a.attnum]),
  'references', (SELECT min(k.confrelid::regclass::text || '.' || f.attname)
    FROM pg_catalog.pg_constraint k
    JOIN pg_catalog.pg_attribute f ON f.attrelid = k.confrelid
      AND f.attnum = k.confkey[array_position(k.conkey, a.attnum)]
    WHERE k.conrelid = c.oid AND k.contype = 'f' AND a.attnum = ANY(k.conkey)),
  'comment', col_description(c.oid, a.attnum)
)) ORDER BY a.attnum)
FROM pg_catalog.pg_attribute a
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(c.oid, a.attnum, 'SELECT')), '[]')
"""
_MATCH = "AND (c.relname = $3 OR n.nspname || '.' || c.relname = $3)"
_ORDER = "ORDER BY array_position($1::text[], n.nspname::text), c.relname"

TABLES = f"SELECT jsonb_build_array({_FIELDS}) {_FROM} {_ORDER}"
ALL_SCHEMAS = f"SELECT jsonb_build_array({_FIELDS}, {_COLUMNS}) {_FROM} {_ORDER}"
ONE_SCHEMA = f"SELECT jsonb_build_array({_FIELDS}, {_COLUMNS}) {_FROM} {_MATCH} {_ORDER}"
