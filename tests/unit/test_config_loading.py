"""Settings from flags, environment and file: which one holds, and how problems are told."""

from __future__ import annotations

import os
import re
import tomllib
from pathlib import Path

import pytest
from pydantic import BaseModel, Field, SecretStr

from sandboxd.config import ConfigInvalid, load
from sandboxd.config.catalogue import SETTINGS, Kind, describe
from sandboxd.config.definition import TABLES, Config
from sandboxd.config.file import FileUnreadable, lines_of_keys
from sandboxd.config.origins import Origin
from sandboxd.config.page import page
from sandboxd.config.template import template

NO_FILE = Path(os.devnull)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.toml"


def problems_of(
    file: Path = NO_FILE,
    *,
    environment: dict[str, str] | None = None,
    flags: dict[str, str] | None = None,
) -> list[str]:
    with pytest.raises(ConfigInvalid) as caught:
        load(file=file, environment=environment or {}, flags=flags)
    return [str(problem) for problem in caught.value.problems]


def warnings_of(environment: dict[str, str]) -> list[str]:
    loaded = load(file=NO_FILE, environment=environment)
    assert loaded.config == Config()
    return [str(warning) for warning in loaded.warnings]


# --- which one holds ---


def test_directories_of_the_daemon_are_whole_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are mounted into sandboxes, and no sandbox would start with a relative one."""
    monkeypatch.chdir(tmp_path)
    environment = {
        "SANDBOXD_STATE_DIR": "state",
        "SANDBOXD_RUN_DIR": "./run",
        "SANDBOXD_GUEST_RUNTIME": "python",
    }
    config = load(file=NO_FILE, environment=environment).config
    assert config.state_dir == tmp_path / "state"
    assert config.api_socket == tmp_path / "run" / "sandboxd.sock"
    assert config.runtime_dir == tmp_path / "python"
    assert load(file=NO_FILE, environment={}).config.state_dir == Path("/var/lib/sandboxd")


def test_flag_goes_before_environment_before_file_before_default(file: Path) -> None:
    """The nearest to the command line holds, and each value knows where it came from."""
    file.write_text(
        "config_version = 1\n[pool]\npool_size = 1\nmin_pool_size = 1\nmax_pool_size = 9"
    )
    loaded = load(
        file=file,
        environment={"POOL_SIZE": "2", "SANDBOXD_MIN_POOL_SIZE": "2"},
        flags={"pool_size": "3"},
    )

    config, origins = loaded.config, loaded.origins
    assert (config.pool_size, config.min_pool_size, config.max_pool_size) == (3, 2, 9)
    assert origins["pool_size"] == Origin("flag", "--pool-size")
    assert origins["min_pool_size"] == Origin("environment", "SANDBOXD_MIN_POOL_SIZE")
    assert origins["max_pool_size"] == Origin("file", str(file), 5)
    assert origins["port"] == Origin("default")
    assert origins.keys() == Config.model_fields.keys()


def test_file_is_the_one_named_nearest(file: Path, tmp_path: Path) -> None:
    """--config goes before SANDBOXD_CONFIG; an empty variable names none."""
    other = tmp_path / "other.toml"
    file.write_text("config_version = 1\n[server]\nport = 1")
    other.write_text("config_version = 1\n[server]\nport = 2")
    environment = {"SANDBOXD_CONFIG": str(other)}

    assert load(file=file, environment=environment).config.port == 1
    assert load(environment=environment).config.port == 2
    assert load(environment={"SANDBOXD_CONFIG": ""}).file != other


@pytest.mark.parametrize("name", SETTINGS)
def test_every_setting_can_be_set_in_every_way(name: str, file: Path) -> None:
    """Flag, variables and key of a setting all reach it, with its default as it is written."""
    setting = SETTINGS[name]
    written = setting.in_toml(setting.default)
    file.write_text(f"config_version = 1\n[{setting.table}]\n{name} = {written}")
    value = tomllib.loads(f"value = {written}")["value"]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if isinstance(value, list):
        text = ", ".join(value)
    ways = [
        load(file=file, environment={}),
        load(file=NO_FILE, environment={}, flags={name: text}),
        *(load(file=NO_FILE, environment={one: text}) for one in setting.variables),
    ]

    for loaded in ways:
        assert loaded.origins[name].kind != "default"
        assert getattr(loaded.config, name) == setting.default


@pytest.mark.parametrize("name", ["SANDBOXD_SOCKET", "DOCKER_HOST", "SANDBOXD_CONTAINER_RUNTIME"])
def test_empty_text_is_nothing_where_nothing_is_accepted(name: str) -> None:
    """`SANDBOXD_SOCKET=` is no path, and so is not the current directory."""
    loaded = load(file=NO_FILE, environment={name: ""})

    assert loaded.config == Config()


# --- what is told ---


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("[pool]\npoolsize = 3", "pool.poolsize: unknown setting; did you mean pool_size?"),
        ("[pool]\nport = 3", "pool.port: it belongs to the table [server]"),
        ("[pol]\npool_size = 3", "pol: unknown table; did you mean [pool]?"),
        ("[pool]\nPOOL_SIZE = 3", "pool.POOL_SIZE: unknown setting; did you mean pool_size?"),
        (
            "[pool]\nexec_timeout_seconds = 3",
            "pool.exec_timeout_seconds: unknown setting; did you mean default_exec_seconds in "
            "the table [exec]?",
        ),
        (
            "[pool]\nzebra = 3",
            "pool.zebra: unknown setting; `sandboxd config default` lists all tables and settings",
        ),
        (
            "[zebra]\nx = 3",
            "zebra: unknown table; `sandboxd config default` lists all tables and settings",
        ),
        ("[server]\nport = true", "server.port: write a whole number from 0 to 65535"),
        (
            "[server]\nport = 'http'",
            "server.port: 'http' is not accepted; write a whole number from 0 to 65535",
        ),
        (
            "[limits]\nmemory_limit_bytes = '1m'",
            "limits.memory_limit_bytes: '1m' is not accepted; write a size of at least 32m, such "
            "as 256m",
        ),
        (
            "[daemon]\nlog_level = 'loud'",
            "daemon.log_level: 'loud' is not accepted; write debug, info, warning or error",
        ),
        ("[server]\nstate_dir = ''", "server.state_dir: '' is not accepted; write a path"),
    ],
)
def test_problem_in_a_file_names_line_key_and_what_to_write(
    line: str, told: str, file: Path
) -> None:
    """Whoever made the mistake can correct it without a manual."""
    file.write_text(f"config_version = 1\n\n{line}\n")
    where = 3 if "table; " in told else 4

    assert problems_of(file) == [f"{file}:{where}: {told}"]


def test_setting_outside_of_its_table_is_told_where_it_belongs(file: Path) -> None:
    """A key without a table, and a table that is none."""
    file.write_text("config_version = 1\npool_size = 3\nsession = 5\n")

    assert problems_of(file) == [
        f"{file}:2: pool_size: it belongs to the table [pool]",
        f"{file}:3: session: this is a table; write [session] and its settings below it",
    ]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[pool]\npool_size = 3", "the first line must be `config_version = 1`"),
        ("config_version = 2", "this sandboxd reads version 1, not 2"),
        ("config_version = true", "this sandboxd reads version 1, not True"),
        ("config_version = 1\n[pool\n", "not valid TOML: .*line 2"),
    ],
)
def test_file_of_another_form_is_refused(text: str, told: str, file: Path) -> None:
    """A file that we would read wrongly is not read."""
    file.write_text(text)
    (problem,) = problems_of(file)

    assert re.search(told, problem)


def test_file_that_cannot_be_read_is_told(file: Path, tmp_path: Path) -> None:
    """A file that is named has to be there, to be a file and to be text."""
    with pytest.raises(FileUnreadable, match=r"No such file.*--config or SANDBOXD_CONFIG"):
        load(file=file, environment={})
    with pytest.raises(FileUnreadable, match="Is a directory"):
        load(file=tmp_path, environment={})
    file.write_bytes(b"worker_id = '\xff'")
    with pytest.raises(FileUnreadable, match=r"not valid UTF-8 \(byte 13\)"):
        load(file=file, environment={})
    file.write_bytes(b"#" * (1 << 21))
    with pytest.raises(FileUnreadable, match="larger than 1 MiB"):
        load(file=file, environment={})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("SANDBOXD_POL_SIZE", "SANDBOXD_POOL_SIZE"),
        ("SANDBOXD_LOG", "SANDBOXD_LOG_LEVEL"),
        ("SANDBOXD_DEFAULT_EXEC_SECONDS", "SANDBOXD_EXEC_TIMEOUT_SECONDS"),
        ("SANDBOXD_SOCKET_PATH", "SANDBOXD_SOCKET"),
    ],
)
def test_unknown_variable_with_our_prefix_is_a_warning(name: str, meant: str) -> None:
    """A misspelt variable does not keep the daemon from starting; the warning says what was
    probably meant."""
    assert warnings_of({name: "1"}) == [
        f"environment {name}: is not a setting and is ignored; did you mean {meant}?"
    ]


@pytest.mark.parametrize("name", ["SANDBOXD_GRPC_ADDR", "SANDBOXD_REST_ADDR"])
def test_variable_of_another_sandboxd_is_a_warning(name: str) -> None:
    """Where no setting has a similar name, the warning says where the names are listed."""
    assert warnings_of({name: ":9090"}) == [
        f"environment {name}: is not a setting and is ignored; "
        "`sandboxd config default` lists all settings"
    ]


def test_warnings_come_with_problems() -> None:
    """A misspelt variable can be the cause of a problem, so both are reported together."""
    environment = {"HOST": "0.0.0.0", "SANDBOXD_TOKEN_FILE": "/tokens"}
    with pytest.raises(ConfigInvalid) as caught:
        load(file=NO_FILE, environment=environment)

    (warning,) = caught.value.warnings
    assert str(warning).endswith("did you mean SANDBOXD_TOKENS_FILE?")


@pytest.mark.parametrize(
    "name",
    [
        "SANDBOXD_URL",
        "SANDBOXD_TOKEN",
        "SANDBOXD_MODE",
        "SANDBOXD_CA_FILE",
        "SANDBOXD_DATA_SOURCE",
        "SANDBOXD_CLIENT_TIMEOUT",
        "SANDBOXD_SERVICE_HOST",
        "SANDBOXD_PORT_5000_TCP_ADDR",
        "POL_SIZE",
    ],
)
def test_variables_of_others_are_left_alone(name: str) -> None:
    """What clients, orchestrators and other programs read is neither a problem nor a warning."""
    loaded = load(file=NO_FILE, environment={name: "x"})

    assert loaded.config == Config()
    assert not loaded.warnings


def test_worker_of_a_cluster_needs_what_the_others_share() -> None:
    """Who sets REDIS_HOST alone is told everything that is missing, at once."""
    told = problems_of(environment={"REDIS_HOST": "redis"})

    assert [problem.partition(" needs ")[2].partition(",")[0] for problem in told] == [
        "SANDBOXD_CLUSTER_KEY_FILE",
        "SANDBOXD_SNAPSHOT_STORE and SANDBOXD_SNAPSHOT_KEY_FILE",
    ]


def test_all_problems_are_told_at_once(file: Path) -> None:
    """In the order of the file, then those of flags and environment, then contradictions."""
    file.write_text(
        "config_version = 1\n[pool]\npool_size = 100\nsize = 1\n[daemon]\ndrain_secs = 1"
    )
    told = problems_of(
        file,
        environment={"SANDBOXD_LOG_LEVEL": "loud"},
        flags={"port": "many"},
    )

    assert [problem.split(": ")[0] for problem in told] == [
        f"{file}:4",
        f"{file}:6",
        "--port",
        "environment SANDBOXD_LOG_LEVEL",
        "POOL_SIZE must not exceed MAX_POOL_SIZE (pool.pool_size is 100 by "
        f"{file}:3, pool.max_pool_size is 80 by default)",
    ]


def test_contradiction_with_a_refused_value_is_not_told() -> None:
    """Nobody is told to correct what is right once the other value is."""
    environment = {"POOL_SIZE": "100", "MAX_POOL_SIZE": "lots"}

    (problem,) = problems_of(environment=environment)
    assert problem.startswith("environment MAX_POOL_SIZE: pool.max_pool_size: 'lots'")


def test_two_contradictions_are_both_told() -> None:
    """Also where the values are fine by themselves."""
    environment = {"POOL_SIZE": "81", "HOST": "example.org"}

    first, second = problems_of(environment=environment)
    assert "POOL_SIZE must not exceed" in first
    assert "without authentication" in second


def test_long_value_is_told_in_part() -> None:
    """A file pasted into a variable does not fill the terminal."""
    (problem,) = problems_of(environment={"PORT": "x" * 5000})

    assert len(problem) < 300


# --- settings of other forms ---


class Forms(BaseModel):
    names: tuple[str, ...] = Field((), validation_alias="SANDBOXD_NAMES")
    table: dict[str, int] = Field(default_factory=dict, validation_alias="SANDBOXD_TABLE")
    password: SecretStr | None = Field(None, validation_alias="SANDBOXD_PASSWORD")
    share: float = Field(0.5, validation_alias="SANDBOXD_SHARE", gt=0, le=1)


FORMS = {name: describe(name, "x", field) for name, field in Forms.model_fields.items()}


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("names", "a, b,c", ("a", "b", "c")),
        ("names", "", ()),
        ("table", '{"a": 1}', {"a": 1}),
        ("share", "0.25", 0.25),
    ],
)
def test_lists_and_tables_can_be_written_as_text(name: str, text: str, value: object) -> None:
    """In flags and in the environment: a list by commas, a table as JSON."""
    form = Forms.model_validate({FORMS[name].variable: FORMS[name].from_text(text)})

    assert getattr(form, name) == value
    assert tomllib.loads(f"v = {FORMS[name].in_toml(FORMS[name].default)}")


def test_form_says_what_it_accepts() -> None:
    """For messages and pages."""
    accepted = {name: setting.accepts for name, setting in FORMS.items()}

    assert accepted == {
        "names": "a list of texts",
        "table": "a table",
        "password": "text, or nothing",
        "share": "a number above 0 and of at most 1",
    }
    assert FORMS["table"].from_text("no table") == "no table"


# --- secrets ---


def test_secret_is_never_shown() -> None:
    """Neither as it is set nor as it holds; that there is none may be seen."""
    password = FORMS["password"]

    assert password.shown(SecretStr("hunter2")) == password.shown("hunter2") == "********"
    assert password.in_toml("hunter2") == '"********"'
    assert password.shown(None) is None


def test_credentials_in_an_address_are_masked() -> None:
    """Also in what is told about a wrong value."""
    url = SETTINGS["docker_url"]

    assert url.shown("tcp://me:secret@host:1") == "tcp://********@host:1"
    assert url.shown("unix:///var/run/docker.sock") == "unix:///var/run/docker.sock"


# --- the definition ---


def test_line_of_a_key_is_found() -> None:
    """Tables, dotted and quoted keys; not what only looks like one inside a text."""
    text = '''a = 1
[pool] # comment
  "b" = 2
c.d = """
[other]
e = 1
"""
f=3
[ server ]
g = 1'''

    assert lines_of_keys(text) == {
        "a": 1,
        "pool": 2,
        "pool.b": 3,
        "pool.c.d": 4,
        "pool.f": 8,
        "server": 9,
        "server.g": 10,
    }


def test_template_with_every_line_set_is_the_default(file: Path) -> None:
    """What `config default` prints can be used as it is, and with every line uncommented."""
    file.write_text(template())
    assert load(file=file, environment={}).config == Config()

    file.write_text(re.sub(r"^#(?=\w)", "", template(), flags=re.MULTILINE))
    loaded = load(file=file, environment={})
    assert loaded.config == Config()
    assert {origin.kind for origin in loaded.origins.values()} == {"file"}


def test_tables_with_names_are_read_together(file: Path) -> None:
    """Each [environments.NAME] and [policies.NAME] is one entry; other keys stay settings."""
    file.write_text(
        "config_version = 1\n"
        "[environments]\nenvironment_builds = 2\n"
        '[environments."python3.12"]\nimage = "x:1"\n'
        '[environments.own]\ndockerfile = "/d"\nmemory_limit_bytes = "1g"\n'
        'env_vars = { A = "secret" }\ncommand_policy = "ci"\n'
        '[policies.ci]\nextends = "strict"\n'
    )
    loaded = load(file=file, environment={})
    config = loaded.config

    assert config.environment_builds == 2
    assert sorted(config.environments) == ["own", "python3.12"]
    assert config.environments["own"].memory_limit_bytes == 1 << 30
    assert config.policies == {"ci": {"extends": "strict"}}
    assert config.policy_names == ["strict", "strict-node", "open", "ci"]
    shown = SETTINGS["environments"].in_toml(config.environments)
    assert "secret" not in shown
    assert '"x:1"' in shown


def test_problem_in_a_named_table_has_its_line(file: Path) -> None:
    """With the key that was probably meant."""
    file.write_text(
        "config_version = 1\n"
        "[environments.own]\nmemory = 1\n"
        '[environments.two]\nimage = "a"\ndockerfile = "b"\n'
    )
    with pytest.raises(ConfigInvalid) as caught:
        load(file=file, environment={})

    assert [str(problem) for problem in caught.value.problems] == [
        f"{file}:3: environments.own.memory: unknown key; did you mean memory_limit_bytes?",
        f"{file}:4: environments.two: give `dockerfile` or `image`, not both",
    ]


def test_every_setting_is_documented() -> None:
    """Each has a description and a table, and is in the page."""
    text = page()
    for setting in SETTINGS.values():
        assert setting.description.endswith("."), setting.name
        assert setting.table in TABLES
        assert f"| `{setting.name}` | `{setting.variable}` |" in text


def test_names_say_their_units() -> None:
    """A size, and whatever is measured in something, has its unit in its name."""
    for setting in SETTINGS.values():
        if setting.kind is Kind.SIZE:
            assert setting.name.endswith("_bytes")
        if setting.kind is Kind.NUMBER:
            units = ("_seconds", "_minutes", "_hours", "_days", "_per_second")
            assert setting.name.endswith(units)
