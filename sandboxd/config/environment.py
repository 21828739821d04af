"""Settings in the environment."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from sandboxd.config.catalogue import BY_VARIABLE, SETTINGS
from sandboxd.config.origins import Origin, Problem, nearest

PREFIX = "SANDBOXD_"
FILE_VARIABLE = "SANDBOXD_CONFIG"
FOR_OTHERS = re.compile(
    f"{FILE_VARIABLE}"
    # What clients and tests read.
    "|SANDBOXD_(URL|MODE|TOKEN|CA_FILE|CLIENT_[A-Z0-9_]+|TEST_[A-Z0-9_]+)"
    # What Kubernetes tells every pod about a service that is named sandboxd.
    "|SANDBOXD_SERVICE_[A-Z0-9_]+|SANDBOXD_PORT_[0-9]+_[A-Z0-9_]+"
)
"""Variables with our prefix that are not settings of the daemon."""
WITHOUT_EFFECT = {
    "AGGRESSIVE_CLEANUP": "the pool keeps its size",
    "CONTAINER_IDLE_TIMEOUT_MINUTES": "the pool keeps its size",
    "REDIS_HOST": "a daemon serves one machine and needs no Redis",
    "REDIS_PORT": "a daemon serves one machine and needs no Redis",
}
"""Names that setups of this kind often have set, and why they do nothing here."""


def variables_set(environment: Mapping[str, str]) -> Mapping[str, str]:
    """For each setting that is set, the variable that counts."""
    return {
        setting.name: variable
        for setting in SETTINGS.values()
        if (variable := next((name for name in setting.variables if name in environment), None))
    }


def unknown_variables(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that were meant for us and that we do not know."""
    for name in sorted(environment):
        if not name.startswith(PREFIX) or name in BY_VARIABLE or FOR_OTHERS.fullmatch(name):
            continue
        if name.removeprefix(PREFIX) in WITHOUT_EFFECT:
            continue
        meant = _meant(name.removeprefix(PREFIX))
        advice = f"write {meant}" if meant else "`sandboxd config default` lists what there is"
        yield Problem(Origin("environment", name), f"there is no such setting; {advice}")


def _meant(word: str) -> str | None:
    """The variable that was probably meant, also if it was named as in the file."""
    names = {setting.name.upper(): setting.variables[0] for setting in SETTINGS.values()}
    names |= {one.removeprefix(PREFIX): one for one in BY_VARIABLE if one.startswith(PREFIX)}
    key = nearest(word, names)
    return names[key] if key else None


def without_effect(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that are known from elsewhere and do nothing."""
    for name in sorted(environment):
        why = WITHOUT_EFFECT.get(name.removeprefix(PREFIX))
        if why is not None and name not in BY_VARIABLE:
            yield Problem(Origin("environment", name), f"has no effect: {why}")
