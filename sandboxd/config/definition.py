"""Every setting of the daemon: name, type, default, bounds and description.

Flags, environment variables, keys of the file, `sandboxd config` and docs/configuration.md are all
generated from this module.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

ACCOUNT_NAME = re.compile("[a-z_][a-z0-9_-]{0,31}")
"""Names that useradd accepts."""
AGGRESSIVE_SECONDS = 30.0
"""Seconds that surplus warm sandboxes are kept with AGGRESSIVE_CLEANUP."""
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


TABLES = {
    "server": Table("host", "Where the daemon listens and where it keeps its files."),
    "sandbox": Table("guest_runtime", "How sandboxes are made."),
    "pool": Table("pool_size", "Warm sandboxes and the number of sandboxes."),
    "session": Table("session_timeout_minutes", "Lifetime of sessions."),
    "limits": Table("memory_limit_bytes", "Limits on the commands and files of one sandbox."),
    "exec": Table(
        "default_exec_seconds", "Commands: time limits, concurrency, retention and policy."
    ),
    "output": Table("spool_bytes", "Output that is kept, and transfers."),
    "access": Table("tokens_file", "Who may call, and limits for each user; see docs/access.md."),
    "records": Table("history_per_session", "History, audit log, metrics and traces."),
    "daemon": Table("max_calls", "Behaviour of the daemon itself."),
}


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
    command_policy: str = _own("strict", "COMMAND_POLICY", pattern="^(strict|open|custom)$")
    """Which commands may run. `strict`: those on a short allow-list; `open`: all; `custom`: those
    that the policy file allows. It guides agents; the kernel enforces what commands can do."""
    command_policy_file: Path | None = _own(None, "COMMAND_POLICY_FILE")
    """TOML file of the command policy `custom`."""
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
        if not self.min_pool_size <= self.max_pool_size:
            yield "MIN_POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.pool_size > self.max_pool_size:
            yield "POOL_SIZE must not exceed MAX_POOL_SIZE"
        if self.max_pool_size >= self.sandbox_uid_count:
            # One uid is for the sandbox that the daemon examines.
            yield "SANDBOXD_UID_COUNT must be greater than MAX_POOL_SIZE"
        if self.default_exec_seconds > self.max_exec_seconds:
            yield "SANDBOXD_EXEC_TIMEOUT_SECONDS must not exceed SANDBOXD_MAX_EXEC_TIMEOUT_SECONDS"
        if (self.command_policy == "custom") != (self.command_policy_file is not None):
            yield (
                "SANDBOXD_COMMAND_POLICY=custom and SANDBOXD_COMMAND_POLICY_FILE need each other; "
                "set both or neither"
            )
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
