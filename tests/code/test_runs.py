"""Runs of code in a context: values, output, errors, interrupts. Over a stand-in for PID 1."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator

import pytest

from sandboxd.code.events import Answer, Display, Variables
from sandboxd.guest.code.protocol import Statuses
from tests.code.pythons import PYTHONS
from tests.code.rig import SIGHARD, ContextLost, ContextRig, Zygote
from tests.code.seed_programs import DATABASE, SEED_PROGRAMS


@pytest.fixture(scope="module", params=PYTHONS, ids=[name for name, _ in PYTHONS])
def zygote(request: pytest.FixtureRequest) -> Iterator[Zygote]:
    made = Zygote(request.param[1])
    yield made
    made.close()


def media(shown: Display) -> dict[str, bytes]:
    return {one.media_type: one.data for one in shown.data}


# --- values and state ---


def test_the_value_of_the_last_expression(context: ContextRig) -> None:
    """Its text is the value, and it is the result as JSON."""
    outcome = context.run("x = [1, 'a']\nx")
    assert (outcome.status, outcome.value, outcome.result) == (Statuses.OK, "[1, 'a']", [1, "a"])


def test_no_expression_no_value(context: ContextRig) -> None:
    """Statements have no value; None has none either."""
    assert context.run("x = 1").events == []
    assert context.run("None").events == []


def test_result_comes_before_the_last_expression(context: ContextRig) -> None:
    """`__result__` is the result; it does not stay for the next run."""
    assert context.run("__result__ = {'a': 1}\n5").result == {"a": 1}
    assert context.run("x = 1").result is None


def test_everything_survives(context: ContextRig) -> None:
    """Variables, imports, functions and classes stay for the next run."""
    context.run("import math\nx = 2\ndef f(n): return n * x\nclass A: pass")
    assert context.run("f(3) + math.floor(1.5) + len(A.__name__)").value == "8"


def test_contexts_share_nothing(zygote: Zygote) -> None:
    """A variable of one context is not in another; random numbers differ."""
    first, second = zygote.context(), zygote.context()
    first.run("x = 1")
    assert second.run("'x' in globals()").value == "False"
    code = "import random\nrandom.random()"
    assert first.run(code).value != second.run(code).value


def test_top_level_await(context: ContextRig) -> None:
    """`await` works at the top level, tasks of earlier runs too, in one event loop."""
    context.run("import asyncio\nasync def f(n):\n    await asyncio.sleep(0)\n    return n")
    assert context.run("await f(3)").value == "3"
    context.run("task = asyncio.ensure_future(f(4))\nawait asyncio.sleep(0)")
    assert context.run("await task").value == "4"
    assert context.run("async for x in (i async for i in f2()):\n    pass").status == 1


def test_asyncio_run_works_in_plain_code(context: ContextRig) -> None:
    """Code without a top-level await may run loops of its own."""
    code = "import asyncio\nasync def f(): return 1\nx = asyncio.run(f())"
    assert context.run(code).status == Statuses.OK
    assert context.run("await f()").value == "1"


@pytest.mark.parametrize("name", SEED_PROGRAMS)
def test_programs_of_the_documentation(context: ContextRig, name: str) -> None:
    """Programs as agents write them run unchanged."""
    context.run(DATABASE)
    outcome = context.run(SEED_PROGRAMS[name])
    assert outcome.status == Statuses.OK, outcome.events
    assert outcome.result


def test_names_that_are_given(zygote: Zygote) -> None:
    """`datetime`, `json` and `re` need no import, are in no listing, and can be hidden; a policy
    gives only what it allows."""
    context = zygote.context()
    code = "[type(datetime.utcnow()).__name__, json.loads('[1]'), re.findall('b', 'abc')]"
    assert context.run(code).result == ["datetime", [1], ["b"]]
    answer = context.run(mode="state").of(Answer)[0]
    assert isinstance(answer.body, Variables)
    assert answer.body.variables == []
    assert context.run("import datetime\ndatetime.date(2024, 1, 2).year").value == "2024"
    narrow = zygote.context(policy={"name": "narrow", "allowed_modules": ["re"]})
    assert narrow.run("re.escape('a')").value == "'a'"
    assert narrow.run("json").error.type == "NameError"


def test_the_main_module(context: ContextRig) -> None:
    """Code is __main__, so that pickle and dataclasses find its classes."""
    context.run("import pickle\nclass A:\n    n = 1")
    assert context.run("pickle.loads(pickle.dumps(A())).n").value == "1"
    assert context.run("__name__").value == "'__main__'"


def test_the_state_of_a_context(context: ContextRig) -> None:
    """Variables with type, summary, size and length; modules and functions too, helpers not."""
    context.run("x = [1, 2]\ntext = 'a' * 1000\ndef f(): pass\nimport json\n_hidden = 1")
    answer = context.run(mode="state").of(Answer)[0]
    assert isinstance(answer.body, Variables)
    found = {one.name: one for one in answer.body.variables}
    assert set(found) == {"x", "text", "f", "json", "_hidden"}
    assert (found["x"].type, found["x"].value, found["x"].length) == ("list", "[1, 2]", 2)
    assert len(found["text"].value) <= 210
    assert found["text"].size_bytes > 1000
    assert found["f"].value == "function f"


def test_a_question_is_not_a_run(context: ContextRig) -> None:
    """Files are named after runs; a state or a check does not count."""
    context.run("x = 1")
    context.run(mode="state")
    context.run("y", mode="check")
    assert context.run("1 / 0").error.frames[0].file == "<run 2>"


# --- output ---


def test_output_of_everything(context: ContextRig) -> None:
    """print, raw descriptors, children and C code; both streams apart."""
    code = (
        "import os, sys, ctypes, subprocess\n"
        "print('python')\n"
        "os.write(1, b'raw\\n')\n"
        "subprocess.run(['echo', 'child'])\n"
        "ctypes.CDLL(None).puts(b'c code')\n"
        "print('err', file=sys.stderr)\n"
        "print('no newline', end='')"
    )
    outcome = context.run(code)
    assert outcome.stdout == b"python\nraw\nchild\nc code\nno newline"
    assert outcome.stderr == b"err\n"


def test_output_is_live(context: ContextRig) -> None:
    """A line is there while the code goes on."""
    run = context.start("print('now')\nimport time\ntime.sleep(600)")
    run.until_output(b"now\n")
    assert context.interrupt(run).status == Statuses.INTERRUPTED


def test_large_output(context: ContextRig) -> None:
    """A megabyte passes whole, and the events of the run with it."""
    outcome = context.run("for i in range(10000):\n    print('x' * 100)\n'end'")
    assert len(outcome.stdout) == 1_010_000
    assert outcome.value == "'end'"


def test_displays_keep_their_place(context: ContextRig) -> None:
    """No display is read before a line that was printed earlier, or after one printed later."""
    outcome = context.run("for i in range(90):\n    print(i)\n    display(i)")
    seen: list[str] = []
    for piece in outcome.order:
        if isinstance(piece, bytes):
            seen += [f"line {line}" for line in piece.decode().split()]
        elif isinstance(piece, Display):
            seen.append("display " + media(piece)["text/plain"].decode())
    expected = [word for i in range(90) for word in (f"line {i}", f"display {i}")]
    assert seen == expected


# --- helpers ---


def test_a_query_without_a_data_source_says_how_to_get_one(context: ContextRig) -> None:
    """As an error that code can catch as it does with a database; names of its own win."""
    outcome = context.run("db_query('SELECT 1')")
    assert "data_sources=" in outcome.error.message
    caught = "try:\n    db_tables()\nexcept DatabaseError as error:\n    print(error)"
    assert b"data_sources=" in context.run(caught).stdout
    assert context.run("def db_query(sql): return 7\ndb_query('SELECT 1')").value == "7"


def test_debug_levels(context: ContextRig) -> None:
    """Levels in any case; an unknown one is an error that lists them."""
    outcome = context.run("debug('a')\ndebug('b', 'info')\ndebug('c', 'WARN')\ndebug(1, 'ERROR')")
    assert [(log.level, log.message) for log in outcome.logs] == [
        ("DEBUG", "a"),
        ("INFO", "b"),
        ("WARNING", "c"),
        ("ERROR", "1"),
    ]
    assert "DEBUG, INFO" in context.run("debug('x', 'LOUD')").error.message


def test_inspect_var(context: ContextRig) -> None:
    """The log line has name, type and summary."""
    log = context.run("inspect_var('data', {'a': [1]})").logs[0]
    assert (log.variable, log.type, log.value) == ("data", "dict", "{'a': [1]}")


def test_get_debug_info(context: ContextRig) -> None:
    """What this run has logged; it is JSON, and begins anew with each run."""
    context.run("debug('old')")
    info = context.run("debug('x', 'INFO')\ninspect_var('n', [1])\nget_debug_info()").result
    assert info["levels"] == {"INFO": 1, "DEBUG": 1}
    assert info["logs"][0]["message"] == "x"
    assert info["variables"]["n"] == {"type": "list", "value": "[1]", "length": 1}


def test_logging_is_reported(context: ContextRig) -> None:
    """Lines of the `logging` module are in the log, and basicConfig still works."""
    code = "import logging\nlogging.basicConfig(level='INFO')\nlogging.info('hello %s', 'you')"
    outcome = context.run(code)
    assert [(log.level, log.message) for log in outcome.logs] == [("INFO", "hello you")]
    assert b"hello you" in outcome.stderr


def test_many_log_lines_are_counted(context: ContextRig) -> None:
    """2000 lines are kept; the rest is counted."""
    from sandboxd.code.events import LeftOut

    outcome = context.run("for i in range(2500): debug(i)")
    assert len(outcome.logs) == 2000
    assert outcome.of(LeftOut)[0].logs == 500


def test_helpers_can_be_shadowed(context: ContextRig) -> None:
    """They are builtins: a variable of the same name hides one, `del` brings it back."""
    context.run("debug = 5")
    assert context.run("debug").value == "5"
    assert context.run("del debug\ndebug('x')").logs[0].message == "x"


# --- errors ---


def test_an_error_has_the_frames_of_the_user(context: ContextRig) -> None:
    """Type, message, frames with file, line, function and source; none of the runner's."""
    context.run("def f(n):\n    return 1 / n")
    error = context.run("x = 1\nf(0)").error
    assert (error.type, error.message) == ("ZeroDivisionError", "division by zero")
    frames = [(one.file, one.line, one.function, one.source) for one in error.frames]
    assert frames == [
        ("<run 2>", 2, "<module>", "f(0)"),
        ("<run 1>", 2, "f", "return 1 / n"),
    ]
    assert error.traceback.splitlines()[-1] == "ZeroDivisionError: division by zero"


