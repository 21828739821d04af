"""Programs as agents write them: top-level await, a database, `datetime` without an import."""

from __future__ import annotations

from tests.seeds.document import assigned, blocks

DATABASE = """
async def db_query(sql, params=None):
    if sql.startswith('UPDATE'):
        return []
    if 'user_activities' in sql:
        return [{'user_id': n % 3, 'action': 'read', 'timestamp': n} for n in range(9)]
    if 'documents' in sql:
        text = 'mail ada@example.org or call 555-123-4567, see http://example.org'
        return [{'id': n, 'title': 't', 'content': text} for n in range(2)]
    if 'pipeline_input' in sql:
        return [{'id': 1, 'content': 'abc'}, {'id': 2, 'content': ''}]
    return [{'id': 1, 'name': 'Ada', 'email': 'ada@example.org'}, {'id': 2, 'email': ''}]
"""

SEED_PROGRAMS = {
    name: assigned(blocks("003")[number].text)
    for name, number in {
        "execute": 2,
        "debug": 4,
        "analysis": 8,
        "extraction": 9,
        "pipeline": 10,
    }.items()
}
