"""Every setting of the daemon, once: name, type, default, bounds, and what it does.

Flags, environment variables, keys of the file, `sandboxd config` and docs/configuration.md all come
from here.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

ACCOUNT_NAME = re.compile("[a-z_][a-z0-9_-]{0,31}")
"""What useradd accepts."""
AGGRESSIVE_SECONDS = 30.0
"""How long warm sandboxes stay that nobody needs, with AGGRESSIVE_CLEANUP."""
_SIZES = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


def _bytes(value: object) -> object:
    """Accept `256m`, as Docker writes it."""
    if not isinstance(value, str):
        return value
    match = re.fullmatch(r"\s*(\d+)\s*([bkmg]?)b?\s*", value.lower())
    if match is None:
        raise ValueError("write a size as a number of bytes or with k, m or g, for example 256m")
    return int(match[1]) * _SIZES[match[2]]


SIZE = BeforeValidator(_bytes)
Bytes = Annotated[int, SIZE]


def _setting(default: Any, *names: str, **constraints: Any) -> Any:
    """A setting read from SANDBOXD_<NAME> or, where it is named so elsewhere too, from <NAME>."""
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
    """The setting it begins with; those that follow belong to it too."""
    about: str


TABLES = {
    "server": Table("host", "Where the daemon listens and what it keeps on the host."),
    "sandbox": Table("guest_runtime", "What sandboxes are made from."),
    "pool": Table("pool_size", "Warm sandboxes, and how many there may be."),
    "session": Table("session_timeout_minutes", "How long sessions live."),
    "limits": Table("memory_limit_bytes", "What the commands of one sandbox may use."),
    "exec": Table("default_exec_seconds", "Commands: time limits, how many, how long kept."),
    "output": Table("spool_bytes", "What is kept of output."),
    "access": Table("tokens_file", "Who may call, and how much; see docs/access.md."),
    "records": Table("history_per_session", "History, audit log, metrics and traces."),
    "daemon": Table("max_calls", "How the daemon itself behaves."),
}


class Config(BaseModel):
    """Everything that can be set, read once at start."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        populate_by_name=True,
        use_attribute_docstrings=True,
    )

    host: str = _setting("127.0.0.1", "HOST")
    """Address of the TCP listener; empty means none. Beyond loopback only with tokens or client
    certificates."""
    port: int = _setting(5000, "PORT", ge=0, le=65535)
    """Port of the TCP listener; 0 lets the kernel choose."""
    worker_id: str = _setting(socket.gethostname, "WORKER_ID")
    """Name of this daemon among others; the host's name unless it is set."""
    state_dir: Path = _own(Path("/var/lib/sandboxd"), "STATE_DIR")
    """Registry, lock and what else outlives the process."""
    run_dir: Path = _own(Path("/run/sandboxd"), "RUN_DIR")
    """Sockets; gone after a reboot."""
    socket_path: Path | None = _own(None, "SOCKET")
    """Unix socket of the API; absent means `sandboxd.sock` in the run directory."""
    guest_runtime: Path | None = _own(None, "GUEST_RUNTIME")
    """The guest's Python; absent means `runtime/current` in the state directory."""
    docker_url: str | None = _setting(None, "DOCKER_HOST")
    """Docker Engine; absent means the local one."""
    container_image: str = _setting("sandbox-secure:latest", "CONTAINER_IMAGE")
    """Image of new sandboxes."""
    container_runtime: str | None = _own(None, "CONTAINER_RUNTIME")
    """OCI runtime of new sandboxes; absent means the engine's default."""
    docker_network_mode: str = _setting("none", "DOCKER_NETWORK_MODE", pattern="^none$")
    """Sandboxes have no network; no other value is accepted."""
    sandbox_uid_start: int = _own(200_000, "UID_START", ge=1000)
    """First of the uids that sandboxes get, one each."""
    sandbox_uid_count: int = _own(4096, "UID_COUNT", ge=1)
    """How many there are."""
    sandbox_user: str = _setting("sandboxuser", "SANDBOX_USER", pattern=f"^{ACCOUNT_NAME.pattern}$")
    """Name under which commands see themselves."""
    workspace_dir: str = _setting("/workspace", "WORKSPACE_DIR", pattern="^/[a-z0-9_/-]+$")
    """Where commands start and keep their files."""

    pool_size: int = _setting(10, "POOL_SIZE", ge=0)
    """Warm sandboxes at the start, and the most that are kept for opens to come."""
    min_pool_size: int = _setting(3, "MIN_POOL_SIZE", ge=0)
    """Warm sandboxes that stay, however long nobody needs them."""
    max_pool_size: int = _setting(80, "MAX_POOL_SIZE", ge=1)
    """Sandboxes there may be in all: warm, starting and in sessions."""
    pool_idle_minutes: float = _setting(5.0, "CONTAINER_IDLE_TIMEOUT_MINUTES", gt=0)
    """How long warm sandboxes stay that no burst of opens has needed; the minimum always stays."""
    aggressive_cleanup: bool = _setting(False, "AGGRESSIVE_CLEANUP")
    """Whether they go after half a minute already, if the idle time is longer."""
    start_concurrency: int = _own(8, "START_CONCURRENCY", ge=1)
    """The most sandboxes being started at once; fewer where that makes each start slower."""
    open_wait_seconds: float = _own(30.0, "OPEN_WAIT_SECONDS", gt=0)
    """How long OpenSession waits for a sandbox when none is warm, or all are in use."""
    open_queue: int = _own(64, "OPEN_QUEUE", ge=0)
    """Opens that wait for sessions to close when all sandboxes are in use; users take turns."""
    sweep_interval_seconds: float = _setting(300.0, "CLEANUP_INTERVAL_SECONDS", gt=0)
    """How often containers that nobody holds are looked for."""
    health_interval_seconds: float = _own(15.0, "POOL_HEALTH_SECONDS", gt=0)
    """How often warm sandboxes are asked whether they still answer."""

    session_timeout_minutes: float = _setting(30.0, "SESSION_TIMEOUT_MINUTES", gt=0)
    """Idle time after which a session expires, unless it says otherwise."""
    session_memory_hours: float = _own(24.0, "SESSION_MEMORY_HOURS", gt=0)
    """How long an ended session is remembered, so that its id can be answered truthfully."""
    max_ended_sessions: int = _own(10_000, "MAX_ENDED_SESSIONS", ge=100)
    """Ended sessions that are remembered; beyond, the oldest are forgotten before their time."""

    memory_limit_bytes: Bytes = _setting(256 << 20, "MEMORY_LIMIT", ge=32 << 20)
    """Memory for all commands of a sandbox together. Its guest has a little of its own besides."""
    cpu_quota_us: int = _setting(100_000, "CPU_QUOTA", ge=0)
    """CPU microseconds per 100 ms for all commands of a sandbox; 0 means no limit."""
    max_processes: int = _own(128, "MAX_PROCESSES", ge=16)
    """Processes and threads of all commands of a sandbox."""
    max_open_files: int = _own(1024, "MAX_OPEN_FILES", ge=64)
    """Open files of one process."""
    workspace_backend: str = _own("auto", "WORKSPACE_BACKEND", pattern="^(auto|disk|memory)$")
    """`disk`: a filesystem of its own for each workspace, or the daemon does not start; `memory`: a
    part of the memory limit; `auto`: disk where the host can, otherwise memory, and the status says
    which."""
    max_workspace_mb: int = _setting(500, "MAX_WORKSPACE_SIZE_MB", ge=1)
    """Size of a workspace. In memory it is at most a quarter of the memory limit."""
    disk_reserve_mb: int = _own(1024, "DISK_RESERVE_MB", ge=0)
    """Free space of the host's disk that workspaces leave; below, no new ones are made."""
    workspace_write_mb: int = _own(200, "WORKSPACE_WRITE_MB", ge=0)
    """Megabytes per second that a workspace on disk takes; 0 means no limit."""
    max_total_files: int = _setting(1000, "MAX_TOTAL_FILES", ge=16)
    """Files and directories that a workspace holds."""
    max_file_mb: int = _setting(100, "MAX_FILE_SIZE_MB", ge=1)
    """Size of a single file."""
    max_project_mb: int = _own(500, "MAX_PROJECT_SIZE_MB", ge=1)
    """Size of the project files of a session, which are no part of its workspace's size."""
    max_project_files: int = _own(1000, "MAX_PROJECT_FILES", ge=1)
    """Project files and directories of a session."""
    workspace_layout: str = _own("shared", "WORKSPACE_LAYOUT", pattern="^(shared|separate)$")
    """`shared`: agent_workspace is another name of the workspace itself; `separate`: a directory of
    its own in it, where commands and relative paths start."""

    default_exec_seconds: float = _own(30.0, "EXEC_TIMEOUT_SECONDS", gt=0)
    """Time limit of a command that names none."""
    max_exec_seconds: float = _own(3600.0, "MAX_EXEC_TIMEOUT_SECONDS", gt=0)
    """The longest time limit that a command may name."""
    max_running_execs: int = _own(32, "MAX_RUNNING_EXECS", ge=1)
    """Commands at once in one session."""
    max_running_execs_in_all: int = _own(2048, "MAX_RUNNING_EXECS_IN_ALL", ge=1)
    """Commands at once in all sessions."""
    exec_memory_minutes: float = _own(10.0, "EXEC_MEMORY_MINUTES", gt=0)
    """How long output and end of a command are there for late readers."""
    command_policy: str = _own("strict", "COMMAND_POLICY", pattern="^(strict|open|custom)$")
    """`strict`: commands of a short allow-list; `open`: any; `custom`: as the policy file says. It
    is advice to agents: what commands can do is up to the kernel."""
    command_policy_file: Path | None = _own(None, "COMMAND_POLICY_FILE")
    """TOML file of the policy `custom`."""
    spool_bytes: Bytes = _own(64 << 20, "SPOOL_BYTES", ge=64 << 10)
    """Bytes of each output stream that are kept; beyond, the middle is dropped."""
    session_spool_bytes: Bytes = _own(256 << 20, "SESSION_SPOOL_BYTES", ge=64 << 10)
    """Bytes of output that are kept for one session, on disk."""
    total_spool_bytes: Bytes = _own(4 << 30, "TOTAL_SPOOL_BYTES", ge=64 << 10)
    """Bytes of output that are kept in all, on disk."""
    max_run_output_bytes: Bytes = _own(1 << 20, "MAX_RUN_OUTPUT", ge=1024, le=4 << 20)
    """Bytes of each stream that Run returns."""
    upload_idle_seconds: float = _own(60.0, "UPLOAD_IDLE_SECONDS", gt=0)
    """How long an upload may pause before it is given up."""

    tokens_file: Path | None = _own(None, "TOKENS_FILE")
    """Who may call: one line for each token, with its hash; SIGHUP reads it again. Absent means
    that whoever reaches a listener may do everything."""
    socket_auth: str = _own("peer", "SOCKET_AUTH", pattern="^(peer|token)$")
    """Unix socket: `peer`: whoever may open it may do everything; `token`: as over TCP."""
    tls_cert: Path | None = _own(None, "TLS_CERT")
    """Certificate of the TCP listener with its chain, PEM; absent means no TLS. SIGHUP reads it,
    the key and the CA again."""
    tls_key: Path | None = _own(None, "TLS_KEY")
    """Private key of the certificate, PEM, without a passphrase."""
    tls_client_ca: Path | None = _own(None, "TLS_CLIENT_CA")
    """CA of the certificates that clients have to show, PEM; absent means that they need none."""
    allow_network_access_without_authentication: bool = _own(
        False, "ALLOW_NETWORK_ACCESS_WITHOUT_AUTHENTICATION"
    )
    """Whether HOST may be beyond loopback although nobody is asked who they are."""
    reflection: bool = _own(True, "REFLECTION")
    """Whether tools can ask for the API's description."""
    max_user_sessions: int = _own(0, "MAX_USER_SESSIONS", ge=0)
    """Sessions of one user at once; 0 means no limit but that of the pool."""
    max_user_running_execs: int = _own(0, "MAX_USER_RUNNING_EXECS", ge=0)
    """Commands at once in all sessions of one user; 0 means no limit but those of exec."""
    max_user_spool_bytes: Bytes = _own(0, "MAX_USER_SPOOL_BYTES", ge=0)
    """Bytes of output that are kept for all sessions of one user, on disk; 0 means no limit but
    those of output."""
    user_calls_per_second: float = _own(0.0, "USER_CALLS_PER_SECOND", ge=0)
    """Calls that a token which is no admin's may make on average; 0 means no limit."""
    user_calls_burst: int = _own(100, "USER_CALLS_BURST", ge=1)
    """Calls it may make at once before."""

    history_per_session: int = _own(1000, "HISTORY_PER_SESSION", ge=0)
    """Ended commands that ListExecutions tells of, for one session."""
    history_in_all: int = _own(100_000, "HISTORY_IN_ALL", ge=0)
    """Ended commands that are remembered, for all sessions."""
    audit_file_mb: int = _own(16, "AUDIT_FILE_MB", ge=1)
    """Size at which the audit log begins its next file."""
    audit_total_mb: int = _own(256, "AUDIT_TOTAL_MB", ge=1)
    """Size of the whole audit log; the oldest files go first."""
    audit_max_files: int = _own(1000, "AUDIT_MAX_FILES", ge=2)
    """Files of the audit log."""
    audit_days: float = _own(90.0, "AUDIT_DAYS", gt=0)
    """Age at which a file of the audit log goes."""
    metrics_port: int = _own(0, "METRICS_PORT", ge=0, le=65535)
    """Port on 127.0.0.1 for /metrics (Prometheus) and /health over HTTP; 0 means none."""
    traces: bool = _own(False, "TRACES")
    """Whether traces are sent, to where the OTEL_EXPORTER_OTLP_* variables say. Needs the extra
    `otel`."""
    max_calls: int = _own(4096, "MAX_CALLS", ge=1)
    """Calls served at once; one more is refused."""
    examine: bool = _own(True, "EXAMINE")
    """Whether the daemon attacks a sandbox of its own at start, to prove the isolation."""
    grace_seconds: float = _own(120.0, "GRACE_SECONDS", ge=0)
    """How long commands go on without their daemon, after a crash or a stop that keeps sessions."""
    keep_sessions: bool = _own(False, "KEEP_SESSIONS")
    """Whether a stop (SIGTERM) leaves sessions, with what runs in them, to the next daemon."""
    drain_seconds: float = _own(5.0, "DRAIN_SECONDS", ge=0)
    """How long running calls get to finish at shutdown."""
    log_level: str = _own("info", "LOG_LEVEL", pattern="^(debug|info|warning|error)$")
    """What is logged: this and what is graver."""

    @model_validator(mode="after")
    def _consistent(self) -> Config:
        if problems := list(self._contradictions()):
            raise ValueError("\n".join(problems))
        return self

    def _contradictions(self) -> Iterator[str]:
        """One sentence for each, with the settings by their names in the environment."""
        if not self.min_pool_size <= self.max_pool_size:
            yield "MIN_POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.pool_size > self.max_pool_size:
            yield "POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.max_pool_size >= self.sandbox_uid_count:
            # One more for the sandbox that the daemon examines.
            yield "SANDBOXD_UID_COUNT must be more than MAX_POOL_SIZE"
        if self.default_exec_seconds > self.max_exec_seconds:
            yield "SANDBOXD_EXEC_TIMEOUT_SECONDS must not exceed SANDBOXD_MAX_EXEC_TIMEOUT_SECONDS"
        if (self.command_policy == "custom") != (self.command_policy_file is not None):
            yield "SANDBOXD_COMMAND_POLICY=custom and SANDBOXD_COMMAND_POLICY_FILE go together"
        if self.is_on_network and not self.asks_who_calls:
            yield (
                f"HOST={self.host} would open the API to the network without authentication; set "
                "SANDBOXD_TOKENS_FILE or SANDBOXD_TLS_CLIENT_CA, use 127.0.0.1, or leave HOST "
                "empty and use the unix socket"
            )
        if (self.tls_cert is None) != (self.tls_key is None):
            yield "SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY go together"
        if self.tls_client_ca is not None and self.tls_cert is None:
            yield "SANDBOXD_TLS_CLIENT_CA needs SANDBOXD_TLS_CERT and SANDBOXD_TLS_KEY"
        if self.socket_auth == "token" and self.tokens_file is None:
            yield "SANDBOXD_SOCKET_AUTH=token needs SANDBOXD_TOKENS_FILE"

    @property
    def is_on_network(self) -> bool:
        return self.host not in ("", "127.0.0.1", "::1", "localhost")

    @property
    def asks_who_calls(self) -> bool:
        """Whether TCP is for those with a token or a certificate, or open on purpose."""
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
        """How long warm sandboxes stay that nobody needs."""
        seconds = self.pool_idle_minutes * 60
        return min(seconds, AGGRESSIVE_SECONDS) if self.aggressive_cleanup else seconds

    @property
    def workspace_bytes(self) -> int:
        return self.max_workspace_mb << 20

    @property
    def max_file_bytes(self) -> int:
        return self.max_file_mb << 20

    @property
    def start_dir(self) -> str:
        """Where commands and relative paths of requests start."""
        is_separate = self.workspace_layout == "separate"
        return f"{self.workspace_dir}/agent_workspace" if is_separate else self.workspace_dir

    def with_workspace_in_memory(self) -> Config:
        """What holds where workspaces are a part of the memory limit."""
        most = max(1, (self.memory_limit_bytes // 4) >> 20)
        size = min(self.max_workspace_mb, most)
        return self.model_copy(update={"workspace_backend": "memory", "max_workspace_mb": size})