def test_frames_of_libraries_are_counted(context: ContextRig) -> None:
    """The innermost frame is kept, others of libraries are a number."""
    error = context.run("import json\njson.loads('{')").error
    assert error.frames[0].source == "json.loads('{')"
    assert error.frames[0].left_out_frames > 0
    assert len(error.frames) == 2


def test_causes(context: ContextRig) -> None:
    """`raise from` and an exception while handling another are a chain, of 8 at most."""
    code = "try:\n    1 / 0\nexcept ZeroDivisionError as e:\n    raise ValueError('no') from e"
    error = context.run(code).error
    assert [error.type, *(one.type for one in error.causes)] == ["ValueError", "ZeroDivisionError"]
    code = "e = None\nfor i in range(20):\n    n = KeyError(i); n.__cause__ = e; e = n\nraise e"
    assert len(context.run(code).error.causes) == 7


def test_a_syntax_error(context: ContextRig) -> None:
    """Line, source and a caret."""
    error = context.run("x = 1\ny = = 2").error
    assert (error.type, error.frames[-1].line) == ("SyntaxError", 2)
    assert error.traceback.splitlines()[-2].strip() == "^"
    assert context.run("return 5").error.type == "SyntaxError"


@pytest.mark.parametrize(
    ("code", "status"), [("exit()", 0), ("raise SystemExit(0)", 0), ("quit(3)", 1)]
)
def test_exit_ends_the_run_only(context: ContextRig, code: str, status: int) -> None:
    """exit() ends a run, not a context; a code other than 0 is an error."""
    outcome = context.run("import sys\nx = 1\n" + code + "\nx = 2")
    assert outcome.status == status
    assert context.run("x").value == "1"


