import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { AutoSnapshot } from "./snapshot_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/session.proto.
 */
export declare const file_sandboxd_proto_v1_session: GenFile;
/**
 * A thread's hold on a sandbox and its workspace.
 *
 * @generated from message sandboxd.v1.Session
 */
export type Session = Message<"sandboxd.v1.Session"> & {
    /**
     * Output only. Names the session in every other call, for example `ses_4f0c...`.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Output only. User that the session belongs to.
     *
     * @generated from field: string user_id = 2;
     */
    userId: string;
    /**
     * Output only. Conversation that the session belongs to.
     *
     * @generated from field: string thread_id = 3;
     */
    threadId: string;
    /**
     * Output only. Whether the session can be used.
     *
     * @generated from field: sandboxd.v1.SessionState state = 4;
     */
    state: SessionState;
    /**
     * Output only. Number of the sandbox that this session is on, counted from 1. It increases when the
     * sandbox is replaced; `workspace_kept` in OpenSessionResponse says whether the files were kept.
     *
     * @generated from field: uint32 incarnation = 5;
     */
    incarnation: number;
    /**
     * Output only. Absolute path of the directory where commands start and keep their files.
     *
     * @generated from field: string workspace_dir = 6;
     */
    workspaceDir: string;
    /**
     * Output only. Limits on what commands may use.
     *
     * @generated from field: sandboxd.v1.SessionLimits limits = 7;
     */
    limits?: SessionLimits | undefined;
    /**
     * Output only. When the session was first opened.
     *
     * @generated from field: google.protobuf.Timestamp create_time = 8;
     */
    createTime?: Timestamp | undefined;
    /**
     * Output only. When the session expires unless it is used or touched before then; every use moves it. For a parked or stopped session,
     * when its files are deleted.
     *
     * @generated from field: google.protobuf.Timestamp expire_time = 9;
     */
    expireTime?: Timestamp | undefined;
    /**
     * Output only. Idle time after which the session expires.
     *
     * @generated from field: google.protobuf.Duration idle_timeout = 10;
     */
    idleTimeout?: Duration | undefined;
    /**
     * Output only. Labels given at OpenSession and UpdateSession.
     *
     * @generated from field: map<string, string> metadata = 11;
     */
    metadata: {
        [key: string]: string;
    };
    /**
     * Output only. Number of commands that are running.
     *
     * @generated from field: uint32 running_execs = 12;
     */
    runningExecs: number;
    /**
     * Output only. Why the session ended, as a sentence; empty while it is active.
     *
     * @generated from field: string end_reason = 13;
     */
    endReason: string;
    /**
     * Output only. What the session's commands use now. Set by GetSession, and by ListSessions with `with_usage`; absent otherwise, for a
     * session that is not active, and where the host cannot measure it.
     *
     * @generated from field: sandboxd.v1.SessionUsage usage = 14;
     */
    usage?: SessionUsage | undefined;
    /**
     * Output only. Project whose files are in `project_files/`; empty if that directory belongs to the session.
     *
     * @generated from field: string project_id = 20;
     */
    projectId: string;
    /**
     * Output only. Name of the environment that the session was opened in.
     *
     * @generated from field: string environment = 21;
     */
    environment: string;
    /**
     * Output only. What the session adds to its environment; without the values of variables, which may be secrets.
     *
     * @generated from field: sandboxd.v1.EnvironmentConfig environment_config = 22;
     */
    environmentConfig?: EnvironmentConfig | undefined;
    /**
     * Output only. Name of the command policy that its commands are checked with.
     *
     * @generated from field: string command_policy = 23;
     */
    commandPolicy: string;
    /**
     * Output only. Hosts that the session has asked to reach, as in EgressRules; empty if it has those of its environment. See GetEgress.
     *
     * @generated from field: repeated string egress = 25;
     */
    egress: string[];
    /**
     * Output only. Which automatic snapshots the session gets.
     *
     * @generated from field: sandboxd.v1.AutoSnapshot auto_snapshot = 40;
     */
    autoSnapshot: AutoSnapshot;
    /**
     * Output only. Idle time after which the session is parked; absent if it never is.
     *
     * @generated from field: google.protobuf.Duration park_after = 41;
     */
    parkAfter?: Duration | undefined;
    /**
     * Output only. Number of the snapshot that holds the files of a parked session; 0 in any other state.
     *
     * @generated from field: uint64 parked_snapshot = 42;
     */
    parkedSnapshot: bigint;
    /**
     * Output only. Number of the snapshot that its workspace was last restored from; 0 if it never was.
     *
     * @generated from field: uint64 restored_snapshot = 43;
     */
    restoredSnapshot: bigint;
    /**
     * Output only. For a fork: the session that it was made from.
     *
     * @generated from field: string forked_from = 44;
     */
    forkedFrom: string;
    /**
     * Output only. Why automatic snapshots are not being taken now, as a sentence; empty while they are, and if they are off.
     *
     * @generated from field: string snapshots_paused_because = 45;
     */
    snapshotsPausedBecause: string;
    /**
     * Output only. Data sources that code and commands of the session may query.
     *
     * @generated from field: repeated string data_sources = 50;
     */
    dataSources: string[];
};
/**
 * Describes the message sandboxd.v1.Session.
 * Use `create(SessionSchema)` to create a new message.
 */
