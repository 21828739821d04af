"""Every setting of the daemon: name, type, default, bounds and description.

Flags, environment variables, keys of the file, `sandboxd config` and docs/configuration.md are all
generated from this module.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

ACCOUNT_NAME = re.compile("[a-z_][a-z0-9_-]{0,31}")
"""Names that useradd accepts."""
CONFIGURED_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}", re.ASCII)
"""Names of environments and of command policies; they become part of names of images."""
UPSTREAM_NAME = re.compile(r"[a-z][a-z0-9-]{0,61}[a-z0-9]", re.ASCII)
"""Names of upstreams; they become part of names of hosts."""
CONFIGURED_NAME_RULE = "1 to 64 lower-case letters, digits or . _ -, a letter first"
BUILT_IN_POLICIES = ("strict", "strict-node", "open", "custom")
HTTP_ADDRESS = re.compile(r"unix:/.+|(\[[0-9a-fA-F:]+\]|[^:/\[\]\s]+):\d{1,5}")
LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERY_ADDRESS = ("", "0.0.0.0", "::")
BUILT_IN_CODE_POLICIES = ("open", "strict")
CODE_POLICY_LISTS = ("allowed_modules", "blocked_calls")
AGGRESSIVE_SECONDS = 30.0
"""Seconds that surplus warm sandboxes are kept with AGGRESSIVE_CLEANUP."""
DATA_PACKAGES = (
    *("aiohttp", "beautifulsoup4", "duckdb", "httpx", "jinja2", "lxml", "matplotlib", "networkx"),
    *("numpy", "openpyxl", "pandas", "pillow", "plotly", "polars", "pyarrow", "pydantic", "pypdf"),
    *("pytest", "python-dateutil", "python-docx", "python-pptx", "pyyaml", "reportlab", "requests"),
    *("rich", "scikit-learn", "scipy", "seaborn", "sqlalchemy", "statsmodels", "sympy", "tabulate"),
    *("tqdm", "xlsxwriter"),
)
"""Packages that sessions can ask for unless the operator says otherwise."""
NPM_PACKAGES = (
    *("ajv", "axios", "chalk", "cheerio", "commander", "csv-parse", "csv-stringify", "d3"),
    *("date-fns", "dayjs", "decimal.js", "esbuild", "express", "fast-xml-parser", "fastify"),
    *("handlebars", "js-yaml", "jsdom", "lodash", "lodash-es", "luxon", "marked", "mathjs"),
    *("mustache", "nanoid", "p-limit", "papaparse", "prettier", "ramda", "rxjs", "semver", "tsx"),
    *("typescript", "uuid", "vitest", "ws", "yaml", "zod"),
)
"""The same for packages of npm."""
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _bytes(value: object) -> object:
    """Accept sizes such as `256m`, as Docker does."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([bkmg]?)b?\s*", value.lower())
    if match is None:
        raise ValueError("write a size as a number of bytes or with k, m or g, for example 256m")
    return int(match[1]) * _SIZES[match[2]]


SIZE = BeforeValidator(_bytes)
Bytes = Annotated[int, SIZE]


def _setting(default: Any, *names: str, **constraints: Any) -> Any:
    """A setting read from SANDBOXD_<NAME>, or from <NAME> where that name is common."""
    choices = [choice for name in names for choice in (f"SANDBOXD_{name}", name)]
    return _field(default, AliasChoices(*choices), constraints)


def _own(default: Any, name: str, **constraints: Any) -> Any:
    """A setting read from SANDBOXD_<NAME> only."""
    return _field(default, f"SANDBOXD_{name}", constraints)


def _field(default: Any, alias: str | AliasChoices, constraints: dict[str, Any]) -> Any:
    if callable(default):
        return Field(default_factory=default, validation_alias=alias, **constraints)
    return Field(default, validation_alias=alias, **constraints)


def _check_http_address(text: str) -> str:
    if text and not HTTP_ADDRESS.fullmatch(text):
        raise ValueError("write HOST:PORT, or unix:/PATH for a unix socket")
    return text


def _listed(text: str) -> Sequence[str]:
    """What stands between the commas."""
    return [part for part in (part.strip().lower() for part in text.split(",")) if part]


class Table(NamedTuple):
    """A table of the file."""

    first: str
    """The first setting of the table; those that follow belong to it too."""
    about: str
    named: str = ""
    """The setting that holds the tables within this one, [table.NAME], by their names."""


TABLES = {
    "server": Table("host", "Where the daemon listens and where it keeps its files."),
    "sandbox": Table("guest_runtime", "How sandboxes are made."),
    "environments": Table(
        "environment_builds",
        "Environments that sessions can be opened in; see docs/environments.md.",
        named="environments",
    ),
    "pool": Table("pool_size", "Warm sandboxes and the number of sandboxes."),
    "session": Table("session_timeout_minutes", "Lifetime of sessions."),
    "snapshots": Table("snapshots", "Snapshots and parked sessions; see docs/snapshots.md."),
    "cluster": Table("redis_host", "Several daemons that share sessions; see docs/cluster.md."),
    "packages": Table(
        "packages_policy", "Packages that sessions can ask for; see docs/packages.md."
    ),
    "doors": Table(
        "egress_allow", "What sessions may reach, and who reaches them; see docs/doors.md."
    ),
    "upstreams": Table(
        "upstreams", "Servers with a secret, by name; see docs/doors.md.", named="upstreams"
    ),
    "limits": Table("memory_limit_bytes", "Limits on the commands and files of one sandbox."),
    "exec": Table(
        "default_exec_seconds", "Commands: time limits, concurrency, retention and policy."
    ),
    "policies": Table(
        "policies", "Further command policies, by name; see docs/policy.md.", named="policies"
    ),
    "data_sources": Table(
        "data_sources",
        "Databases that sessions can query, by name; see docs/data.md.",
        named="data_sources",
    ),
    "code": Table("default_code_seconds", "Contexts that run code; see docs/code.md."),
    "code_policies": Table(
        "code_policies", "Further code policies, by name; see docs/code.md.", named="code_policies"
    ),
    "output": Table("spool_bytes", "Output that is kept, and transfers."),
    "access": Table("tokens_file", "Who may call, and limits for each user; see docs/access.md."),
    "records": Table("history_per_session", "History, audit log, metrics and traces."),
    "daemon": Table("max_calls", "Behaviour of the daemon itself."),
}