def test_deep_recursion_is_an_error(context: ContextRig) -> None:
    """Its traceback is bounded, and the context goes on."""
    error = context.run("def f(): f()\nf()").error
    assert error.type == "RecursionError"
    assert len(error.frames) <= 200
    assert context.run("1").value == "1"


# --- JSON ---


@pytest.mark.parametrize(
    ("code", "result", "what"),
    [
        ("float('nan')", None, "NaN to null"),
        ("float('-inf')", None, "infinity to null"),
        ("2 ** 60", 2**60, "int beyond 2**53"),
        ("{3}", [3], "set to list"),
        ("(1, 2)", [1, 2], "tuple to list"),
        ("b'ab'", "YWI=", "bytes to base64 text"),
        ("__import__('datetime').datetime(2024, 1, 2)", "2024-01-02T00:00:00", "to ISO text"),
        ("__import__('datetime').timedelta(hours=1)", 3600.0, "to seconds"),
        ("__import__('decimal').Decimal('1.10')", "1.10", "Decimal to text"),
        ("__import__('pathlib').Path('/a')", "/a", "to text"),
        ("__import__('uuid').UUID(int=1)", "00000000-0000-0000-0000-000000000001", "UUID to text"),
        ("__import__('collections').OrderedDict(a=1)", {"a": 1}, "OrderedDict to object"),
        ("__import__('collections').namedtuple('P', 'x y')(1, 2)", [1, 2], "P to list"),
        ("__import__('dataclasses').make_dataclass('D', ['x'])(5)", {"x": 5}, "D to object"),
    ],
)
def test_what_json_cannot_express_is_noted(
    context: ContextRig, code: str, result: object, what: str
) -> None:
    """Each conversion is reported with its place in the value."""
    outcome = context.run("__result__ = {'rows': [0, " + code + "]}")
    assert outcome.result == {"rows": [0, result]}
    assert what in outcome.conversions["$.rows[1]"]


