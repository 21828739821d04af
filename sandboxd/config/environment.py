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
    # Variables of clients and tests.
    "|SANDBOXD_(URL|MODE|TOKEN|CA_FILE|DATA_SOURCE|CLIENT_[A-Z0-9_]+|TEST_[A-Z0-9_]+)"
    # Variables that Kubernetes sets in every pod for a service named sandboxd.
    "|SANDBOXD_SERVICE_[A-Z0-9_]+|SANDBOXD_PORT_[0-9]+_[A-Z0-9_]+"
)
"""Variables with our prefix that are not settings of the daemon."""


def variables_set(environment: Mapping[str, str]) -> Mapping[str, str]:
    """The variable that counts, by setting that is set."""
    return {
        setting.name: variable
        for setting in SETTINGS.values()
        if (variable := next((name for name in setting.variables if name in environment), None))
    }


def ignored_variables(environment: Mapping[str, str]) -> Iterator[Problem]:
    """Variables that look like settings and set nothing.

    None is an error: other programs use our prefix too.
    """
    for name in sorted(environment):
        word = name.removeprefix(PREFIX)
        if name.startswith(PREFIX) and not _is_known(name):
            text = f"is not a setting and is ignored; {_advice(word)}"
            yield Problem(Origin("environment", name), text)


def _is_known(name: str) -> bool:
    return name in BY_VARIABLE or FOR_OTHERS.fullmatch(name) is not None


def _advice(word: str) -> str:
    """The variable that was probably meant, also if it was named as in the file."""
    names = {setting.name.upper(): setting.variables[0] for setting in SETTINGS.values()}
    names |= {name.removeprefix(PREFIX): name for name in BY_VARIABLE if name.startswith(PREFIX)}
    key = nearest(word, names)
    return f"did you mean {names[key]}?" if key else "`sandboxd config default` lists all settings"
