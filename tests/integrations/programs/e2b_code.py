"""The official code interpreter package against a gateway; prints what each method did."""

from __future__ import annotations

import json
import traceback

from e2b_code_interpreter import Sandbox


def check(box):
    seen = []
    first = box.run_code("x = 20\nprint('hi')", on_stdout=lambda message: seen.append(message.line))
    assert first.error is None, first.error
    assert "".join(first.logs.stdout) == "hi\n"
    assert "".join(seen) == "hi\n"
    again = box.run_code("x * 2 + 2")
    assert again.text == "42", again
    assert again.results[-1].is_main_result
    failed = box.run_code("1 / 0")
    assert failed.error.name == "ZeroDivisionError"
    assert "1 / 0" in failed.error.traceback
    assert box.run_code("x").text == "20"
    other = box.create_code_context(cwd="/tmp")
    assert box.run_code("import os; os.getcwd()", context=other).text == "'/tmp'"
    assert box.run_code("x", context=other).error.name == "NameError"
    assert other.id in [context.id for context in box.list_code_contexts()]
    box.run_code("y = 1", context=other)
    box.restart_code_context(other)
    assert box.run_code("y", context=other).error.name == "NameError"
    box.remove_code_context(other)
    assert other.id not in [context.id for context in box.list_code_contexts()]
    assert "not offered" in refusal(lambda: box.run_code("1", language="r"))


def refusal(call):
    try:
        return f"answered {call()!r}"
    except Exception as error:
        return str(error)


box = Sandbox.create(timeout=300)
try:
    check(box)
    answer = "works"
except Exception:
    answer = traceback.format_exc()
finally:
    box.kill()
print(json.dumps(answer))