def test_keys_and_objects_become_text(context: ContextRig) -> None:
    """Keys that are no text, and objects that are nothing else."""
    outcome = context.run(
        "class A:\n    def __str__(self): return 'an A'\n__result__ = {1: A(), None: True}"
    )
    assert outcome.result == {"1": "an A", "null": True}
    assert outcome.conversions["$.1"] == "A to text"


def test_cycles_and_depth(context: ContextRig) -> None:
    """A value that contains itself, and one that is too deep, end in null, with a note."""
    outcome = context.run("x = [1]\nx.append(x)\n__result__ = x")
    assert outcome.result == [1, None]
    assert "contains it" in outcome.conversions["$[1]"]
    outcome = context.run("x = []\nfor _ in range(100): x = [x]\n__result__ = x")
    assert "deeper than 32" in next(iter(outcome.conversions.values()))


@pytest.mark.parametrize(
    "code",
    [
        "'x' * (2 << 20)",
        "list(range(10 ** 6))",
        "['x' * 1000] * 2000",
        "[[[0] * 1000] * 1000] * 1000",
    ],
)
def test_a_result_that_is_too_large_is_left_out(context: ContextRig, code: str) -> None:
    """Its place says why; the run itself is fine."""
    from sandboxd.code.events import Result

    outcome = context.run("__result__ = " + code)
    found = outcome.of(Result)[0]
    assert (outcome.status, found.json, found.truncated) == (Statuses.OK, "", True)
    assert "left out" in found.conversions[-1].what


def test_results_are_valid_json(context: ContextRig) -> None:
    """Texts with quotes, control characters and lone surrogates."""
    outcome = context.run("__result__ = ['\"', '\\n\\x00\\u2028', '\\ud800', 'ü😀']")
    from sandboxd.code.events import Result

    assert json.loads(outcome.of(Result)[0].json) == ['"', "\n\x00\u2028", "?", "ü😀"]


# --- displays ---


def test_the_display_protocol(context: ContextRig) -> None:
    """Representations that the class offers, each under its media type."""
    code = (
        "class A:\n"
        "    def __repr__(self): return 'plain'\n"
        "    def _repr_html_(self): return '<b>x</b>'\n"
        "    def _repr_markdown_(self): return '*x*'\n"
        "    def _repr_png_(self): return b'png'\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "    def _repr_json_(self): return {'a': 1}\n"
        "    def _repr_mimebundle_(self, **k): return {'text/x-own': 'own'}\n"
        "display(A())\n"
    )
    assert media(context.run(code).displays[0]) == {
        "text/plain": b"plain",
        "text/html": b"<b>x</b>",
        "text/markdown": b"*x*",
        "image/png": b"png",
        "image/svg+xml": b"<svg/>",
        "application/json": b'{"a": 1}',
        "text/x-own": b"own",
    }


