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
    model_validator,
)

ACCOUNT_NAME = re.compile("[a-z_][a-z0-9_-]{0,31}")
"""Names that useradd accepts."""
CONFIGURED_NAME = re.compile(r"[a-z][a-z0-9_.-]{0,63}", re.ASCII)
"""Names of environments and of command policies; they become part of names of images."""
CONFIGURED_NAME_RULE = "1 to 64 lower-case letters, digits or . _ -, a letter first"
BUILT_IN_POLICIES = ("strict", "strict-node", "open", "custom")
AGGRESSIVE_SECONDS = 30.0
"""Seconds that surplus warm sandboxes are kept with AGGRESSIVE_CLEANUP."""
DATA_PACKAGES = (
    *("beautifulsoup4", "duckdb", "httpx", "jinja2", "lxml", "matplotlib", "networkx", "numpy"),
    *("openpyxl", "pandas", "pillow", "plotly", "polars", "pyarrow", "pydantic", "pypdf", "pytest"),
    *("python-dateutil", "python-docx", "python-pptx", "pyyaml", "reportlab", "requests", "rich"),
    *("scikit-learn", "scipy", "seaborn", "sqlalchemy", "statsmodels", "sympy", "tabulate"),
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
    "packages": Table(
        "packages_policy", "Packages that sessions can ask for; see docs/packages.md."
    ),
    "limits": Table("memory_limit_bytes", "Limits on the commands and files of one sandbox."),
    "exec": Table(
        "default_exec_seconds", "Commands: time limits, concurrency, retention and policy."
    ),
    "policies": Table(
        "policies", "Further command policies, by name; see docs/policy.md.", named="policies"
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

    @model_validator(mode="after")
    def _has_one_source(self) -> EnvironmentTable:
        if self.dockerfile is not None and self.image is not None:
            raise ValueError("give `dockerfile` or `image`, not both")
        return self


def _check_names(tables: dict[str, Any]) -> dict[str, Any]:
    for name in tables:
        if not CONFIGURED_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is not a valid name; use {CONFIGURED_NAME_RULE}")
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

    memory_limit_bytes: Bytes = _setting(256 << 20, "MEMORY_LIMIT", ge=32 << 20)
    """Memory for all commands of a sandbox together. The guest has a small amount in addition."""
    cpu_quota_us: int = _setting(100_000, "CPU_QUOTA", ge=0)
    """CPU microseconds per 100 ms for all commands of a sandbox; 0 means no limit."""
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
    command_policy: str = _own("strict", "COMMAND_POLICY", pattern=f"^{CONFIGURED_NAME.pattern}$")
    """Which commands may run, unless a session asks for another policy. `strict`: those on a short
    allow-list; `open`: all; `custom`: those that the policy file allows; or a name from [policies].
    It guides agents; the kernel enforces what commands can do."""
    command_policy_file: Path | None = _own(None, "COMMAND_POLICY_FILE")
    """TOML file of the command policy `custom`."""
    policies: Annotated[dict[str, dict[str, Any]], AfterValidator(_check_names)] = _own(
        dict, "POLICIES"
    )
    """Tables [policies.NAME] with the keys of a policy file."""
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
    """Maximum number of sessions of one user; 0 means that only the pool limits them."""
    max_user_running_execs: int = _own(0, "MAX_USER_RUNNING_EXECS", ge=0)
    """Maximum number of running commands of one user; 0 means that only the limits in [exec]
    apply."""
    max_user_spool_bytes: Bytes = _own(0, "MAX_USER_SPOOL_BYTES", ge=0)
    """Bytes of output that are kept on disk for one user; 0 means that only the limits in [output]
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
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY need each other; set both or neither"
        if self.tls_client_ca is not None and self.tls_cert is None:
            yield "SANDBOXD_TLS_CLIENT_CA needs SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY"
        if self.socket_auth == "token" and self.tokens_file is None:
            yield "SANDBOXD_SOCKET_AUTH=token needs SANDBOXD_TOKENS_FILE"

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
        for name, table in self.environments.items():
            if table.command_policy and table.command_policy not in self.policy_names:
                yield (
                    f"SANDBOXD_ENVIRONMENTS: {name} has the command policy "
                    f"{table.command_policy}, which is not defined; {self._known}"
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
    def _known(self) -> str:
        return f"there are {', '.join(self.policy_names)}"

    @property
    def is_on_network(self) -> bool:
        return self.host not in ("", "127.0.0.1", "::1", "localhost")

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
