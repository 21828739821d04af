"""Values of numpy and pandas, and figures of matplotlib, from the real libraries."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sandboxd.code.events import Answer, Display, Step, Variables
from sandboxd.guest.code.protocol import Statuses
from tests.code.rig import ContextRig, Zygote

PNG = b"\x89PNG"


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    made = Zygote(preload=("numpy", "pandas", "matplotlib.pyplot"))
    assert made.facts["preloaded"] == ["numpy", "pandas", "matplotlib.pyplot"]
    yield made
    made.close()


def media(shown: Display) -> dict[str, bytes]:
    return {one.media_type: one.data for one in shown.data}


def test_values_of_numpy(context: ContextRig) -> None:
    """Scalars and arrays become numbers and lists, with a note."""
    code = (
        "import numpy as np\n"
        "__result__ = {'a': np.float64(1.5), 'b': np.int32(2), 'c': np.array([[1, 2], [3, 4]]),\n"
        "  'd': np.bool_(True), 'e': np.float64('nan'), 'f': np.datetime64('2024-01-02')}"
    )
    outcome = context.run(code)
    assert outcome.result["c"] == [[1, 2], [3, 4]]
    assert [outcome.result[k] for k in "abde"] == [1.5, 2, True, None]
    assert outcome.result["f"] == "2024-01-02"
    assert "ndarray to list" in outcome.conversions["$.c"]
    assert outcome.conversions["$.e"]


def test_values_of_pandas(context: ContextRig) -> None:
    """A table becomes records, a series an object; missing values null, times ISO text."""
    code = (
        "import pandas as pd\n"
        "df = pd.DataFrame({'n': [1, 2], 'when': pd.to_datetime(['2024-01-02', None])})\n"
        "__result__ = {'df': df, 's': pd.Series([1.5], index=['x']), 'na': pd.NaT}"
    )
    outcome = context.run(code)
    assert outcome.result["df"] == [
        {"n": 1, "when": "2024-01-02T00:00:00"},
        {"n": 2, "when": None},
    ]
    assert outcome.result["s"] == {"x": 1.5}
    assert outcome.result["na"] is None
    assert outcome.conversions["$.df"] == "DataFrame to records"


def test_a_table_keeps_its_index(context: ContextRig) -> None:
    """Unless it only counts the rows; its names are not those of other columns."""
    code = (
        "import pandas as pd\n"
        "df = pd.DataFrame({'kind': ['a', 'a', 'b'], 'n': [1, 2, 4], 'index': [7, 8, 9]})\n"
        "__result__ = {'described': df[['n']].describe(), 'plain': df[['n']],\n"
        "  'grouped': df.groupby('kind')[['n']].sum(), 'filtered': df[df.n > 2],\n"
        "  'both': df.groupby(['kind', 'index']).sum()}"
    )
    outcome = context.run(code)
    described = {row["index"]: row["n"] for row in outcome.result["described"]}
    assert (described["count"], described["max"]) == (3.0, 4.0)
    assert outcome.result["grouped"] == [{"kind": "a", "n": 3}, {"kind": "b", "n": 4}]
    assert outcome.result["filtered"] == [{"index_": 2, "kind": "b", "n": 4, "index": 9}]
    assert outcome.result["both"][0] == {"kind": "a", "index": 7, "n": 1}
    assert outcome.result["plain"] == [{"n": 1}, {"n": 2}, {"n": 4}]
    assert outcome.conversions["$.grouped"] == "DataFrame to records with the index as kind"


def test_a_long_table_is_cut(context: ContextRig) -> None:
    """10,000 rows, and the result says that it was cut."""
    code = "import pandas as pd\n__result__ = pd.DataFrame({'n': range(10050)})"
    outcome = context.run(code)
    assert len(outcome.result) == 10_000
    assert "the first 10000" in outcome.conversions["$"]


def test_a_table_is_shown_as_html_and_text(context: ContextRig) -> None:
    """The last expression and display() offer both."""
    outcome = context.run(
        "import pandas as pd\ndf = pd.DataFrame({'name': ['Ada']})\ndisplay(df)\ndf"
    )
    shown = media(outcome.displays[0])
    assert b"<table" in shown["text/html"]
    assert b"Ada" in shown["text/plain"]
    assert "Ada" in outcome.value


def test_a_figure_without_show(context: ContextRig) -> None:
    """Open figures come as PNG at the end of the run, once, and are closed."""
    outcome = context.run("import matplotlib.pyplot as plt\nplt.plot([1, 2, 3])\nx = 1")
    assert [media(one)["image/png"][:4] for one in outcome.displays] == [PNG]
    assert context.run("plt.get_fignums()").value == "[]"


def test_show_keeps_its_place(context: ContextRig) -> None:
    """plt.show() displays between what was printed before and after it; nothing is shown twice."""
    code = (
        "import matplotlib.pyplot as plt\n"
        "print('before')\nplt.plot([1])\nplt.show()\nprint('after')\nplt.figure()\nplt.show()"
    )
    outcome = context.run(code)
    kinds = [piece if isinstance(piece, bytes) else type(piece).__name__ for piece in outcome.order]
    assert kinds == [b"before\n", "Display", b"after\n", "Display"]


def test_several_figures(context: ContextRig) -> None:
    """Each of them, in the order of their numbers."""
    code = "import matplotlib.pyplot as plt\nfor n in range(3): plt.figure(); plt.plot([n])"
    assert len(context.run(code).displays) == 3


def test_a_figure_as_a_value(context: ContextRig) -> None:
    """display(figure) shows it once; at the end it is not shown again if it was closed."""
    code = "import matplotlib.pyplot as plt\nf, a = plt.subplots()\ndisplay(f)\nplt.close(f)"
    assert len(context.run(code).displays) == 1


def test_figures_before_an_error_are_shown(context: ContextRig) -> None:
    """What was drawn before the code failed is there."""
    outcome = context.run("import matplotlib.pyplot as plt\nplt.plot([1])\n1 / 0")
    assert outcome.status == Statuses.RAISED
    assert len(outcome.displays) == 1


def test_an_endless_figure_can_be_interrupted(context: ContextRig) -> None:
    """A figure whose drawing never ends does not hold the context, and is not drawn again."""
    import signal

    code = (
        "import matplotlib.pyplot as plt\nf = plt.figure()\nclass L:\n"
        "    pass\ndef draw(*a):\n    print('drawing', flush=True)\n    while True: pass\n"
        "f.draw = draw\n"
    )
    run = context.start(code)
    run.until_output(b"drawing")
    context.signal(signal.SIGINT)
    outcome = run.wait()
    assert outcome.status == Statuses.INTERRUPTED
    assert outcome.stdout == b"drawing\n"
    assert context.run("plt.get_fignums()").value == "[]"


def test_a_figure_that_cannot_be_drawn_fails_one_run(context: ContextRig) -> None:
    """The next run does not try it again."""
    outcome = context.run("import matplotlib.pyplot as plt\nplt.figure().draw = None")
    assert outcome.status == Statuses.RAISED
    assert context.run("1").status == Statuses.OK


def test_random_numbers_differ_between_contexts(zygote: Zygote) -> None:
    """Contexts are forked from one process, and numpy gives each its own numbers."""
    contexts = [zygote.context() for _ in range(4)]
    seen = {one.run("import numpy\nfloat(numpy.random.rand())").value for one in contexts}
    assert len(seen) == 4


def test_arrays_and_tables_in_the_debugger(context: ContextRig) -> None:
    """They are shown by their size."""
    context.run(
        "import numpy as np, pandas as pd\na = np.zeros((3, 4))\ndf = pd.DataFrame({'x': [1]})"
    )
    run = context.start("b = 1\nc = 2", mode="debug")
    shown = {one.name: one.value for one in run.next(Step).changed}
    assert shown["a"] == "ndarray(shape=(3, 4), dtype=float64)"
    assert shown["df"] == "DataFrame(1 x 1)"
    run.go_on()
    answer = context.run(mode="state").of(Answer)[0]
    assert isinstance(answer.body, Variables)
    sizes = {one.name: one.size_bytes for one in answer.body.variables}
    assert sizes["a"] == 96


def test_libraries_under_the_policy(zygote: Zygote) -> None:
    """The strict policy lets them work: arithmetic, tables, figures."""
    strict = zygote.context(policy={"name": "strict"})
    code = (
        "import numpy as np, pandas as pd, matplotlib.pyplot as plt\n"
        "df = pd.DataFrame({'x': np.arange(5)})\ndf.plot()\nint(df.x.sum())"
    )
    outcome = strict.run(code)
    assert (outcome.value, len(outcome.displays)) == ("10", 1), outcome.events