Variables = Annotated[dict[str, str], Field(max_length=256)]


class EnvironmentTable(BaseModel):
    """The table of one environment, [environments.NAME]; what it omits is as for `default`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    description: str = Field(default="", max_length=200)
    dockerfile: Path | None = None
    """Dockerfile to build it from; the build argument BASE is the image of `default`."""
    image: str | None = Field(default=None, pattern="^[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,255}$")
    """Image to use as it is; it is pulled if the engine does not have it."""
    memory_limit_bytes: Bytes | None = Field(default=None, ge=32 << 20)
    cpu_quota_us: int | None = Field(default=None, ge=0)
    max_processes: int | None = Field(default=None, ge=16)
    max_open_files: int | None = Field(default=None, ge=64)
    max_workspace_mb: int | None = Field(default=None, ge=1)
    max_total_files: int | None = Field(default=None, ge=16)
    max_file_mb: int | None = Field(default=None, ge=1)
    env_vars: Variables = Field(default_factory=dict)
    command_policy: str = ""
    min_warm: int = Field(default=0, ge=0)
    """Warm sandboxes that are always kept."""
    packages: Literal["python", "npm"] | None = None
    """Which packages its sessions can ask for."""
    egress: list[str] = Field(default_factory=list, max_length=64)
    """Hosts that its sessions may reach unless they ask for others."""

    @model_validator(mode="after")
    def _has_one_source(self) -> EnvironmentTable:
        if self.dockerfile is not None and self.image is not None:
            raise ValueError("give `dockerfile` or `image`, not both")
        return self


class DataSourceTable(BaseModel):
    """The table of one data source, [data_sources.NAME]. It names where the connection string is,
    and does not contain it, so that the settings can be shown."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    engine: Literal["postgresql", "sqlite"]
    description: str = Field(default="", max_length=200)
    """What it holds; shown to users and models."""
    path: Path | None = None
    """SQLite: the database file."""
    dsn_file: Path | None = None
    """PostgreSQL: file with the connection string of a login that can only read."""
    dsn_env: str = ""
    """PostgreSQL: environment variable of the daemon with it, in place of the file."""
    write_dsn_file: Path | None = None
    """PostgreSQL: file with the connection string of a login that may change `writes`."""
    write_dsn_env: str = ""
    users: list[str] = Field(default=["*"], max_length=10_000)
    """Users that may use it; `*` stands for all."""
    schemas: list[str] = Field(default=["public"], min_length=1, max_length=100)
    tables: list[str] = Field(default_factory=list, max_length=1000)
    """If there are any, the only tables that can be read."""
    functions: list[str] = Field(default_factory=list, max_length=1000)
    """Functions that statements may call in addition."""
    writes: list[str] = Field(default_factory=list, max_length=1000)
    """Tables that accept INSERT, UPDATE and DELETE."""
    log_values: bool = False
    """Whether the audit log has the values of parameters."""
    seconds: float = Field(default=10.0, gt=0, le=3600)
    rows: int = Field(default=10_000, ge=1, le=10_000_000)
    bytes: Bytes = Field(default=10_000_000, ge=1000, le=1 << 30)
    changed_rows: int = Field(default=1_000, ge=1)
    connections: int = Field(default=4, ge=1, le=100)
    user_connections: int = Field(default=2, ge=1, le=100)
    queued: int = Field(default=64, ge=1, le=10_000)
    user_queries_per_minute: int = Field(default=6_000, ge=1, le=100_000)

    @model_validator(mode="after")
    def _is_complete(self) -> DataSourceTable:
        if self.engine == "sqlite":
            if self.path is None or self.dsn_file or self.dsn_env:
                raise ValueError("an sqlite source has a `path`, and no connection string")
        elif self.path is not None or bool(self.dsn_file) == bool(self.dsn_env):
            raise ValueError("a postgresql source has `dsn_file` or `dsn_env`, and no `path`")
        elif self.writes and not (self.write_dsn_file or self.write_dsn_env):
            raise ValueError(
                "`writes` needs a login of its own: `write_dsn_file` or `write_dsn_env`"
            )
        return self


