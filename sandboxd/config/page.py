"""docs/configuration.md, written from the definition: `python -m sandboxd.config.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterator

from sandboxd.config.catalogue import BY_VARIABLE, SETTINGS, Setting
from sandboxd.config.definition import TABLES
from sandboxd.config.environment import PREFIX, WITHOUT_EFFECT
from sandboxd.config.file import DEFAULT_FILE, VERSION, VERSION_KEY

INTRODUCTION = f"""\
# Configuration

<!-- Written by scripts/gen_config_page from sandboxd/config/definition.py; change it there. -->

A setting comes from the first of these that has it:

1. a flag of `sandboxd serve`: its name with dashes, as in `--pool-size 20` or `--no-examine`;
2. the environment: the name in the table below. Names without `{PREFIX}` are read with it in front
   too, which then goes before the one without;
3. a TOML file: the one that `--config FILE` or `SANDBOXD_CONFIG` names, otherwise
   `{DEFAULT_FILE}` if it is there;
4. its default.

```toml
{VERSION_KEY} = {VERSION}

[pool]
pool_size = 20

[limits]
memory_limit_bytes = "512m"
```

- `sandboxd config default` prints a file with every setting, its default and what it does.
- `sandboxd config check [FILE]` tells every problem at once: where it is, what was probably meant
  and what to write. Exit code 0 without any, 1 with some, 2 if the file cannot be read.
- `sandboxd config show` tells what holds and where each value comes from, with secrets masked.
  `--json` is for programs; `--changed` leaves the defaults out.
- `sandboxd config get NAME` prints one value, for scripts.

The daemon does not start with a key or a `{PREFIX}` variable that it does not know, and says which
one was probably meant. Variables for clients are left alone (`SANDBOXD_URL`, `SANDBOXD_MODE`,
`SANDBOXD_TOKEN`, `SANDBOXD_CA_FILE`, `SANDBOXD_CLIENT_*`), and so are those that Kubernetes makes
for a service named `sandboxd`; give the pod `enableServiceLinks: false` all the same, or
`SANDBOXD_PORT` is an address.

Sizes are bytes or a number with `k`, `m` or `g`, as Docker writes them: `256m`. Names say the unit
of everything else. In flags and the environment, lists are separated by commas. Where nothing is
accepted, an empty text means nothing.
"""


def page() -> str:
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield INTRODUCTION
    for name, table in TABLES.items():
        yield f"## [{name}]\n"
        yield f"{table.about}\n"
        yield "| key | environment | default | |"
        yield "|---|---|---|---|"
        for setting in SETTINGS.values():
            if setting.table == name:
                yield _row(setting)
        yield ""
    yield "## Without effect\n"
    yield "Known from setups of this kind; sandboxd says at its start that they do nothing here.\n"
    yield "| environment | why |"
    yield "|---|---|"
    for variable, why in WITHOUT_EFFECT.items():
        if variable not in BY_VARIABLE:
            yield f"| `{variable}` | {why} |"


def _row(setting: Setting) -> str:
    about = setting.description
    if setting.is_bounded:
        about += f" {setting.accepts[0].upper()}{setting.accepts[1:]}."
    cells = (f"`{setting.name}`", f"`{setting.variable}`", _default(setting), _escaped(about))
    return f"| {' | '.join(cells)} |"


def _default(setting: Setting) -> str:
    if setting.has_varying_default or setting.default is None:
        return ""
    return f"`{setting.in_toml(setting.default)}`"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(page())
