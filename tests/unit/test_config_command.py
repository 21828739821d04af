"""`sandboxd config` and the flags of `sandboxd serve`, as they are called."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from sandboxd.cli.program import program
from sandboxd.config import Config
from sandboxd.config.catalogue import SETTINGS, Kind

Sandboxd = Callable[..., Result]


@pytest.fixture
def sandboxd(monkeypatch: pytest.MonkeyPatch) -> Sandboxd:
    for name in tuple(os.environ):
        if name in {one for setting in SETTINGS.values() for one in setting.variables}:
            monkeypatch.delenv(name)

    def call(*words: str, **environment: str) -> Result:
        settings = {"SANDBOXD_CONFIG": os.devnull, **environment}
        return CliRunner().invoke(program, words, env=settings)

    return call


def test_default_is_a_file_that_check_accepts(sandboxd: Sandboxd, tmp_path: Path) -> None:
    """The first two commands of an operator fit together."""
    file = tmp_path / "config.toml"
    printed = sandboxd("config", "default")
    file.write_text(printed.output)
    checked = sandboxd("config", "check", str(file))

    assert printed.exit_code == checked.exit_code == 0
    assert checked.output == f"ok: {file}, 0 of {len(SETTINGS)} settings are set\n"


def test_check_tells_all_problems_and_exits_with_1(sandboxd: Sandboxd, tmp_path: Path) -> None:
    """A deployment can rely on the exit code, a person on the words."""
    file = tmp_path / "config.toml"
    file.write_text("config_version = 1\n[pool]\npoolsize = 3\n")
    result = sandboxd("config", "check", str(file), PORT="http")

    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "sandboxd: 2 problems with the settings:",
        f"  {file}:3: pool.poolsize: unknown setting; did you mean pool_size?",
        "  environment PORT: server.port: 'http' is not accepted; write a whole number from 0 to "
        "65535",
    ]


def test_check_of_a_missing_file_exits_with_2(sandboxd: Sandboxd, tmp_path: Path) -> None:
    """That nothing could be checked is another code than that something is wrong."""
    result = sandboxd("config", "check", str(tmp_path / "absent.toml"))

    assert result.exit_code == 2
    assert "No such file" in result.stderr


def test_check_refuses_half_a_cluster(sandboxd: Sandboxd) -> None:
    """A daemon that shares sessions needs what the others have, and the check says so."""
    result = sandboxd("config", "check", REDIS_HOST="redis")

    assert result.exit_code == 1
    assert "REDIS_HOST needs SANDBOXD_CLUSTER_KEY_FILE" in result.stderr


def test_check_warns_of_unknown_variables(sandboxd: Sandboxd) -> None:
    """Each is reported with the nearest name, and is no error."""
    result = sandboxd("config", "check", SANDBOXD_POLL_SIZE="1", SANDBOXD_GRPC_ADDR=":1")

    assert result.exit_code == 0
    assert result.stderr.splitlines() == [
        "warning: environment SANDBOXD_GRPC_ADDR: is not a setting and is ignored; "
        "`sandboxd config default` lists all settings",
        "warning: environment SANDBOXD_POLL_SIZE: is not a setting and is ignored; "
        "did you mean SANDBOXD_POOL_SIZE?",
    ]


def test_serve_logs_unknown_variables(tmp_path: Path) -> None:
    """A daemon with a variable of another program starts, and its log names the variable."""
    too_long = tmp_path / ("x" * 100)  # so that it ends before it makes anything on the host
    ended = subprocess.run(
        [sys.executable, "-m", "sandboxd", "serve", "--run-dir", too_long],
        env={**os.environ, "SANDBOXD_CONFIG": os.devnull, "SANDBOXD_GRPC_ADDR": ":1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )

    logged, refusal = ended.stderr.splitlines()
    assert json.loads(logged)["event"] == "setting.ignored"
    assert json.loads(logged)["name"] == "SANDBOXD_GRPC_ADDR"
    assert "too long" in refusal


def test_unknown_flag_is_refused(sandboxd: Sandboxd) -> None:
    """A flag can only be meant for us."""
    result = sandboxd("serve", "--poll-size", "1")

    assert result.exit_code == 2
    assert "No such option" in result.stderr


def test_show_tells_every_value_and_its_origin(sandboxd: Sandboxd, tmp_path: Path) -> None:
    """For people: the value as it is written in the file, and where it was set."""
    file = tmp_path / "config.toml"
    file.write_text("config_version = 1\n[limits]\nmemory_limit_bytes = 536870912\n")
    words = ("config", "show", "--config", str(file), "--no-examine")
    result = sandboxd(*words, POOL_SIZE="4", DOCKER_HOST="tcp://me:secret@host")
    rows = [line.split(maxsplit=2) for line in result.output.splitlines()]

    assert result.exit_code == 0
    assert ["memory_limit_bytes", '"512m"', f"{file}:3"] in rows
    assert ["pool_size", "4", "environment POOL_SIZE"] in rows
    assert ["examine", "false", "--no-examine"] in rows
    assert ["port", "5000", "default"] in rows
    assert "secret" not in result.output

    changed = sandboxd(*words, "--changed").output
    assert "memory_limit_bytes" in changed
    assert "port" not in changed


def test_show_for_programs_has_values_as_they_are(sandboxd: Sandboxd) -> None:
    """Numbers are numbers, and the origin is in parts."""
    document = json.loads(sandboxd("config", "show", "--json", PORT="7").output)
    settings = {one["name"]: one for one in document["settings"]}

    assert document["file"] == os.devnull
    assert settings["port"] == {
        "name": "port",
        "table": "server",
        "value": 7,
        "from": {"kind": "environment", "name": "PORT"},
    }
    assert settings["memory_limit_bytes"]["value"] == 256 << 20
    assert settings["socket_path"]["value"] is None
    assert settings.keys() == Config.model_fields.keys()


def test_get_prints_one_value(sandboxd: Sandboxd) -> None:
    """A script reads it without a parser; a name that is none is refused."""
    assert sandboxd("config", "get", "state_dir", SANDBOXD_STATE_DIR="/s").output == "/s\n"
    assert sandboxd("config", "get", "socket_path").output == "\n"
    assert sandboxd("config", "get", "stat_dir").exit_code == 2


def test_serve_has_a_flag_for_every_setting() -> None:
    """None is forgotten, and each has its help."""
    command = program.get_command(click.Context(program), "serve")
    assert command is not None
    with click.Context(command) as context:
        text = " ".join(command.get_help(context).split())
    for setting in SETTINGS.values():
        names = [setting.flag]
        if setting.kind is Kind.SWITCH:
            names.append(f"--no-{setting.flag[2:]}")
        assert all(f" {name} " in text for name in names), setting.name


def test_serve_does_not_start_with_wrong_settings(sandboxd: Sandboxd, tmp_path: Path) -> None:
    """Before anything is made on the host, all that is wrong is told."""
    state = tmp_path / "state"
    result = sandboxd("serve", "--port", "x", "--state-dir", str(state), SANDBOXD_POLL_SIZE="1")

    assert result.exit_code == 1
    assert "warning: environment SANDBOXD_POLL_SIZE: is not a setting" in result.stderr
    assert "--port: server.port: 'x' is not accepted" in result.stderr
    assert not state.exists()