def test_hostile_representations(context: ContextRig) -> None:
    """Methods that raise, never end, or return something else leave the other ones."""
    code = (
        "class A:\n"
        "    def __repr__(self): raise ValueError\n"
        "    def _repr_html_(self):\n        while True: pass\n"
        "    def _repr_markdown_(self): return 5\n"
        "    def _repr_latex_(self): exit()\n"
        "    def _repr_svg_(self): return '<svg/>'\n"
        "a = A()\na"
    )
    outcome = context.run(code)
    assert outcome.status == Statuses.OK
    assert "raised ValueError" in outcome.value
    assert context.run("1").value == "1"


def test_a_display_that_is_too_large_is_left_out(context: ContextRig) -> None:
    """10 MB of HTML: the text is there, and what was left out is named."""
    code = "class A:\n    def _repr_html_(self): return 'x' * 10**7\ndisplay(A())"
    shown = context.run(code).displays[0]
    assert shown.left_out == ["text/html"]
    assert set(media(shown)) == {"text/plain"}
    assert len(context.run("'x' * 10**7").value) <= 1 << 20


def test_many_displays_are_counted(context: ContextRig) -> None:
    """100 displays are kept; the rest is counted."""
    from sandboxd.code.events import LeftOut

    outcome = context.run("for i in range(120): display(i)")
    assert len(outcome.displays) == 100
    assert outcome.of(LeftOut)[0].displays == 20


def test_instances_cannot_offer_representations(context: ContextRig) -> None:
    """Only methods of the class count, as for other special methods."""
    code = "class A: pass\na = A()\na._repr_html_ = lambda: 'x'\ndisplay(a)"
    assert set(media(context.run(code).displays[0])) == {"text/plain"}


# --- interrupts ---

BUSY = {
    "loop": "while True: pass",
    "sleep": "import time\ntime.sleep(600)",
    "lock": "import threading\nl = threading.Lock()\nl.acquire()\nl.acquire()",
    "join": "import threading\ne = threading.Event()\n"
    "t = threading.Thread(target=e.wait, daemon=True)\nt.start()\nt.join()",
    "child": "import subprocess\nsubprocess.run(['sleep', '600'])",
    "regex": "import re\nre.match('(a+)+$', 'a' * 40 + 'b')",
    "await": "import asyncio\nawait asyncio.sleep(600)",
    "gather": "import asyncio\nawait asyncio.gather(*(asyncio.sleep(600) for _ in range(5)))",
    "except Exception": "while True:\n try:\n  while True: pass\n except Exception: pass",
    "SIG_IGN": "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass",
    "own handler": "import signal\nsignal.signal(signal.SIGINT, lambda *a: None)\nwhile True: pass",
    "blocked": "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])\n"
    "while True: pass",
    "swallowed cancel": "import asyncio\nasync def f():\n    while True:\n        try:\n"
    "            await asyncio.sleep(600)\n        except asyncio.CancelledError: pass\nawait f()",
    "endless repr": "class A:\n    def __repr__(self):\n        while True: pass\nrepr(A())",
    "in a display": "while True: display(1)",
    "in a log": "while True: debug(1)",
    "output": "while True: print('x' * 1000)",
}


@pytest.mark.parametrize("name", BUSY)
def test_an_interrupt_keeps_the_variables(context: ContextRig, name: str) -> None:
    """Code that runs, waits or resists is interrupted; the context goes on with its variables."""
    context.run("kept = 41")
    run = context.start("print('go')\n" + BUSY[name])
    run.until_output(b"go")
    outcome = context.interrupt(run)
    assert outcome.status == Statuses.INTERRUPTED, outcome.events
    assert not any("cannot be read" in note for note in outcome.notes)
    assert context.run("kept + 1").value == "42"


def test_an_interrupted_await_shows_where(context: ContextRig) -> None:
    """The error has the lines of the coroutines that waited."""
    context.run("import asyncio\nasync def wait():\n    await asyncio.sleep(600)")
    call = "asyncio.get_running_loop().call_later(0.05, print, 'waiting')"
    run = context.start(f"{call}\nawait wait()")
    run.until_output(b"waiting")
    error = context.interrupt(run).error
    assert error.type == "KeyboardInterrupt"
    assert any(one.function == "wait" for one in error.frames)