export declare const SessionSchema: GenMessage<Session>;
/**
 * What a session adds to its environment. It holds for the life of the session, including after a reset.
 *
 * @generated from message sandboxd.v1.EnvironmentConfig
 */
export type EnvironmentConfig = Message<"sandboxd.v1.EnvironmentConfig"> & {
    /**
     * Optional. Packages to attach: of Python, for example `pandas`, `plotly>=5` or `uvicorn[standard]`, or of npm, for example `lodash`,
     * `zod@^3` or `@types/node@20`, as Environment.package_kind says; at most 50, each of at most 200 characters. No addresses, paths,
     * options, conditions or tags. They are built once, shared with other sessions that ask for the same, and read-only.
     *
     * @generated from field: repeated string packages = 1;
     */
    packages: string[];
    /**
     * Optional. Environment variables of every command. They override those of the environment; `OpenSessionRequest.env` and
     * `ExecRequest.env` override them.
     *
     * @generated from field: map<string, string> env_vars = 2;
     */
    envVars: {
        [key: string]: string;
    };
};
/**
 * Describes the message sandboxd.v1.EnvironmentConfig.
 * Use `create(EnvironmentConfigSchema)` to create a new message.
 */
export declare const EnvironmentConfigSchema: GenMessage<EnvironmentConfig>;
/**
 * What the commands of a session use at one moment, as the host's kernel counts it.
 *
 * @generated from message sandboxd.v1.SessionUsage
 */
export type SessionUsage = Message<"sandboxd.v1.SessionUsage"> & {
    /**
     * Memory in use, including the page cache.
     *
     * @generated from field: uint64 memory_bytes = 1;
     */
    memoryBytes: bigint;
    /**
     * CPU time since the sandbox was started.
     *
     * @generated from field: google.protobuf.Duration cpu_time = 2;
     */
    cpuTime?: Duration | undefined;
    /**
     * Number of processes and threads.
     *
     * @generated from field: uint32 processes = 3;
     */
    processes: number;
    /**
     * Bytes used in the workspace, as its filesystem counts them; 0 in an empty one.
     *
     * @generated from field: uint64 workspace_bytes = 4;
     */
    workspaceBytes: bigint;
    /**
     * Number of files and directories in the workspace, without those of its layout; 0 in an empty one.
     *
     * @generated from field: uint64 workspace_files = 5;
     */
    workspaceFiles: bigint;
    /**
     * Bytes used in /tmp and /var/tmp together.
     *
     * @generated from field: uint64 tmp_bytes = 6;
     */
    tmpBytes: bigint;
    /**
     * Number of files and directories in /tmp and /var/tmp together.
     *
     * @generated from field: uint64 tmp_files = 7;
     */
    tmpFiles: bigint;
};
/**
 * Describes the message sandboxd.v1.SessionUsage.
 * Use `create(SessionUsageSchema)` to create a new message.
 */
export declare const SessionUsageSchema: GenMessage<SessionUsage>;
/**
 * Limits in force for a session.
 *
 * @generated from message sandboxd.v1.SessionLimits
 */
