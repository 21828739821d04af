"""The dashboard and the alert rules in deploy/ have the right form and ask for what there is."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from sandboxd.daemon.composition import Daemon
from tests.ports import free_port
from tests.service.client import Api, refused
from tests.service.test_metrics import get

StartDaemon = Callable[..., Awaitable[Daemon]]
DEPLOY = Path(__file__).parents[2] / "deploy"
DASHBOARD: dict[str, Any] = json.loads((DEPLOY / "grafana" / "sandboxd.json").read_text())
GROUPS: list[dict[str, Any]] = yaml.safe_load(
    (DEPLOY / "prometheus" / "sandboxd-alerts.yml").read_text()
)["groups"]
ALERTS = [rule for group in GROUPS for rule in group["rules"]]
PANELS: list[dict[str, Any]] = [one for one in DASHBOARD["panels"] if one["type"] != "row"]
EXPRESSIONS = [
    *(target["expr"] for panel in PANELS for target in panel["targets"]),
    *(rule["expr"] for rule in ALERTS),
]

COLUMNS = 24
"""Of a dashboard of Grafana."""
GIVEN_LABELS = {"instance", "job"}
"""Prometheus adds them to everything it asks."""
GIVEN_METRICS = {"up"}
GIVEN_VARIABLES = {"__rate_interval"}
FUNCTIONS = {"histogram_quantile", "increase", "rate"}
AGGREGATIONS = {"max", "min", "sum"}
DURATION = r"\d+[smhd]"
WORD = re.compile(r"[a-zA-Z_]\w*")
SELECTOR = re.compile(r"(?P<metric>[a-zA-Z_]\w*)\{(?P<matchers>[^}]*)\}")
MATCHER = re.compile(r"(?P<label>\w+)(?P<how>=~|!~|!=|=)\"(?P<value>[^\"]*)\"")
GROUPING = re.compile(r"\bby \((?P<labels>[^)]*)\)")
RATED = re.compile(r"\b(?:rate|increase)\((?P<metric>\w+)(?:\{[^}]*\})?\[(?P<window>[^]]*)\]\)")


class Told(NamedTuple):
    """A metric of the daemon."""

    type: str
    labels: dict[str, set[str]]
    """Names, and the values that there were."""


async def told_by(daemon: Daemon) -> dict[str, Told]:
    """By the name that a query has."""
    _, text = await get(daemon, "/metrics")
    found: dict[str, Told] = {}
    for family in text_string_to_metric_families(text):
        endings = {"counter": ["_total"], "histogram": ["_bucket", "_sum", "_count"]}
        for ending in endings.get(family.type, [""]):
            # Families without a sample have names too.
            found[family.name + ending] = Told(family.type, {})
        for sample in family.samples:
            if sample.name in found:
                for label, value in sample.labels.items():
                    found[sample.name].labels.setdefault(label, set()).add(value)
    return found


@pytest.fixture
async def told(start_daemon: StartDaemon) -> dict[str, Told]:
    """What a daemon tells to which all has happened that has a label."""
    daemon = await start_daemon(metrics_port=free_port())
    async with Api(daemon.config.api_socket) as api:
        session_id = await api.open_id()
        await api.run(session_id, "echo hi")
        await api.run(session_id, "sleep", timeout=0.05)
        with refused(grpc.StatusCode.NOT_FOUND, "SESSION_NOT_FOUND"):
            await api.get("ses_none")
        await api.close(session_id)
    return await told_by(daemon)


def words_of(expression: str) -> set[str]:
    """Names of metrics and functions; neither labels nor values, windows or numbers."""
    bare = re.sub(r"\{[^}]*\}|\[[^]]*\]", "", expression)
    return set(WORD.findall(GROUPING.sub("", bare)))


def metrics_of(expression: str) -> set[str]:
    return words_of(expression) - FUNCTIONS - AGGREGATIONS


def labels_of(metric: str, told: dict[str, Told]) -> set[str]:
    return (set(told[metric].labels) if metric in told else set()) | GIVEN_LABELS


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions_are_well_formed(expression: str) -> None:
    """Brackets close, and every selector, grouping and window is one that Prometheus reads."""
    stack = []
    for character in re.sub(r'"[^"]*"', '""', expression):
        if character in "([{":
            stack.append(")]}"["([{".index(character)])
        elif character in ")]}":
            assert stack, expression
            assert stack.pop() == character, expression
    assert stack == []
    for selector in SELECTOR.finditer(expression):
        matchers = selector["matchers"].split(",")
        assert all(MATCHER.fullmatch(one.strip()) for one in matchers), selector[0]
    for window in re.findall(r"\[([^]]*)\]", expression):
        assert window == "$__rate_interval" or re.fullmatch(DURATION, window)


async def test_expressions_are_about_what_the_daemon_tells(told: dict[str, Told]) -> None:
    """Every metric, label and value in them exists; counters are rated, and nothing else is."""
    assert len(EXPRESSIONS) > 40
    for expression in EXPRESSIONS:
        assert metrics_of(expression) <= told.keys() | GIVEN_METRICS, expression
        check_selectors(expression, told)
        known = set().union(*(labels_of(one, told) for one in metrics_of(expression)))
        for grouping in GROUPING.finditer(expression):
            assert set(re.split(r",\s*", grouping["labels"])) <= known, expression
        rated = {one["metric"] for one in RATED.finditer(expression)}
        for metric in metrics_of(expression) - GIVEN_METRICS:
            assert (told[metric].type != "gauge") == (metric in rated), (metric, expression)


def check_selectors(expression: str, told: dict[str, Told]) -> None:
    for selector in SELECTOR.finditer(expression):
        metric = selector["metric"]
        for matcher in MATCHER.finditer(selector["matchers"]):
            label = matcher["label"]
            assert label in labels_of(metric, told), selector[0]
            if label not in GIVEN_LABELS:
                wanted = set(matcher["value"].split("|"))
                assert wanted <= told[metric].labels[label] | SELDOM.get(metric, set()), selector[0]


SELDOM = {"sandboxd_session_ends_total": {"LOST"}}
"""Values of labels that take a fault to be seen."""


def test_alert_rules_have_the_form_that_prometheus_wants() -> None:
    """Names are unique, and each rule has a severity and says what to do; nothing is misspelt."""
    assert all(group.keys() == {"name", "rules"} for group in GROUPS)
    names = [rule["alert"] for rule in ALERTS]
    assert len(names) == len(set(names)) > 5
    for rule in ALERTS:
        assert rule.keys() - {"for"} == {"alert", "expr", "labels", "annotations"}, rule
        assert re.fullmatch("Sandboxd[A-Za-z]+", rule["alert"])
        assert re.fullmatch(DURATION, rule.get("for", "0s"))
        assert rule["labels"].keys() == {"severity"}
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"].keys() == {"summary", "action"}


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_annotations_of_alerts_name_labels_that_are_left(rule: dict[str, Any]) -> None:
    """What a text fills in is not summed away by its expression."""
    groupings = [set(re.split(r",\s*", one["labels"])) for one in GROUPING.finditer(rule["expr"])]
    left = set.intersection(*groupings) if groupings else GIVEN_LABELS
    for text in rule["annotations"].values():
        named = set(re.findall(r"\{\{ \$labels\.(\w+) \}\}", text))
        assert named <= left
        assert text.count("{{") == len(re.findall(r"\{\{ \$labels\.\w+ \}\}", text))


def test_dashboard_has_the_form_that_grafana_wants() -> None:
    """Panels have ids and places of their own, data sources and queries; variables are defined."""
    assert DASHBOARD["uid"]
    assert DASHBOARD["title"]
    assert isinstance(DASHBOARD["schemaVersion"], int)
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    assert {panel["type"] for panel in PANELS} <= {"stat", "timeseries"}
    for panel in PANELS:
        assert panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        references = [target["refId"] for target in panel["targets"]]
        assert len(references) == len(set(references)) > 0
        assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
    variables = {one["name"] for one in DASHBOARD["templating"]["list"]}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(DASHBOARD))) - {"__all"}
    assert used <= variables | GIVEN_VARIABLES


async def test_dashboard_finds_its_daemons(told: dict[str, Told]) -> None:
    """What fills its choice of daemons is a metric that every daemon tells."""
    (choice,) = (one for one in DASHBOARD["templating"]["list"] if one["type"] == "query")
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", choice["query"])
    assert asked is not None
    assert asked[1] in told
    assert asked[2] in GIVEN_LABELS


def test_panels_do_not_overlap() -> None:
    """Each has its place within the columns of the grid."""
    for one in DASHBOARD["panels"]:
        place = one["gridPos"]
        assert place["x"] >= 0
        assert place["x"] + place["w"] <= COLUMNS, one["title"]
    for one, other in itertools.combinations(DASHBOARD["panels"], 2):
        assert not set(cells(one)) & set(cells(other)), (one["title"], other["title"])


def cells(panel: dict[str, Any]) -> Iterator[tuple[int, int]]:
    place = panel["gridPos"]
    yield from itertools.product(
        range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"])
    )