def test_an_interrupt_of_an_idle_context_does_nothing(context: ContextRig) -> None:
    """Neither now nor in the next run."""
    context.run("x = 1")
    for _ in range(3):
        context.signal(signal.SIGINT)
        context.signal(SIGHARD)
    assert context.run("import time\ntime.sleep(0.05)\nx").value == "1"


def test_interrupts_between_runs_hit_neither(context: ContextRig) -> None:
    """A signal that comes while a run ends or begins ends at most that run."""
    for turn in range(60):
        run = context.start(f"x = {turn}\nx")
        context.signal(signal.SIGINT)
        assert run.wait().status in (Statuses.OK, Statuses.INTERRUPTED)
        assert context.run("1 + 1").value == "2"


def test_raising_keyboard_interrupt_is_not_an_interrupt(context: ContextRig) -> None:
    """Code that raises it itself has raised."""
    assert context.run("raise KeyboardInterrupt").status == Statuses.RAISED


def test_an_interrupt_while_nobody_reads(context: ContextRig) -> None:
    """Code that is stuck on a full pipe of events can be interrupted, and no record is torn."""
    run = context.start("print('go')\nwhile True: debug('x' * 9000)")
    time.sleep(0.3)  # PID 1 does not read; the pipe is full long before
    context.signal(signal.SIGINT)
    outcome = run.wait()
    assert outcome.status == Statuses.INTERRUPTED
    assert not any("cannot be read" in note for note in outcome.notes)


# --- hostile code ---

HOSTILE = {
    "closes 1 and 2": "import os\nos.close(1)\nos.close(2)",
    "replaces 1": "import os\nos.dup2(os.open('/dev/null', 1), 1)",
    "closes sys.stdout": "import sys\nsys.stdout.close()\nsys.stderr.close()",
    "replaces sys.stdout": "import sys\nsys.stdout = sys.stderr = None",
    "a stdout that raises": "import sys\nclass S:\n    def write(self, t): raise ValueError\n"
    "    def flush(self): raise SystemExit\nsys.stdout = S()",
    "nonblocking stdout": "import os\nos.set_blocking(1, False)",
    "closes stdin": "import sys, os\nsys.stdin.close()\nos.close(0)",
    "replaces print": "import builtins\nbuiltins.print = None",
    "replaces builtins": "import builtins\n"
    "for n in ('len', 'repr', 'str', 'type', 'isinstance', 'getattr', 'compile', 'eval', 'exec',\n"
    "          'range', 'list', 'dict', 'min', 'max', 'sum', 'sorted', 'open', 'map', 'zip'):\n"
    "    setattr(builtins, n, None)",
    "clears builtins": "import builtins\nvars(builtins).clear()",
    "replaces json and struct": "import json, struct, socket\n"
    "json.dumps = json.loads = struct.pack = struct.Struct = socket.socket = None",
    "replaces os": "import os, posix\nfor n in ('read', 'write', 'getpid', '_exit', 'fstat'):\n"
    "    setattr(os, n, None); setattr(posix, n, None)",
    "clears sys.modules": "import sys\nsys.modules.clear()",
    "replaces asyncio": "import asyncio\nasyncio.new_event_loop = None",
    "replaces linecache": "import linecache\nlinecache.cache = None\nlinecache.getline = None",
    "replaces __main__": "import sys\nsys.modules['__main__'] = None",
    "deletes names": "for n in list(globals()): del globals()[n]",
    "endless repr": "class A:\n    def __repr__(self):\n        while True: pass\nA()",
    "huge repr": "class A:\n    def __repr__(self): return 'x' * 10**8\nA()",
    "repr that is no text": "class A:\n    def __repr__(self): return 5\nA()",
    "repr that exits": "class A:\n    def __repr__(self): raise SystemExit\nA()",
    "endless str of an error": "class E(Exception):\n    def __str__(self):\n"
    "        while True: pass\nraise E",
    "str of an error that raises": "class E(Exception):\n    def __str__(self): raise E\nraise E",
    "error that is its own cause": "e = ValueError()\ne.__cause__ = e\nraise e",
    "deep list": "x = []\nfor _ in range(10**5): x = [x]\nx",
    "deep recursion": "import sys\nsys.setrecursionlimit(10**4)\ndef f(): f()\nf()",
    "deep syntax": "eval('(' * 10**5)",
    "trace function": "import sys\nsys.settrace(lambda *a: 1 / 0)",
    "profile function": "import sys\nsys.setprofile(lambda *a: None)",
    "alarm": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 600)",
    "excepthook": "import sys\nsys.excepthook = sys.displayhook = sys.unraisablehook = None",
    "audit hook": "import sys\nsys.addaudithook(lambda *a: None)",
    "closes the event loop": "import asyncio\nawait asyncio.sleep(0)\n"
    "asyncio.get_running_loop().stop()",
    "fork": "import os\npid = os.fork()\nif pid:\n    os.waitpid(pid, 0)",
    "fork that goes on": "import os\nif os.fork() == 0:\n    print('child')",
    "fork in a thread": "import os, threading\ndef f():\n    if os.fork() == 0: os._exit(0)\n"
    "    os.wait()\nt = threading.Thread(target=f)\nt.start(); t.join()",
    "multiprocessing": "import multiprocessing as m\nc = m.get_context('fork')\n"
    "p = c.Process(target=print, args=('hi',))\np.start(); p.join()",
    "atexit": "import atexit\natexit.register(lambda: __import__('time').sleep(600))",
    "threads": "import threading, time\nfor _ in range(5):\n"
    "    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()",
    "gc callbacks": "import gc\ngc.callbacks.append(lambda *a: 1 / 0)\ngc.collect()",
    "changes the directory": "import os\nos.makedirs('/tmp/gone', exist_ok=True)\n"
    "os.chdir('/tmp/gone')\nos.rmdir('/tmp/gone')",
    "huge integer": "x = 7 ** 10 ** 5\nx",
    "exception group": "import builtins\nraise BaseException('x')",
    "GeneratorExit": "raise GeneratorExit",
    "del of a helper": "import builtins\ndel builtins.debug",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_code_does_not_cost_the_context(context: ContextRig, name: str) -> None:
    """After it the next run works: output, value and result."""
    context.run(HOSTILE[name])
    outcome = context.run("import sys\nsys.stdout.write('out\\n')\n6 * 7")
    assert b"out\n" in outcome.stdout, outcome  # a process that it left may write meanwhile
    assert (outcome.status, outcome.value, outcome.result) == (Statuses.OK, "42", 42)