export type SessionLimits = Message<"sandboxd.v1.SessionLimits"> & {
    /**
     * Output only. Memory for all commands of the sandbox together.
     *
     * @generated from field: uint64 memory_bytes = 1;
     */
    memoryBytes: bigint;
    /**
     * Output only. Processes and threads of all commands of the sandbox together.
     *
     * @generated from field: uint32 max_processes = 2;
     */
    maxProcesses: number;
    /**
     * Output only. CPU time per second of wall time, in thousandths; 1000 means one core, 0 means no limit.
     *
     * @generated from field: uint32 cpu_millis = 3;
     */
    cpuMillis: number;
    /**
     * Output only. Bytes that the workspace can hold.
     *
     * @generated from field: uint64 workspace_bytes = 4;
     */
    workspaceBytes: bigint;
    /**
     * Output only. Files and directories that the workspace can hold.
     *
     * @generated from field: uint32 workspace_files = 5;
     */
    workspaceFiles: number;
    /**
     * Output only. Number of commands that may run at the same time.
     *
     * @generated from field: uint32 max_running_execs = 6;
     */
    maxRunningExecs: number;
    /**
     * Output only. Timeout of a command whose request sets none.
     *
     * @generated from field: google.protobuf.Duration default_exec_timeout = 7;
     */
    defaultExecTimeout?: Duration | undefined;
    /**
     * Output only. Longest timeout that a request may set.
     *
     * @generated from field: google.protobuf.Duration max_exec_timeout = 8;
     */
    maxExecTimeout?: Duration | undefined;
    /**
     * Output only. Most bytes of each stream that Run returns.
     *
     * @generated from field: uint64 max_run_output_bytes = 9;
     */
    maxRunOutputBytes: bigint;
    /**
     * Output only. Most bytes of a single file; the kernel enforces it.
     *
     * @generated from field: uint64 max_file_bytes = 10;
     */
    maxFileBytes: bigint;
    /**
     * Output only. Bytes that /tmp and /var/tmp can hold together; they do not count toward the workspace. A sandbox starts with both empty,
     * also one that gets the files of an earlier one.
     *
     * @generated from field: uint64 tmp_bytes = 11;
     */
    tmpBytes: bigint;
    /**
     * Output only. Files and directories that /tmp and /var/tmp can hold together.
     *
     * @generated from field: uint32 tmp_files = 12;
     */
    tmpFiles: number;
};
/**
 * Describes the message sandboxd.v1.SessionLimits.
 * Use `create(SessionLimitsSchema)` to create a new message.
 */
export declare const SessionLimitsSchema: GenMessage<SessionLimits>;
/**
 * Whether a session can be used.
 *
 * @generated from enum sandboxd.v1.SessionState
 */
export declare enum SessionState {
    /**
     * Never sent. In a filter: any state.
     *
     * @generated from enum value: SESSION_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The session has a sandbox and accepts commands.
     *
     * @generated from enum value: SESSION_STATE_ACTIVE = 1;
     */
    ACTIVE = 1,
    /**
     * The session was idle for too long; OpenSession gives it a fresh sandbox.
     *
     * @generated from enum value: SESSION_STATE_EXPIRED = 2;
     */
    EXPIRED = 2,
    /**
     * The sandbox was lost, and the workspace with it: it was in memory, or its disk is gone. OpenSession gives the session a fresh one.
     *
     * @generated from enum value: SESSION_STATE_LOST = 3;
     */
    LOST = 3,
    /**
     * The session was closed and cannot be opened again under this id.
     *
     * @generated from enum value: SESSION_STATE_CLOSED = 4;
     */
    CLOSED = 4,
    /**
     * The session was idle and gave up its sandbox; its files are in a snapshot. OpenSession gives it a fresh sandbox with its files. If it is
     * not opened again within the time that the operator set, it expires and its files are deleted.
     *
     * @generated from enum value: SESSION_STATE_PARKED = 5;
     */
    PARKED = 5,
    /**
     * The session has no sandbox, because the daemon was stopped or the sandbox was lost; its files are kept on their disk. OpenSession
     * gives it a fresh sandbox with them. If it is not opened again within its idle time, it expires and its files are deleted.
     *
     * @generated from enum value: SESSION_STATE_STOPPED = 6;
     */
    STOPPED = 6
}
/**
 * Describes the enum sandboxd.v1.SessionState.
 */
export declare const SessionStateSchema: GenEnum<SessionState>;