class UpstreamTable(BaseModel):
    """The table of one upstream, [upstreams.NAME]; inside it is http://NAME.door/."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(pattern=r"^https://[^/@?#\s]+(/[^@?#\s]*)?$")
    """Where requests go."""
    header: str = Field(default="Authorization", pattern="^[A-Za-z0-9-]{1,64}$")
    """Header that carries the secret."""
    value: str = Field(default="Bearer {secret}", pattern=r"^[^\r\n]*\{secret\}[^\r\n]*$")
    """Value of the header; `{secret}` stands for the secret."""
    secret_file: Path | None = None
    """File with the secret, read for each request."""
    secret_env: str | None = Field(default=None, pattern="^[A-Za-z_][A-Za-z0-9_]*$")
    """Variable of the daemon with the secret."""
    methods: list[str] = Field(default_factory=list)
    """Methods that are passed on; none listed means all."""
    users: list[str] = Field(default_factory=list)
    """Users whose sessions may use it; none listed means all."""
    requests_per_minute: int = Field(default=60, ge=1, le=60_000)
    """Requests of one session."""
    max_mb: int = Field(default=100, ge=1)
    """Megabytes in both directions together, for one session."""
    ca_file: Path | None = None
    """CA of the server, PEM; if not set, those of the host."""

    @model_validator(mode="after")
    def _has_one_secret(self) -> UpstreamTable:
        if (self.secret_file is None) == (self.secret_env is None):
            raise ValueError("give `secret_file` or `secret_env`")
        return self


def _check_names(tables: dict[str, Any]) -> dict[str, Any]:
    for name in tables:
        if not CONFIGURED_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name; use {CONFIGURED_NAME_RULE}")
    return tables


def _check_upstream_names(tables: dict[str, Any]) -> dict[str, Any]:
    for name in tables:
        if not UPSTREAM_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name; use letters, digits and -")
    return tables


class Config(BaseModel):
    """All settings, read once at start."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    host: str = _setting("127.0.0.1", "HOST")
    """Address of the TCP listener; empty means none. An address beyond loopback needs tokens or
    client certificates."""
    port: int = _setting(5000, "PORT", ge=0, le=65535)
    """Port of the TCP listener; 0 lets the kernel choose."""
    worker_id: str = _setting(socket.gethostname, "WORKER_ID")
    """Name of this daemon; the default is the name of the host."""
    state_dir: Path = _own(Path("/var/lib/sandboxd"), "STATE_DIR")
    """Directory for the registry and everything else that outlives the process."""
    run_dir: Path = _own(Path("/run/sandboxd"), "RUN_DIR")
    """Directory for sockets, which need not survive a reboot."""
    socket_path: Path | None = _own(None, "SOCKET")
    """Unix socket of the API; if not set, `sandboxd.sock` in the run directory."""
    guest_runtime: Path | None = _own(None, "GUEST_RUNTIME")
    """Directory of the guest's Python; if not set, `runtime/current` in the state directory."""
    docker_url: str | None = _setting(None, "DOCKER_HOST")
    """URL of the Docker Engine; if not set, the local one."""
    container_image: str = _setting("sandbox-secure:latest", "CONTAINER_IMAGE")
    """Image of new sandboxes."""
    container_runtime: str | None = _own(None, "CONTAINER_RUNTIME")
    """OCI runtime of new sandboxes; if not set, the engine's default."""
    docker_network_mode: str = _setting("none", "DOCKER_NETWORK_MODE", pattern="^none$")
    """Network of sandboxes. They have none; no other value is accepted."""
    sandbox_uid_start: int = _own(200_000, "UID_START", ge=1000)
    """First uid for sandboxes; each sandbox has its own."""
    sandbox_uid_count: int = _own(4096, "UID_COUNT", ge=1)
    """Number of uids for sandboxes."""
    sandbox_user: str = _setting("sandboxuser", "SANDBOX_USER", pattern=f"^{ACCOUNT_NAME.pattern}$")
    """Name of the user that commands run as."""
    workspace_dir: str = _setting("/workspace", "WORKSPACE_DIR", pattern="^/[a-z0-9_/-]+$")
    """Directory where commands start and keep their files."""

    environment_builds: int = _own(1, "ENVIRONMENT_BUILDS", ge=1, le=8)
    """Maximum number of environments that are built at the same time; others wait."""
    environment_build_seconds: float = _own(1800.0, "ENVIRONMENT_BUILD_SECONDS", ge=1)
    """Time limit of a build."""
    registry_seconds: float = _own(10.0, "REGISTRY_SECONDS", gt=0)
    """Seconds within which an image registry must begin to answer; otherwise the base is made from
    another source. The download may take longer."""
    npm_registry: str | None = _own(None, "NPM_REGISTRY", pattern="^https?://.+$")
    """URL of the one registry of npm packages, for environments and for sessions; if not set, that
    of the variable NPM_CONFIG_REGISTRY, of npmrc, or npm's own default."""
    environments: Annotated[dict[str, EnvironmentTable], AfterValidator(_check_names)] = _own(
        dict, "ENVIRONMENTS"
    )
    """Tables [environments.NAME] of further environments, or with changes to built-in ones."""

    pool_size: int = _setting(10, "POOL_SIZE", ge=0)
    """Warm sandboxes at start, and the most that are kept ready later."""
    min_pool_size: int = _setting(3, "MIN_POOL_SIZE", ge=0)
    """Warm sandboxes that are always kept ready."""
    max_pool_size: int = _setting(80, "MAX_POOL_SIZE", ge=1)
    """Maximum number of sandboxes: warm, starting and in sessions."""
    pool_idle_minutes: float = _setting(5.0, "CONTAINER_IDLE_TIMEOUT_MINUTES", gt=0)
    """Minutes that surplus warm sandboxes (beyond MIN_POOL_SIZE) are kept after demand drops."""
    aggressive_cleanup: bool = _setting(False, "AGGRESSIVE_CLEANUP")
    """Whether surplus warm sandboxes are removed after 30 s instead, if that is earlier."""
    start_concurrency: int = _own(8, "START_CONCURRENCY", ge=1)
    """Maximum number of concurrent sandbox starts; lowered while concurrency slows starts down."""
    open_wait_seconds: float = _own(30.0, "OPEN_WAIT_SECONDS", gt=0)
    """Seconds that OpenSession waits for a sandbox if none is warm, or all are in use."""
    open_queue: int = _own(64, "OPEN_QUEUE", ge=0)
    """Maximum number of OpenSession calls that wait while all sandboxes are in use; users take
    turns."""
    sweep_interval_seconds: float = _setting(300.0, "CLEANUP_INTERVAL_SECONDS", gt=0)
    """Seconds between searches for containers that no session or pool uses."""
    health_interval_seconds: float = _own(15.0, "POOL_HEALTH_SECONDS", gt=0)
    """Seconds between health checks of warm sandboxes."""

    session_timeout_minutes: float = _setting(30.0, "SESSION_TIMEOUT_MINUTES", gt=0)
    """Idle time after which a session expires, unless OpenSession sets another."""
    session_memory_hours: float = _own(24.0, "SESSION_MEMORY_HOURS", gt=0)
    """Hours for which an ended session is remembered, so that calls with its id get the reason."""
    max_ended_sessions: int = _own(10_000, "MAX_ENDED_SESSIONS", ge=100)
    """Maximum number of ended sessions that are remembered; the oldest are dropped first."""

    snapshots: bool = _own(True, "SNAPSHOTS")
    """Allow snapshots, where workspaces are on disks; without them, sessions cannot be parked."""
    snapshot_store: str = _own("", "SNAPSHOT_STORE", pattern="^(s3://[a-z0-9][a-z0-9./_-]+)?$")
    """Where snapshots are kept: `s3://BUCKET/PREFIX` for an object service, or nothing for a
    directory of the daemon. Credentials come from the environment (AWS_ACCESS_KEY_ID, ...)."""
    snapshot_store_endpoint: str = _own("", "SNAPSHOT_STORE_ENDPOINT", pattern=r"^(https?://\S+)?$")
    """Address of the object service; nothing means that of Amazon."""
    snapshot_store_region: str = _own("", "SNAPSHOT_STORE_REGION", pattern="^[a-z0-9-]*$")
    """Region of the object service."""
    snapshot_key_file: Path | None = _own(None, "SNAPSHOT_KEY_FILE")
    """File with the key that seals snapshots, 64 hexadecimal digits, for daemons that share a
    store; by default the daemon makes one."""
    auto_snapshot: str = _own("off", "AUTO_SNAPSHOT", pattern="^(off|commands|turns)$")
    """Automatic snapshots of sessions that ask for nothing else. `commands`: one after every
    command or file call that changed something; `turns`: one per turn that callers name; see
    docs/snapshots.md."""
    snapshot_turns: int = _own(200, "SNAPSHOT_TURNS", ge=1, le=10_000)
    """Automatic snapshots that are kept of one session; and as many that callers asked for."""
    snapshot_session_mb: int = _own(1024, "SNAPSHOT_SESSION_MB", ge=1)
    """Space that the snapshots of one session may take, beyond which automatic ones are deleted
    and requested ones refused."""
    max_user_snapshot_mb: int = _own(5120, "MAX_USER_SNAPSHOT_MB", ge=1)
    """Space that the snapshots of all sessions of one user may take in the store, those of parked
    sessions and what is about to be deleted included."""
    max_user_parked_sessions: int = _own(100, "MAX_USER_PARKED_SESSIONS", ge=0)
    """Maximum number of parked sessions of one user, on each worker of a cluster; 0 means that only
    the space of their snapshots is limited."""
    snapshot_days: float = _own(7.0, "SNAPSHOT_DAYS", gt=0)
    """Days for which automatic snapshots are kept."""
    park_after_minutes: float = _own(0.0, "PARK_AFTER_MINUTES", ge=0)
    """Idle time after which a session gives up its sandbox and keeps its files as a snapshot,
    unless it asks for another; 0 means never."""
    park_instead_of_expiry: bool = _own(False, "PARK_INSTEAD_OF_EXPIRY")
    """Park sessions that would expire."""
    parked_days: float = _own(7.0, "PARKED_DAYS", gt=0)
    """Days for which a parked session keeps its files; then it expires."""

    redis_host: str = _setting("", "REDIS_HOST")
    """Redis that daemons share to know which of them has a session; nothing means that this daemon
    is alone."""
    redis_port: int = _setting(6379, "REDIS_PORT", ge=1, le=65535)
    """Port of Redis."""
    redis_sentinels: str = _own(
        "", "REDIS_SENTINELS", pattern=r"^([^\s,:]+:[0-9]+(,[^\s,:]+:[0-9]+)*)?$"
    )
    """Sentinels that know the primary, `HOST:PORT,HOST:PORT`, in place of REDIS_HOST and
    REDIS_PORT."""
    redis_primary: str = _own("sandboxd", "REDIS_PRIMARY", min_length=1)
    """What the sentinels call the primary."""
    redis_password_file: Path | None = _own(None, "REDIS_PASSWORD_FILE")
    """File with the password for Redis, if it asks for one."""
    redis_tls: bool = _own(False, "REDIS_TLS")
    """Whether Redis is reached over TLS."""
    cluster_key_file: Path | None = _own(None, "CLUSTER_KEY_FILE")
    """File with the secret of the cluster, at least 32 characters, the same for all its daemons.
    With it they vouch for the callers of calls that they forward to each other."""
    advertise: str = _own("", "ADVERTISE", pattern=r"^(\S+:[0-9]+)?$")
    """`HOST:PORT` at which the other daemons and their clients reach this one; by default HOST and
    PORT."""
    cluster_ca_file: Path | None = _own(None, "CLUSTER_CA_FILE")
    """CA of the daemons' certificates, PEM. Without it, daemons call each other in the clear."""
    lease_seconds: float = _own(15.0, "LEASE_SECONDS", ge=1.0)
    """How long the sessions of a daemon are its own after it has renewed its lease last; the same
    for all. It stops serving after two thirds of it, and others take its sessions at its end."""
    commit_seconds: float = _own(60.0, "COMMIT_SECONDS", gt=0)
    """How often a snapshot is taken of a session that has changed, so that another daemon can
    continue it if this one is lost."""

    packages_policy: str = _own("listed", "PACKAGES_POLICY", pattern="^(off|listed|open)$")
    """Which packages sessions can ask for. `off`: none; `listed`: those of PACKAGES_ALLOW, with
    what they depend on; `open`: all that the index has."""
    packages_allow: list[str] = _own(lambda: list(DATA_PACKAGES), "PACKAGES_ALLOW")
    """Packages that sessions can ask for with the policy `listed`, such as `numpy`, `requests>=2`
    or `pandas[excel]`. Versions narrow what is installed; extras have to be listed."""
    packages_allow_npm: list[str] = _own(lambda: list(NPM_PACKAGES), "PACKAGES_ALLOW_NPM")
    """The same for environments with packages of npm, such as `lodash`, `zod@^3` or
    `@types/node@20`."""
    packages_index: str | None = _own(None, "PACKAGES_INDEX", pattern="^https?://")
    """URL of the one index of Python packages (simple API); if not set, that of the variable
    UV_DEFAULT_INDEX, UV_INDEX_URL or PIP_INDEX_URL, or uv's own default."""
    packages_set_mb: int = _own(1024, "PACKAGES_SET_MB", ge=16)
    """Maximum size of the packages of one session, with what they depend on."""
    packages_total_mb: int = _own(20480, "PACKAGES_TOTAL_MB", ge=16)
    """Size of all packages that are kept; those used longest ago are deleted first, and none that
    a session uses."""
    packages_keep_days: float = _own(30.0, "PACKAGES_KEEP_DAYS", gt=0)
    """Days after which packages that no session has used are deleted."""
    packages_fresh_hours: float = _own(24.0, "PACKAGES_FRESH_HOURS", ge=0)
    """Hours for which the versions of a request are reused before the index is asked for newer
    ones, in the background."""
    packages_min_age_days: float = _own(3.0, "PACKAGES_MIN_AGE_DAYS", ge=0)
    """Days that a release must have been on the index before it is used: most malicious releases
    are found by then. 0 also works with an index that does not report upload times; a registry of
    npm without them is not checked."""
    packages_build_seconds: float = _own(300.0, "PACKAGES_BUILD_SECONDS", ge=10)
    """Time limit for resolving, downloading and installing packages."""
    packages_user_builds_per_hour: int = _own(10, "PACKAGES_USER_BUILDS_PER_HOUR", ge=1)
    """Maximum number of package sets that are built for one user within an hour. Sets that exist
    do not count."""

    egress_allow: list[str] = _own(list, "EGRESS_ALLOW")
    """Hosts that callers may let sessions reach, such as `example.com`, `*.example.com:8443` or
    `GET+HEAD example.com:80`; nothing listed means none, except for admins and tokens with
    `egress=`."""
    egress_private: list[str] = _own(list, "EGRESS_PRIVATE")
    """Addresses that are not public and may be reached nevertheless, such as `10.1.0.0/16` or
    `127.0.0.1:8443`; an address of loopback needs a port."""
    egress_hosts: list[str] = _own(list, "EGRESS_HOSTS")
    """Names that are not looked up, with their addresses, such as `mirror.example.com=10.1.2.3`."""
    egress_mb: int = _own(1024, "EGRESS_MB", ge=1)
    """Megabytes that a session may move in both directions together while it has its sandbox."""
    egress_connections: int = _own(64, "EGRESS_CONNECTIONS", ge=1, le=1024)
    """Connections of one session at the same time."""
    egress_connection_seconds: float = _own(3600.0, "EGRESS_CONNECTION_SECONDS", ge=1)
    """Longest time of one connection."""
    preview_port: int = _own(0, "PREVIEW_PORT", ge=0, le=65535)
    """Port of the listener for previews, on loopback; 0 lets the kernel choose. It listens from
    the first preview on."""
    upstreams: Annotated[dict[str, UpstreamTable], AfterValidator(_check_upstream_names)] = _own(
        dict, "UPSTREAMS"
    )
    """Tables [upstreams.NAME] of servers that sessions reach as http://NAME.door/ with a secret
    that they never see."""

    memory_limit_bytes: Bytes = _setting(256 << 20, "MEMORY_LIMIT", ge=32 << 20)
    """Memory for all commands of a sandbox together. The guest has a small amount in addition."""
    cpu_quota_us: int = _setting(100_000, "CPU_QUOTA", ge=0)
    """CPU microseconds per 100 ms for all commands of a sandbox; 0 means no limit. The default is
    one processor, because short commands would wait for most of their time with a quarter of it
    (25000): one that computes for 30 ms then takes 105 ms, even on an idle host."""
    max_processes: int = _own(128, "MAX_PROCESSES", ge=16)
    """Maximum number of processes and threads of all commands of a sandbox."""
    max_open_files: int = _own(1024, "MAX_OPEN_FILES", ge=64)
    """Maximum number of open files of one process."""
    workspace_backend: str = _own("auto", "WORKSPACE_BACKEND", pattern="^(auto|disk|memory)$")
    """Where workspaces are. `disk`: each has a separate filesystem, and the daemon does not start
    where that is impossible; `memory`: in memory, as part of the memory limit; `auto`: on disk
    where possible, otherwise in memory, and the status reports which."""
    max_workspace_mb: int = _setting(500, "MAX_WORKSPACE_SIZE_MB", ge=1)
    """Size of a workspace. In memory, it is at most a quarter of the memory limit."""
    tmp_mb: int = _own(64, "TMP_MB", ge=1)
    """Size of /tmp and /var/tmp together, beside the workspace. In memory, it is at most a quarter
    of the memory limit, and each of the two has half of it."""
    disk_reserve_mb: int = _own(1024, "DISK_RESERVE_MB", ge=0)
    """Free space on the host's disk below which no new workspaces are made."""
    unknown_disk_hours: float = _own(72.0, "UNKNOWN_DISK_HOURS", ge=0)
    """Hours for which workspaces and project files that belong to no known session are kept, in
    directories named `unknown`, before they are deleted."""
    workspace_write_mb: int = _own(200, "WORKSPACE_WRITE_MB", ge=0)
    """Megabytes per second that can be written to a workspace on disk, and as many to /tmp and
    /var/tmp; 0 means no limit."""
    max_total_files: int = _setting(1000, "MAX_TOTAL_FILES", ge=16)
    """Maximum number of files and directories in a workspace."""
    max_file_mb: int = _setting(100, "MAX_FILE_SIZE_MB", ge=1)
    """Maximum size of a file."""
    max_project_mb: int = _own(500, "MAX_PROJECT_SIZE_MB", ge=1)
    """Maximum size of a project, or of a session's own project files, which do not count toward its
    workspace."""
    max_project_files: int = _own(1000, "MAX_PROJECT_FILES", ge=1)
    """Maximum number of files of a project, or of a session's own project files and directories."""
    max_user_projects: int = _own(100, "MAX_USER_PROJECTS", ge=1)
    """Maximum number of projects of one user."""
    max_user_projects_mb: int = _own(5120, "MAX_USER_PROJECTS_SIZE_MB", ge=1)
    """Maximum size of all projects of one user, and of uploads to them that are under way."""
    project_file_types: str = _own(
        "common", "PROJECT_FILE_TYPES", pattern=r"^[a-z0-9]+(\s*,\s*[a-z0-9]+)*$"
    )
    """Types of files that projects may have, as extensions with commas between them. `common`: all
    that the daemon can tell by their content; `none`: names without an extension; `any`: no check.
    The content has to be what the name says; see docs/projects.md."""
    workspace_layout: str = _own("shared", "WORKSPACE_LAYOUT", pattern="^(shared|separate)$")
    """What agent_workspace is. `shared`: another name of the workspace; `separate`: a directory in
    the workspace, where commands and relative paths start."""

    default_exec_seconds: float = _own(30.0, "EXEC_TIMEOUT_SECONDS", gt=0)
    """Time limit of a command that does not set one."""
    max_exec_seconds: float = _own(3600.0, "MAX_EXEC_TIMEOUT_SECONDS", gt=0)
    """Longest time limit that a command may set."""
    max_running_execs: int = _own(32, "MAX_RUNNING_EXECS", ge=1)
    """Maximum number of running commands in one session."""
    max_running_execs_in_all: int = _own(2048, "MAX_RUNNING_EXECS_IN_ALL", ge=1)
    """Maximum number of running commands in all sessions."""
    exec_memory_minutes: float = _own(10.0, "EXEC_MEMORY_MINUTES", gt=0)
    """Minutes for which the output and result of an ended command are kept."""
    command_policy: str = _own("open", "COMMAND_POLICY", pattern=f"^{CONFIGURED_NAME.pattern}$")
    """Which commands may run, unless a session asks for another policy. `open`: all; `strict`:
    those on a short allow-list; `custom`: those that the policy file allows; or a name from
    [policies]. Where it is set, also to `open`, it takes the place of a client's own default. It
    guides agents; the kernel enforces what commands can do."""
    command_policy_file: Path | None = _own(None, "COMMAND_POLICY_FILE")
    """TOML file of the command policy `custom`."""
    policies: Annotated[dict[str, dict[str, Any]], AfterValidator(_check_names)] = _own(
        dict, "POLICIES"
    )
    """Tables [policies.NAME] with the keys of a policy file."""
    data_sources: Annotated[dict[str, DataSourceTable], AfterValidator(_check_names)] = _own(
        dict, "DATA_SOURCES"
    )
    """Tables [data_sources.NAME] of databases that sessions can query."""
    default_code_seconds: float = _own(30.0, "CODE_TIMEOUT_SECONDS", gt=0)
    """Time limit of a run of code that does not set one."""
    max_contexts: int = _own(8, "MAX_CONTEXTS", ge=1, le=16)
    """Maximum number of contexts in one session."""
    code_memory_bytes: Bytes = _own(256 << 20, "CODE_MEMORY", ge=32 << 20)
    """Memory of all contexts of a session together; the memory limit of the sandbox applies too."""
    code_cpu_percent: int = _own(50, "CODE_CPU_PERCENT", ge=5)
    """CPU of all contexts of a session together, in percent of one processor; the quota of the
    sandbox applies too."""
    code_open_files: int = _own(100, "CODE_OPEN_FILES", ge=20)
    """Files that the code of a context can have open."""
    code_threads: int = _own(10, "CODE_THREADS", ge=0)
    """Threads and processes that the contexts of a session can have for each of them, besides their
    first."""
    code_policy: str = _own("open", "CODE_POLICY", pattern=f"^{CONFIGURED_NAME.pattern}$")
    """What code may do, unless a context asks for another policy. `open`: everything; `strict`: the
    modules and calls of a short list; or a name from [code_policies]. It guides agents; the kernel
    enforces what code can do."""
    code_preload: Annotated[list[str], Field(max_length=32)] = _own(list, "CODE_PRELOAD")
    """Modules that are imported before the first context is made, so that they cost contexts
    nothing."""
    code_policies: Annotated[dict[str, dict[str, Any]], AfterValidator(_check_names)] = _own(
        dict, "CODE_POLICIES"
    )
    """Tables [code_policies.NAME] with the lists `allowed_modules` and `blocked_calls`; a list that
    is missing is that of `strict`."""
    spool_bytes: Bytes = _own(64 << 20, "SPOOL_BYTES", ge=64 << 10)
    """Bytes of each output stream that are kept; of longer output, the middle is dropped."""
    session_spool_bytes: Bytes = _own(256 << 20, "SESSION_SPOOL_BYTES", ge=64 << 10)
    """Bytes of output that are kept on disk for one session."""
    total_spool_bytes: Bytes = _own(4 << 30, "TOTAL_SPOOL_BYTES", ge=64 << 10)
    """Bytes of output that are kept on disk for all sessions."""
    max_run_output_bytes: Bytes = _own(1 << 20, "MAX_RUN_OUTPUT", ge=1024, le=4 << 20)
    """Bytes of each output stream that Run returns."""
    upload_idle_seconds: float = _own(60.0, "UPLOAD_IDLE_SECONDS", gt=0)
    """Seconds without data after which an upload is aborted."""

    tokens_file: Path | None = _own(None, "TOKENS_FILE")
    """File of callers, with one line and hash for each token; SIGHUP reloads it. If not set,
    everyone who can reach a listener may do everything."""
    socket_auth: str = _own("peer", "SOCKET_AUTH", pattern="^(peer|token)$")
    """Access to the unix socket. `peer`: everyone who can open it may do everything; `token`: the
    same rules as over TCP."""
    tls_cert: Path | None = _own(None, "TLS_CERT")
    """Certificate chain of the TCP listener, PEM; if not set, there is no TLS. SIGHUP reloads the
    certificate, the key and the CA."""
    tls_key: Path | None = _own(None, "TLS_KEY")
    """Private key of the certificate, PEM, without a passphrase."""
    tls_client_ca: Path | None = _own(None, "TLS_CLIENT_CA")
    """CA of client certificates, PEM; if not set, clients need no certificate."""
    allow_network_access_without_authentication: bool = _own(
        False, "ALLOW_NETWORK_ACCESS_WITHOUT_AUTHENTICATION"
    )
    """Whether HOST may be beyond loopback without authentication."""
    reflection: bool = _own(True, "REFLECTION")
    """Whether clients can query the description of the API (gRPC reflection)."""
    max_user_sessions: int = _own(0, "MAX_USER_SESSIONS", ge=0)
    """Maximum number of sessions of one user; 0 means half of MAX_POOL_SIZE if there is a
    token file, else that only the pool limits them."""
    max_user_running_execs: int = _own(0, "MAX_USER_RUNNING_EXECS", ge=0)
    """Maximum number of running commands of one user; 0 means half of
    SANDBOXD_MAX_RUNNING_EXECS_IN_ALL if there is a token file, else that only the limits in [exec]
    apply."""
    max_user_spool_bytes: Bytes = _own(0, "MAX_USER_SPOOL_BYTES", ge=0)
    """Bytes of output that are kept on disk for one user; 0 means half of
    SANDBOXD_TOTAL_SPOOL_BYTES if there is a token file, else that only the limits in [output]
    apply."""
    max_user_calls: int = _own(0, "MAX_USER_CALLS", ge=0)
    """Maximum number of concurrent calls of one user; 0 means a quarter of SANDBOXD_MAX_CALLS.
    Admins are not limited by it, and an eighth of SANDBOXD_MAX_CALLS is reserved for them."""
    user_calls_per_second: float = _own(0.0, "USER_CALLS_PER_SECOND", ge=0)
    """Average calls per second of a token, except those of admins; 0 means no limit."""
    user_calls_burst: int = _own(100, "USER_CALLS_BURST", ge=1)
    """Calls that a token may make at once before its average rate applies."""

    history_per_session: int = _own(1000, "HISTORY_PER_SESSION", ge=0)
    """Ended commands of one session that ListExecutions returns."""
    history_in_all: int = _own(100_000, "HISTORY_IN_ALL", ge=0)
    """Ended commands of all sessions that are remembered."""
    audit_file_mb: int = _own(16, "AUDIT_FILE_MB", ge=1)
    """Size at which the audit log starts a new file."""
    audit_total_mb: int = _own(256, "AUDIT_TOTAL_MB", ge=1)
    """Maximum size of the whole audit log; the oldest files are deleted first."""
    audit_max_files: int = _own(1000, "AUDIT_MAX_FILES", ge=2)
    """Maximum number of files of the audit log."""
    audit_days: float = _own(90.0, "AUDIT_DAYS", gt=0)
    """Age in days at which a file of the audit log is deleted."""
    metrics_port: int = _own(0, "METRICS_PORT", ge=0, le=65535)
    """HTTP port on 127.0.0.1 for /metrics (Prometheus) and /health; 0 means none."""
    console_port: int = _own(5080, "CONSOLE_PORT", ge=0, le=65535)
    """HTTP port of the web console; 0 means none. `sandboxd console` prints a link that logs in."""
    console_host: str = _own("127.0.0.1", "CONSOLE_HOST")
    """Address of the web console. On another one than loopback it is served over TLS, and needs
    SANDBOXD_TOKENS_FILE, SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY."""
    console_names: str = _own("", "CONSOLE_NAMES")
    """Further names under which browsers reach the web console, separated by commas. The first is
    the one in links."""
    http_address: Annotated[str, AfterValidator(_check_http_address)] = _own(
        "127.0.0.1:8000", "HTTP_ADDRESS"
    )
    """Address of the API over HTTP, HOST:PORT or unix:/PATH; nothing means none. Beyond loopback it
    needs SANDBOXD_TOKENS_FILE or SANDBOXD_TLS_CLIENT_CA. If the port is taken, the daemon serves
    without it; see docs/http.md."""
    http_names: str = _own("", "HTTP_NAMES")
    """Further names of hosts under which the API is reached over HTTP, separated by commas."""
    http_origins: str = _own("", "HTTP_ORIGINS")
    """Origins of web pages that may call the API over HTTP (CORS), separated by commas."""
    http_open: str = _own("health,ready", "HTTP_OPEN")
    """Which of health, ready and metrics need no token over HTTP, separated by commas."""
    traces: bool = _own(False, "TRACES")
    """Whether to send traces, to the address in the OTEL_EXPORTER_OTLP_* variables. Needs the
    extra `otel`."""
    max_calls: int = _own(4096, "MAX_CALLS", ge=1)
    """Maximum number of concurrent calls; further calls are refused."""
    max_connections: int = _own(1024, "MAX_CONNECTIONS", ge=1)
    """Maximum number of connections to each listener; further ones are closed."""
    examine: bool = _own(True, "EXAMINE")
    """Whether the daemon attacks a sandbox made for that at start, to prove the isolation."""
    grace_seconds: float = _own(120.0, "GRACE_SECONDS", ge=0)
    """Seconds that commands keep running without a daemon, after a crash or a stop that keeps
    sessions."""
    keep_sessions: bool = _own(False, "KEEP_SESSIONS")
    """Whether sessions and their commands survive a stop (SIGTERM), for the next daemon."""
    drain_seconds: float = _own(5.0, "DRAIN_SECONDS", ge=0)
    """Seconds that running calls get to finish at shutdown."""
    log_level: str = _own("info", "LOG_LEVEL", pattern="^(debug|info|warning|error)$")
    """Lowest level that is logged."""

    @field_validator("state_dir", "run_dir", "guest_runtime")
    @classmethod
    def _whole(cls, path: Path | None) -> Path | None:
        """What is below is mounted into sandboxes, for which the engine needs the whole path."""
        return path and path.absolute()

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if problems := list(self._contradictions()):
            raise ValueError("\n".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        """One sentence for each contradiction, with the settings' names in the environment."""
        yield from self._contradicting_sizes()
        if self.default_exec_seconds > self.max_exec_seconds:
            yield "SANDBOXD_EXEC_TIMEOUT_SECONDS must not exceed SANDBOXD_MAX_EXEC_TIMEOUT_SECONDS"
        yield from self._policy_contradictions()
        if self.is_on_network and not self.asks_who_calls:
            yield (
                f"HOST={self.host} would open the API to the network without authentication; set "
                "SANDBOXD_TOKENS_FILE or SANDBOXD_TLS_CLIENT_CA, use 127.0.0.1, or leave HOST "
                "empty and use the unix socket"
            )
        yield from self._console_contradictions()
        if self.http_is_on_network and not self.asks_who_calls:
            yield (
                f"SANDBOXD_HTTP_ADDRESS={self.http_address} would open the API to the network "
                "without authentication; set SANDBOXD_TOKENS_FILE or SANDBOXD_TLS_CLIENT_CA, or "
                "use 127.0.0.1"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY need each other; set both or neither"
        if self.tls_client_ca is not None and self.tls_cert is None:
            yield "SANDBOXD_TLS_CLIENT_CA needs SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY"
        if self.socket_auth == "token" and self.tokens_file is None:
            yield "SANDBOXD_SOCKET_AUTH=token needs SANDBOXD_TOKENS_FILE"
        yield from self._cluster_contradictions()

    def _cluster_contradictions(self) -> Iterator[str]:
        if not self.is_worker:
            return
        if self.cluster_key_file is None:
            yield "REDIS_HOST needs SANDBOXD_CLUSTER_KEY_FILE, the same for all daemons"
        if self.snapshots and not (self.snapshot_store and self.snapshot_key_file):
            yield (
                "REDIS_HOST needs SANDBOXD_SNAPSHOT_STORE and SANDBOXD_SNAPSHOT_KEY_FILE, the same "
                "for all daemons, so that they can continue each other's sessions; or set "
                "SANDBOXD_SNAPSHOTS=false"
            )
        if not self.host and not self.advertise:
            yield "REDIS_HOST needs HOST: the other daemons call this one over TCP"
        if not self.advertise and not self.port:
            yield "REDIS_HOST needs PORT or SANDBOXD_ADVERTISE: the others have to know the port"
        if self.is_on_network and self.cluster_ca_file is None:
            yield (
                "REDIS_HOST with a HOST beyond loopback needs SANDBOXD_CLUSTER_CA_FILE, "
                "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY: daemons tell each other who calls"
            )

    @property
    def is_worker(self) -> bool:
        """Whether it shares sessions with other daemons."""
        return bool(self.redis_host or self.redis_sentinels)

    def _console_contradictions(self) -> Iterator[str]:
        if not self.console_is_on_network:
            return
        if self.tokens_file is None or self.tls_cert is None:
            yield (
                f"SANDBOXD_CONSOLE_HOST={self.console_host} would open the console to the network; "
                "set SANDBOXD_TOKENS_FILE, SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY, or use 127.0.0.1"
            )
        if self.console_host in EVERY_ADDRESS and not self.names_of_console:
            yield (
                f"SANDBOXD_CONSOLE_HOST={self.console_host} is no name that a browser could use; "
                "list the names of this host in SANDBOXD_CONSOLE_NAMES"
            )

    def _contradicting_sizes(self) -> Iterator[str]:
        if not self.min_pool_size <= self.max_pool_size:
            yield "MIN_POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.pool_size > self.max_pool_size:
            yield "POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.max_pool_size + 1 >= self.sandbox_uid_count:
            # One uid is for the sandbox that the daemon examines, one for builds of packages.
            yield "SANDBOXD_UID_COUNT must exceed MAX_POOL_SIZE by at least 2"
        if self.packages_set_mb > self.packages_total_mb:
            yield "SANDBOXD_PACKAGES_SET_MB must not exceed SANDBOXD_PACKAGES_TOTAL_MB"

    def _policy_contradictions(self) -> Iterator[str]:
        if self.command_policy == "custom" and self.command_policy_file is None:
            yield "SANDBOXD_COMMAND_POLICY=custom needs SANDBOXD_COMMAND_POLICY_FILE"
        elif self.command_policy not in self.policy_names:
            yield f"SANDBOXD_COMMAND_POLICY={self.command_policy} is not defined; {self._known}"
        if taken := self.policies.keys() & set(BUILT_IN_POLICIES):
            yield f"SANDBOXD_POLICIES must not define {', '.join(sorted(taken))} again"
        yield from self._code_policy_contradictions()
        for name, table in self.environments.items():
            if table.command_policy and table.command_policy not in self.policy_names:
                yield (
                    f"SANDBOXD_ENVIRONMENTS: {name} has the command policy "
                    f"{table.command_policy}, which is not defined; {self._known}"
                )

    def _code_policy_contradictions(self) -> Iterator[str]:
        if taken := self.code_policies.keys() & set(BUILT_IN_CODE_POLICIES):
            yield f"SANDBOXD_CODE_POLICIES must not define {', '.join(sorted(taken))} again"
        known = [*BUILT_IN_CODE_POLICIES, *self.code_policies]
        if self.code_policy not in known:
            yield (
                f"SANDBOXD_CODE_POLICY={self.code_policy} is not defined; there are "
                f"{', '.join(known)}"
            )
        for name, table in self.code_policies.items():
            for key, value in table.items():
                is_list = isinstance(value, list) and all(isinstance(v, str) for v in value)
                if key not in CODE_POLICY_LISTS or not is_list:
                    yield (
                        f"SANDBOXD_CODE_POLICIES: {name} may have only the lists of names "
                        f"{' and '.join(CODE_POLICY_LISTS)}, not {key}"
                    )

    @property
    def policy_names(self) -> Sequence[str]:
        """Names of the command policies that sessions can have."""
        built_in = [
            name
            for name in BUILT_IN_POLICIES
            if name != "custom" or self.command_policy_file is not None
        ]
        return [*built_in, *self.policies]

    @property
    def has_chosen_policy(self) -> bool:
        """Whether an operator has set the command policy, if only to what is its default."""
        return "command_policy" in self.model_fields_set

    @property
    def _known(self) -> str:
        return f"there are {', '.join(self.policy_names)}"

    @property
    def is_on_network(self) -> bool:
        return self.host not in ("", *LOOPBACK)

    @property
    def console_is_on_network(self) -> bool:
        return self.console_port != 0 and self.console_host not in LOOPBACK

    @property
    def names_of_console(self) -> Sequence[str]:
        return _listed(self.console_names)

    @property
    def http_is_on_network(self) -> bool:
        is_tcp = bool(self.http_address) and not self.http_address.startswith("unix:")
        return is_tcp and self._http_host not in LOOPBACK

    @property
    def http_is_everywhere(self) -> bool:
        """Whether it listens on every address of the host."""
        return self._http_host in EVERY_ADDRESS and not self.http_address.startswith("unix:")

    @property
    def _http_host(self) -> str:
        return self.http_address.rpartition(":")[0].removeprefix("[").removesuffix("]")

    @property
    def names_over_http(self) -> Sequence[str]:
        return _listed(self.http_names)

    @property
    def origins_over_http(self) -> Sequence[str]:
        return _listed(self.http_origins)

    @property
    def open_over_http(self) -> Sequence[str]:
        return _listed(self.http_open)

    @property
    def asks_who_calls(self) -> bool:
        """Whether TCP callers need a token or a certificate, or TCP is open on purpose."""
        return (
            self.tokens_file is not None
            or self.tls_client_ca is not None
            or self.allow_network_access_without_authentication
        )

    @property
    def api_socket(self) -> Path:
        return self.socket_path or self.run_dir / "sandboxd.sock"

    @property
    def runtime_dir(self) -> Path:
        return self.guest_runtime or self.state_dir / "runtime" / "current"

    @property
    def audit_dir(self) -> Path:
        return self.state_dir / "audit"

    @property
    def pool_idle_seconds(self) -> float:
        """Seconds that surplus warm sandboxes are kept."""
        seconds = self.pool_idle_minutes * 60
        return min(seconds, AGGRESSIVE_SECONDS) if self.aggressive_cleanup else seconds

    @property
    def workspace_bytes(self) -> int:
        return self.max_workspace_mb << 20

    @property
    def max_file_bytes(self) -> int:
        return self.max_file_mb << 20

    def with_workspace_in_memory(self) -> Config:
        """A copy for workspaces in memory, which are part of the memory limit."""
        most = max(1, (self.memory_limit_bytes // 4) >> 20)
        sizes = {
            "max_workspace_mb": min(self.max_workspace_mb, most),
            "tmp_mb": min(self.tmp_mb, most),
        }
        return self.model_copy(update={"workspace_backend": "memory", **sizes})