def test_what_was_put_back_is_noted(context: ContextRig) -> None:
    """A run whose predecessor closed descriptor 1 says that it was put back."""
    context.run("import os\nos.close(1)")
    assert any("put back" in note for note in context.run("1").notes)
    assert context.run("1").notes == []


LOST = {
    "os._exit": ("import os\nos._exit(3)", 3),
    "SIGKILL": ("import os\nos.kill(os.getpid(), 9)", -9),
    "segfault": ("import ctypes\nctypes.string_at(0)", -11),
    "closes everything": ("import os\nos.closerange(0, 5000)", 0),
}


@pytest.mark.parametrize("name", LOST)
def test_a_context_that_ends_itself(zygote: Zygote, name: str) -> None:
    """PID 1 sees the channel close and the true end; the next context works."""
    code, status = LOST[name]
    context = zygote.context()
    with pytest.raises((ContextLost, ConnectionError)):
        context.run(code)
    if name == "closes everything":
        context.end()
    else:
        assert context.end() == status
    assert zygote.context().run("1").value == "1"


def test_a_forged_end(context: ContextRig) -> None:
    """Code that writes an end to the control socket: a wrong number is seen as a lie."""
    code = (
        "import os, stat\n"
        "for fd in range(3, 300):\n"
        "    try:\n"
        "        if stat.S_ISSOCK(os.fstat(fd).st_mode):\n"
        "            os.write(fd, b'\\x02\\0\\0\\0\\0\\x63')\n"
        "    except OSError: pass\n"
    )
    with pytest.raises(ContextLost):
        context.run(code)


def test_garbage_among_the_events(context: ContextRig) -> None:
    """The events of that run end with a note; the next run's are whole."""
    code = (
        "import os, stat\n"
        "for fd in range(3, 300):\n"
        "    try:\n"
        "        if stat.S_ISFIFO(os.fstat(fd).st_mode): os.write(fd, b'\\xff' * 100)\n"
        "    except OSError: pass\n"
        "5"
    )
    outcome = context.run(code)
    assert outcome.status == Statuses.OK
    assert any("cannot be read" in note for note in outcome.notes)
    assert context.run("6").value == "6"


