"""Worked examples of code, for models and people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Example(NamedTuple):
    title: str
    code: str


_PLAIN = (
    Example(
        "Return a result",
        """\
numbers = [3, 1, 2]
__result__ = {'sorted': sorted(numbers), 'mean': sum(numbers) / len(numbers)}
""",
    ),
    Example(
        "Log while it runs",
        """\
total = 0
for n in range(3):
    total += n
    debug(f'after {n}: {total}', 'INFO')
inspect_var('total', total)
__result__ = total
""",
    ),
    Example(
        "Wait for several things at once",
        """\
import asyncio

async def slow(n):
    await asyncio.sleep(0.01)
    return n * n

__result__ = await asyncio.gather(*(slow(n) for n in range(3)))
""",
    ),
    Example(
        "Read a file of the workspace",
        """\
from pathlib import Path

Path('notes.txt').write_text('one\\ntwo\\n')
__result__ = Path('notes.txt').read_text().split()
""",
    ),
)
_OF_DATABASE = (
    Example(
        "Analyse what users do (with a table user_activities)",
        """\
from collections import Counter
from datetime import datetime, timedelta

activities = await db_query(
    'SELECT user_id, action FROM user_activities WHERE timestamp > :since',
    {'since': datetime.now() - timedelta(days=7)},
)
debug(f'Analysing {len(activities)} activities', 'INFO')

users = Counter(activity['user_id'] for activity in activities)
__result__ = {
    'total_activities': len(activities),
    'unique_users': len(users),
    'most_active_users': users.most_common(10),
    'actions': Counter(activity['action'] for activity in activities),
    'analysed_at': datetime.now().isoformat(),
}
""",
    ),
    Example(
        "Extract knowledge from documents (with a table documents that can be changed)",
        """\
import re
from collections import Counter

documents = await db_query(
    'SELECT id, title, content FROM documents WHERE processed = false LIMIT 20'
)
extracted = []
for document in documents:
    text = document['content']
    words = re.findall(r'\\w+', text.lower())
    extracted.append({
        'document_id': document['id'],
        'title': document['title'],
        'entities': {
            'emails': re.findall(r'[\\w.+-]+@[\\w-]+(?:\\.[\\w-]+)+', text),
            'phones': re.findall(r'\\b\\d{3}[-.]?\\d{3}[-.]?\\d{4}\\b', text),
            'urls': re.findall(r'https?://\\S+', text),
        },
        'keywords': [word for word, _ in Counter(words).most_common(10) if len(word) > 3],
        'word_count': len(words),
    })
    await db_query('UPDATE documents SET processed = true WHERE id = :id', {'id': document['id']})
    debug(f'Processed document {document["id"]}')

__result__ = {'processed_documents': len(documents), 'extracted_knowledge': extracted}
""",
    ),
    Example(
        "Debug a pipeline step by step (with a table pipeline_input)",
        """\
try:
    records = await db_query('SELECT * FROM pipeline_input LIMIT 5')
    inspect_var('records', records)

    processed = []
    for record in records:
        length = len(record['content'] or '')
        if not length:
            debug(f'Record {record["id"]} has no content', 'WARNING')
        processed.append({'id': record['id'], 'content_length': length})
    inspect_var('processed', processed)

    valid = [record for record in processed if record['content_length']]
    __result__ = {
        'input_count': len(records),
        'processed_count': len(processed),
        'valid_output_count': len(valid),
    }
except DatabaseError as error:
    debug(f'The input cannot be read: {error}', 'ERROR')
    __result__ = {'error': str(error)}
__result__['debug_summary'] = get_debug_info()
""",
    ),
)


def examples(has_data: bool) -> Sequence[Example]:
    """Those of databases are for sessions with a data source."""
    return [*_PLAIN, *_OF_DATABASE] if has_data else _PLAIN
