"""Programs to begin with: processors of a pipeline, and the analysis of a table."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from sandboxd_client.errors import InvalidRequestError

MAX_DATA_BYTES = 256 << 10
"""Most bytes of data that travel with the code."""

_PROCESSOR = """\
# Processor {name}: {what}.
debug('Starting {name}', 'INFO')


def transform(data):
    # Add your transformation logic here
    return data


def process(records):
    processed, failed = [], []
    for number, record in enumerate(records):
        try:
            processed.append(transform(record))
        except Exception as error:
            debug(f'Record {{number}} failed: {{error}}', 'ERROR')
            failed.append({{'record': number, 'error': str(error)}})
    return processed, failed


records = {records}
processed, failed = process(records)
debug(f'Processed {{len(processed)}} of {{len(records)}} records', 'INFO')

__result__ = {{
    'processor': {name!r},
    'processed': processed,
    'failed': failed,
}}
"""

_KINDS: Mapping[str, tuple[str, Sequence[object]]] = {
    "data_processor": (
        "changes each record of a list",
        ({"id": 1, "value": 10}, {"id": 2, "value": 20}),
    ),
    "text_processor": (
        "changes each text of a list",
        ("The first text.", "And the second one."),
    ),
    "validator": (
        "reports the records that raise an exception",
        ({"id": 1, "email": "ada@example.org"}, {"id": 2, "email": ""}),
    ),
}

PROCESSOR_KINDS = tuple(_KINDS)
"""Names of the templates; another name gets the one for records."""

ANALYSIS = """\
import json
import statistics
from collections import Counter


def column(values):
    known = [value for value in values if value is not None and value != '']
    numbers = [v for v in known if isinstance(v, (int, float)) and not isinstance(v, bool)]
    found = {'count': len(known), 'missing': len(values) - len(known)}
    if known and len(numbers) == len(known):
        found |= {
            'type': 'number',
            'min': min(numbers),
            'max': max(numbers),
            'mean': statistics.fmean(numbers),
            'median': statistics.median(numbers),
            'stdev': statistics.stdev(numbers) if len(numbers) > 1 else 0.0,
            'sum': sum(numbers),
        }
    else:
        texts = Counter(str(value) for value in known)
        found |= {'type': 'text', 'unique': len(texts), 'most_common': texts.most_common(5)}
    return found


def analyze(rows):
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {
        'rows': len(rows),
        'columns': {name: column([row.get(name) for row in rows]) for name in names},
    }


__result__ = analyze(rows)
"""


def processor_template(name: str = "data_processor") -> str:
    """A processor to modify: replace the line that says where the logic belongs.

    Example:
        from sandboxd_client.integrations.code_templates import processor_template

        code = processor_template("data_processor").replace(
            "# Add your transformation logic here", "return {**data, 'value': data['value'] * 2}"
        )
        print(sandbox.code.run(code).result)
    """
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_ -]{0,63}", name):
        raise InvalidRequestError(
            "name: a processor's name has letters, digits, spaces, `_` and `-`, at most 64"
        )
    what, records = _KINDS.get(name, _KINDS["data_processor"])
    return _PROCESSOR.format(name=name, what=what, records=repr(list(records)))


def analysis_of_rows(rows: Sequence[Mapping[str, object]]) -> str:
    """Code whose result describes each column of a table.

    Example:
        from sandboxd_client.integrations.code_templates import analysis_of_rows

        code = analysis_of_rows([{"city": "Oslo", "sold": 3}, {"city": "Bergen", "sold": 5}])
        print(sandbox.code.run(code).result["columns"]["sold"]["mean"])
    """
    try:
        text = json.dumps([dict(row) for row in rows], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidRequestError(
            f"rows: a table is a list of objects that JSON can express ({error})"
        ) from None
    if len(text) > MAX_DATA_BYTES:
        raise InvalidRequestError(
            f"rows: at most {MAX_DATA_BYTES} bytes travel with the code; write a larger table to a "
            "file of the sandbox, and read it there"
        )
    return f"import json\n\nrows = json.loads({text!r})\n{ANALYSIS}"


def analysis_of_query(sql: str, params: Mapping[str, object] | None = None) -> str:
    """Code whose result describes each column of what a query of the database returns."""
    return f"rows = await db_query({sql!r}, {dict(params or {})!r})\n{ANALYSIS}"