def test_threads_that_print_after_the_end(context: ContextRig) -> None:
    """Their output is not part of a later run's value, and comes while the context is idle."""
    context.run(
        "import threading, time\n"
        "def late():\n    time.sleep(0.2)\n    print('late', flush=True)\n"
        "threading.Thread(target=late).start()"
    )
    found, deadline = b"", time.monotonic() + 30
    while b"late" not in found and time.monotonic() < deadline:
        found += context.background()
    assert found == b"late\n"
    assert context.run("1").stdout == b""


def test_a_child_has_nothing_to_report(context: ContextRig) -> None:
    """A forked child that displays, logs or returns adds nothing to the run."""
    code = "import os\nif os.fork() == 0:\n    debug('x'); display(1)\nelse:\n    os.wait()\n5"
    outcome = context.run(code)
    assert (outcome.logs, outcome.displays, outcome.value) == ([], [], "5")


def test_open_files_are_limited(zygote: Zygote) -> None:
    """100 files of the user's, and the one after them fails; the context goes on."""
    context = zygote.context(limits={"open_files": 100})
    code = "files = []\ntry:\n    for _ in range(200): files.append(open('/dev/null'))\n"
    count = context.run(code + "except OSError as e:\n    error = str(e)\nlen(files)").result
    assert count == 100
    assert "Too many open files" in context.run("error").result
    assert context.run("files.clear()\nawait __import__('asyncio').sleep(0)\n1").value == "1"


# --- settings ---


def test_settings_of_a_context(zygote: Zygote) -> None:
    """Directory, environment and modules to import ahead."""
    context = zygote.context(cwd="/", env={"COLOUR": "blue"}, preload=["colorsys", "nothing_such"])
    code = "import os, sys\n[os.getcwd(), os.environ['COLOUR'], 'colorsys' in sys.modules]"
    assert context.run(code).result == ["/", "blue", True]


def test_modules_to_import_ahead_cost_once(zygote: Zygote) -> None:
    """The first context that asks for a module imports it; later ones are forked with it."""
    code = "import sys\n'xml.dom.minidom' in sys.modules"
    asking = zygote.context(preload=["xml.dom.minidom"])
    assert asking.run(code).value == "True"
    zygote.context()  # may have been forked before
    assert zygote.context().run(code).value == "True"


def test_a_directory_that_is_not_there(zygote: Zygote) -> None:
    """The first run notes it."""
    context = zygote.context(cwd="/nothing/such")
    assert any("/nothing/such" in note for note in context.run("1").notes)


def test_modules_of_the_working_directory(zygote: Zygote, tmp_path: object) -> None:
    """Code imports modules beside it, and their lines are in tracebacks."""
    path = f"{tmp_path}/mine.py"
    with open(path, "w") as file:
        file.write("def fail():\n    raise ValueError('from a file')\n")
    os.chmod(str(tmp_path), 0o755)
    error = zygote.context(cwd=str(tmp_path)).run("import mine\nmine.fail()").error
    assert error.frames[-1].source == "raise ValueError('from a file')"


def test_the_zygote_survives_its_contexts(zygote: Zygote) -> None:
    """Contexts that are killed before they are used do not stop the next ones."""
    for _ in range(5):
        context = zygote.context()
        context.signal(signal.SIGKILL)
        assert context.end() == -9
    assert zygote.context().run("1").value == "1"


def test_contexts_are_children_of_pid_1(zygote: Zygote) -> None:
    """The parent of a context is not the zygote, so its end is seen where it is reaped."""
    context = zygote.context()
    with open(f"/proc/{context.pid}/stat") as file:
        parent = int(file.read().rpartition(")")[2].split()[1])
    assert parent == os.getpid()


def test_first_results_in_milliseconds(zygote: Zygote) -> None:
    """Prints the time to the first result in a fresh context and of `1 + 1` in a used one."""
    fresh, used = [], []
    for _ in range(10):
        time.sleep(0.02)  # the next context is forked ahead meanwhile, as between two calls
        started = time.monotonic()
        context = zygote.context()
        assert context.run("1 + 1").value == "2"
        fresh.append(time.monotonic() - started)
        started = time.monotonic()
        context.run("1 + 1")
        used.append(time.monotonic() - started)
        context.close()
    figures = f"fresh {sorted(fresh)[5] * 1000:.2f} ms, used {sorted(used)[5] * 1000:.2f} ms"
    print(f"\ncode {zygote.facts['python']}: {figures}")
