import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/admin_service.proto.
 */
export declare const file_sandboxd_proto_v1_admin_service: GenFile;
/**
 * Request for figures over time.
 *
 * @generated from message sandboxd.v1.WatchFiguresRequest
 */
export type WatchFiguresRequest = Message<"sandboxd.v1.WatchFiguresRequest"> & {};
/**
 * Describes the message sandboxd.v1.WatchFiguresRequest.
 * Use `create(WatchFiguresRequestSchema)` to create a new message.
 */
export declare const WatchFiguresRequestSchema: GenMessage<WatchFiguresRequest>;
/**
 * Figures over time.
 *
 * @generated from message sandboxd.v1.WatchFiguresResponse
 */
export type WatchFiguresResponse = Message<"sandboxd.v1.WatchFiguresResponse"> & {
    /**
     * One sample of each minute of the last day, oldest first; only in the first response.
     *
     * @generated from field: repeated sandboxd.v1.FigureSample minutes = 1;
     */
    minutes: FigureSample[];
    /**
     * Samples of a second, oldest first: in the first response those of the last five minutes, afterwards the new ones.
     *
     * @generated from field: repeated sandboxd.v1.FigureSample seconds = 2;
     */
    seconds: FigureSample[];
};
/**
 * Describes the message sandboxd.v1.WatchFiguresResponse.
 * Use `create(WatchFiguresResponseSchema)` to create a new message.
 */
export declare const WatchFiguresResponseSchema: GenMessage<WatchFiguresResponse>;
/**
 * The daemon at a moment. Counts are since its start: two samples give a rate.
 *
 * @generated from message sandboxd.v1.FigureSample
 */
export type FigureSample = Message<"sandboxd.v1.FigureSample"> & {
    /**
     * When the sample was taken.
     *
     * @generated from field: google.protobuf.Timestamp time = 1;
     */
    time?: Timestamp | undefined;
    /**
     * Sessions with a sandbox.
     *
     * @generated from field: uint32 active_sessions = 2;
     */
    activeSessions: number;
    /**
     * Running commands.
     *
     * @generated from field: uint32 running_execs = 3;
     */
    runningExecs: number;
    /**
     * Warm sandboxes of all pools.
     *
     * @generated from field: uint32 warm = 4;
     */
    warm: number;
    /**
     * Sandboxes that are being started.
     *
     * @generated from field: uint32 starting = 5;
     */
    starting: number;
    /**
     * Sandboxes that sessions hold.
     *
     * @generated from field: uint32 in_use = 6;
     */
    inUse: number;
    /**
     * Opens that wait for a sandbox.
     *
     * @generated from field: uint32 waiting = 7;
     */
    waiting: number;
    /**
     * Number of opens.
     *
     * @generated from field: uint64 opens = 8;
     */
    opens: bigint;
    /**
     * Number of ended commands.
     *
     * @generated from field: uint64 execs = 9;
     */
    execs: bigint;
    /**
     * Number of ended commands that did not return 0.
     *
     * @generated from field: uint64 failed_execs = 10;
     */
    failedExecs: bigint;
    /**
     * Number of calls.
     *
     * @generated from field: uint64 calls = 11;
     */
    calls: bigint;
    /**
     * Number of failed calls.
     *
     * @generated from field: uint64 failed_calls = 12;
     */
    failedCalls: bigint;
    /**
     * Bytes of output and of files sent.
     *
     * @generated from field: uint64 output_bytes = 13;
     */
    outputBytes: bigint;
    /**
     * Bytes of input and of files received.
     *
     * @generated from field: uint64 input_bytes = 14;
     */
    inputBytes: bigint;
    /**
     * Sum of the durations of all ended commands.
     *
     * @generated from field: google.protobuf.Duration exec_time = 15;
     */
    execTime?: Duration | undefined;
    /**
     * Sum of the durations of all opens that got a new sandbox.
     *
     * @generated from field: google.protobuf.Duration open_time = 16;
     */
    openTime?: Duration | undefined;
    /**
     * Number of opens that got a new sandbox.
     *
     * @generated from field: uint64 new_sandboxes = 17;
     */
    newSandboxes: bigint;
};
/**
 * Describes the message sandboxd.v1.FigureSample.
 * Use `create(FigureSampleSchema)` to create a new message.
 */
export declare const FigureSampleSchema: GenMessage<FigureSample>;
/**
 * Request for lines of the audit log.
 *
 * @generated from message sandboxd.v1.ListAuditRequest
 */
export type ListAuditRequest = Message<"sandboxd.v1.ListAuditRequest"> & {
    /**
     * Optional. Lines per page, 1 to 1000; 0 means 100.
     *
     * @generated from field: uint32 page_size = 1;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page; empty means the first page.
     *
     * @generated from field: string page_token = 2;
     */
    pageToken: string;
    /**
     * Optional. Only lines about this user, or of a caller with this name; empty means any.
     *
     * @generated from field: string who = 3;
     */
    who: string;
    /**
     * Optional. Only lines about this session; empty means any.
     *
     * @generated from field: string session_id = 4;
     */
    sessionId: string;
    /**
     * Optional. Only actions that begin with this text, such as `session.` or `exec.started`; empty means any.
     *
     * @generated from field: string action = 5;
     */
    action: string;
    /**
     * Optional. Lines about calls of strangers, which are kept apart, instead of the others.
     *
     * @generated from field: bool strangers = 6;
     */
    strangers: boolean;
};
/**
 * Describes the message sandboxd.v1.ListAuditRequest.
 * Use `create(ListAuditRequestSchema)` to create a new message.
 */
export declare const ListAuditRequestSchema: GenMessage<ListAuditRequest>;
/**
 * A page of the audit log.
 *
 * @generated from message sandboxd.v1.ListAuditResponse
 */
export type ListAuditResponse = Message<"sandboxd.v1.ListAuditResponse"> & {
    /**
     * The lines, newest first. A page may have fewer lines than asked for, or none, and still have a next page: the work for one is limited.
     *
     * @generated from field: repeated sandboxd.v1.AuditLine lines = 1;
     */
    lines: AuditLine[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListAuditResponse.
 * Use `create(ListAuditResponseSchema)` to create a new message.
 */
export declare const ListAuditResponseSchema: GenMessage<ListAuditResponse>;
/**
 * A line of the audit log.
 *
 * @generated from message sandboxd.v1.AuditLine
 */
export type AuditLine = Message<"sandboxd.v1.AuditLine"> & {
    /**
     * Number of the line in the log.
     *
     * @generated from field: uint64 sequence = 1;
     */
    sequence: bigint;
    /**
     * When it happened.
     *
     * @generated from field: google.protobuf.Timestamp time = 2;
     */
    time?: Timestamp | undefined;
    /**
     * What happened, such as `session.opened`.
     *
     * @generated from field: string action = 3;
     */
    action: string;
    /**
     * Name of the caller; `sandboxd` for the daemon itself.
     *
     * @generated from field: string who = 4;
     */
    who: string;
    /**
     * All fields of the line as a JSON object.
     *
     * @generated from field: string json = 5;
     */
    json: string;
};
/**
 * Describes the message sandboxd.v1.AuditLine.
 * Use `create(AuditLineSchema)` to create a new message.
 */
export declare const AuditLineSchema: GenMessage<AuditLine>;
/**
 * Request to check the audit log.
 *
 * @generated from message sandboxd.v1.VerifyAuditRequest
 */
export type VerifyAuditRequest = Message<"sandboxd.v1.VerifyAuditRequest"> & {};
/**
 * Describes the message sandboxd.v1.VerifyAuditRequest.
 * Use `create(VerifyAuditRequestSchema)` to create a new message.
 */
export declare const VerifyAuditRequestSchema: GenMessage<VerifyAuditRequest>;
/**
 * Whether the audit log is whole.
 *
 * @generated from message sandboxd.v1.VerifyAuditResponse
 */
export type VerifyAuditResponse = Message<"sandboxd.v1.VerifyAuditResponse"> & {
    /**
     * True if every line follows the one before it.
     *
     * @generated from field: bool whole = 1;
     */
    whole: boolean;
    /**
     * Number of lines.
     *
     * @generated from field: uint64 lines = 2;
     */
    lines: bigint;
    /**
     * Number of the oldest line.
     *
     * @generated from field: uint64 first_sequence = 3;
     */
    firstSequence: bigint;
    /**
     * Number of the newest line.
     *
     * @generated from field: uint64 last_sequence = 4;
     */
    lastSequence: bigint;
    /**
     * Hash of the newest line.
     *
     * @generated from field: string last_hash = 5;
     */
    lastHash: string;
    /**
     * What is wrong, up to 100 sentences.
     *
     * @generated from field: repeated string problems = 6;
     */
    problems: string[];
    /**
     * Gaps, repairs and prunings, which are not damage, up to 100 sentences.
     *
     * @generated from field: repeated string notes = 7;
     */
    notes: string[];
};
/**
 * Describes the message sandboxd.v1.VerifyAuditResponse.
 * Use `create(VerifyAuditResponseSchema)` to create a new message.
 */
export declare const VerifyAuditResponseSchema: GenMessage<VerifyAuditResponse>;
/**
 * Request for the statistics.
 *
 * @generated from message sandboxd.v1.GetStatisticsRequest
 */
export type GetStatisticsRequest = Message<"sandboxd.v1.GetStatisticsRequest"> & {
    /**
     * Optional. Also return `history`. This reads the whole history, so do not set it every few seconds.
     *
     * @generated from field: bool with_history = 1;
     */
    withHistory: boolean;
};
/**
 * Describes the message sandboxd.v1.GetStatisticsRequest.
 * Use `create(GetStatisticsRequestSchema)` to create a new message.
 */
export declare const GetStatisticsRequestSchema: GenMessage<GetStatisticsRequest>;
/**
 * Counts and rates since the daemon started. Rates are from 0 to 1.
 *
 * @generated from message sandboxd.v1.GetStatisticsResponse
 */
export type GetStatisticsResponse = Message<"sandboxd.v1.GetStatisticsResponse"> & {
    /**
     * Time since the daemon started.
     *
     * @generated from field: google.protobuf.Duration uptime = 1;
     */
    uptime?: Duration | undefined;
    /**
     * Number of sandboxes that sessions hold now.
     *
     * @generated from field: uint32 active_sandboxes = 2;
     */
    activeSandboxes: number;
    /**
     * Number of commands that run now.
     *
     * @generated from field: uint32 running_execs = 3;
     */
    runningExecs: number;
    /**
     * Statistics of sessions.
     *
     * @generated from field: sandboxd.v1.SessionStatistics sessions = 4;
     */
    sessions?: SessionStatistics | undefined;
    /**
     * Statistics of commands.
     *
     * @generated from field: sandboxd.v1.ExecStatistics execs = 5;
     */
    execs?: ExecStatistics | undefined;
    /**
     * Statistics of calls that clients repeated by themselves.
     *
     * @generated from field: sandboxd.v1.RetryStatistics retries = 6;
     */
    retries?: RetryStatistics | undefined;
    /**
     * How often commands reached a limit, by limit: TIMEOUT, NO_OUTPUT_TIMEOUT, MEMORY, PROCESSES, DISK, OUTPUT.
     *
     * @generated from field: map<string, uint64> limit_violations = 7;
     */
    limitViolations: {
        [key: string]: bigint;
    };
    /**
     * Number of refused calls, by ErrorReason.
     *
     * @generated from field: map<string, uint64> refused_calls = 8;
     */
    refusedCalls: {
        [key: string]: bigint;
    };
    /**
     * Number of calls, by method.
     *
     * @generated from field: map<string, uint64> calls = 9;
     */
    calls: {
        [key: string]: bigint;
    };
    /**
     * Number of calls that failed for any reason, by method.
     *
     * @generated from field: map<string, uint64> failed_calls = 10;
     */
    failedCalls: {
        [key: string]: bigint;
    };
    /**
     * Fraction of opens that got a warm sandbox at once; 1 before the first open.
     *
     * @generated from field: double pool_hit_rate = 11;
     */
    poolHitRate: number;
    /**
     * All warm pools, one for each environment that has an image or is used, the default first.
     *
     * @generated from field: repeated sandboxd.v1.PoolStatus pools = 12;
     */
    pools: PoolStatus[];
    /**
     * State of the audit log.
     *
     * @generated from field: sandboxd.v1.AuditStatistics audit = 13;
     */
    audit?: AuditStatistics | undefined;
    /**
     * When counting began: at the start of the daemon.
     *
     * @generated from field: google.protobuf.Timestamp since = 14;
     */
    since?: Timestamp | undefined;
    /**
     * Statistics of the history, including commands before the daemon started; set only with `with_history`.
     *
     * @generated from field: sandboxd.v1.HistoryStatistics history = 15;
     */
    history?: HistoryStatistics | undefined;
};
/**
 * Describes the message sandboxd.v1.GetStatisticsResponse.
 * Use `create(GetStatisticsResponseSchema)` to create a new message.
 */
export declare const GetStatisticsResponseSchema: GenMessage<GetStatisticsResponse>;
/**
 * Statistics of the ended commands that ListExecutions can return: the newest ones of sessions that are still remembered.
 *
 * @generated from message sandboxd.v1.HistoryStatistics
 */
export type HistoryStatistics = Message<"sandboxd.v1.HistoryStatistics"> & {
    /**
     * Start time of the oldest command; absent if there is none.
     *
     * @generated from field: google.protobuf.Timestamp since = 1;
     */
    since?: Timestamp | undefined;
    /**
     * Number of commands, by ExitReason without its prefix; NOT_STARTED counts those that the sandbox failed to start.
     *
     * @generated from field: map<string, uint64> ends = 2;
     */
    ends: {
        [key: string]: bigint;
    };
    /**
     * Number of all commands.
     *
     * @generated from field: uint64 total = 3;
     */
    total: bigint;
    /**
     * Number of commands that returned 0.
     *
     * @generated from field: uint64 succeeded = 4;
     */
    succeeded: bigint;
    /**
     * Fraction of commands that returned 0; 1 if there are none.
     *
     * @generated from field: double success_rate = 5;
     */
    successRate: number;
    /**
     * How long the commands took.
     *
     * @generated from field: sandboxd.v1.DurationFigures durations = 6;
     */
    durations?: DurationFigures | undefined;
};
/**
 * Describes the message sandboxd.v1.HistoryStatistics.
 * Use `create(HistoryStatisticsSchema)` to create a new message.
 */
export declare const HistoryStatisticsSchema: GenMessage<HistoryStatistics>;
/**
 * Statistics of sessions since the daemon started.
 *
 * @generated from message sandboxd.v1.SessionStatistics
 */
export type SessionStatistics = Message<"sandboxd.v1.SessionStatistics"> & {
    /**
     * Number of opens, by outcome: CREATED, ATTACHED, RECREATED.
     *
     * @generated from field: map<string, uint64> opens = 1;
     */
    opens: {
        [key: string]: bigint;
    };
    /**
     * Number of ended sessions, by state: CLOSED, EXPIRED, and LOST for lost sandboxes, whether or not the files are kept.
     *
     * @generated from field: map<string, uint64> ends = 2;
     */
    ends: {
        [key: string]: bigint;
    };
    /**
     * Fraction of opens whose session was already open; 0 before the first open.
     *
     * @generated from field: double reuse_rate = 3;
     */
    reuseRate: number;
    /**
     * How long successful opens took.
     *
     * @generated from field: sandboxd.v1.DurationFigures open_times = 4;
     */
    openTimes?: DurationFigures | undefined;
};
/**
 * Describes the message sandboxd.v1.SessionStatistics.
 * Use `create(SessionStatisticsSchema)` to create a new message.
 */
export declare const SessionStatisticsSchema: GenMessage<SessionStatistics>;
/**
 * Statistics of commands since the daemon started.
 *
 * @generated from message sandboxd.v1.ExecStatistics
 */
export type ExecStatistics = Message<"sandboxd.v1.ExecStatistics"> & {
    /**
     * Number of ended commands, by ExitReason without its prefix; NOT_STARTED counts those that the sandbox failed to start.
     *
     * @generated from field: map<string, uint64> ends = 1;
     */
    ends: {
        [key: string]: bigint;
    };
    /**
     * Number of all commands.
     *
     * @generated from field: uint64 total = 2;
     */
    total: bigint;
    /**
     * Number of commands that returned 0.
     *
     * @generated from field: uint64 succeeded = 3;
     */
    succeeded: bigint;
    /**
     * Fraction of commands that returned 0; 1 before the first command.
     *
     * @generated from field: double success_rate = 4;
     */
    successRate: number;
    /**
     * How long the commands took.
     *
     * @generated from field: sandboxd.v1.DurationFigures durations = 5;
     */
    durations?: DurationFigures | undefined;
    /**
     * CPU time of all commands together.
     *
     * @generated from field: google.protobuf.Duration cpu_time = 6;
     */
    cpuTime?: Duration | undefined;
    /**
     * Bytes that commands wrote, plus bytes of files sent to callers.
     *
     * @generated from field: uint64 output_bytes = 7;
     */
    outputBytes: bigint;
    /**
     * Bytes that commands received as input, plus bytes of files sent by callers.
     *
     * @generated from field: uint64 input_bytes = 8;
     */
    inputBytes: bigint;
    /**
     * Bytes of output that were dropped.
     *
     * @generated from field: uint64 dropped_bytes = 9;
     */
    droppedBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.ExecStatistics.
 * Use `create(ExecStatisticsSchema)` to create a new message.
 */
export declare const ExecStatisticsSchema: GenMessage<ExecStatistics>;
/**
 * Statistics of calls with the request metadata `sandboxd-retry`, which a client sends when it repeats a call after a failure.
 *
 * @generated from message sandboxd.v1.RetryStatistics
 */
export type RetryStatistics = Message<"sandboxd.v1.RetryStatistics"> & {
    /**
     * Number of such calls.
     *
     * @generated from field: uint64 attempts = 1;
     */
    attempts: bigint;
    /**
     * Number of such calls that succeeded.
     *
     * @generated from field: uint64 succeeded = 2;
     */
    succeeded: bigint;
    /**
     * Fraction that succeeded; 1 before the first.
     *
     * @generated from field: double success_rate = 3;
     */
    successRate: number;
};
/**
 * Describes the message sandboxd.v1.RetryStatistics.
 * Use `create(RetryStatisticsSchema)` to create a new message.
 */
export declare const RetryStatisticsSchema: GenMessage<RetryStatistics>;
/**
 * State of the audit log in the daemon's state directory.
 *
 * @generated from message sandboxd.v1.AuditStatistics
 */
export type AuditStatistics = Message<"sandboxd.v1.AuditStatistics"> & {
    /**
     * Sequence number of the newest line. Saved elsewhere together with `head_hash`, it shows later whether lines were changed or removed.
     *
     * @generated from field: uint64 head_sequence = 1;
     */
    headSequence: bigint;
    /**
     * Hash of the newest line, in hexadecimal digits.
     *
     * @generated from field: string head_hash = 2;
     */
    headHash: string;
    /**
     * Number of entries that could not be written since the daemon started; the log has a line for each such gap.
     *
     * @generated from field: uint64 lost_entries = 3;
     */
    lostEntries: bigint;
};
/**
 * Describes the message sandboxd.v1.AuditStatistics.
 * Use `create(AuditStatisticsSchema)` to create a new message.
 */
export declare const AuditStatisticsSchema: GenMessage<AuditStatistics>;
/**
 * Request for the status.
 *
 * @generated from message sandboxd.v1.GetStatusRequest
 */
export type GetStatusRequest = Message<"sandboxd.v1.GetStatusRequest"> & {};
/**
 * Describes the message sandboxd.v1.GetStatusRequest.
 * Use `create(GetStatusRequestSchema)` to create a new message.
 */
export declare const GetStatusRequestSchema: GenMessage<GetStatusRequest>;
/**
 * The daemon as it is now.
 *
 * @generated from message sandboxd.v1.GetStatusResponse
 */
export type GetStatusResponse = Message<"sandboxd.v1.GetStatusResponse"> & {
    /**
     * Version of sandboxd.
     *
     * @generated from field: string version = 1;
     */
    version: string;
    /**
     * Name of this daemon among others.
     *
     * @generated from field: string worker_id = 2;
     */
    workerId: string;
    /**
     * Time since the daemon started.
     *
     * @generated from field: google.protobuf.Duration uptime = 3;
     */
    uptime?: Duration | undefined;
    /**
     * True once the daemon no longer accepts new sessions.
     *
     * @generated from field: bool draining = 4;
     */
    draining: boolean;
    /**
     * The warm pool of the default environment.
     *
     * @generated from field: sandboxd.v1.PoolStatus pool = 5;
     */
    pool?: PoolStatus | undefined;
    /**
     * The container engine.
     *
     * @generated from field: sandboxd.v1.EngineStatus engine = 6;
     */
    engine?: EngineStatus | undefined;
    /**
     * Isolation, one entry per protection.
     *
     * @generated from field: repeated sandboxd.v1.Protection protections = 7;
     */
    protections: Protection[];
    /**
     * Number of active sessions.
     *
     * @generated from field: uint32 active_sessions = 8;
     */
    activeSessions: number;
    /**
     * Number of running commands.
     *
     * @generated from field: uint32 running_execs = 9;
     */
    runningExecs: number;
    /**
     * How commands were killed at a deadline or a cancel.
     *
     * @generated from field: sandboxd.v1.KillCounts kill_counts = 10;
     */
    killCounts?: KillCounts | undefined;
    /**
     * All warm pools, one for each environment that has an image or is used, the default first.
     *
     * @generated from field: repeated sandboxd.v1.PoolStatus pools = 11;
     */
    pools: PoolStatus[];
};
/**
 * Describes the message sandboxd.v1.GetStatusResponse.
 * Use `create(GetStatusResponseSchema)` to create a new message.
 */
export declare const GetStatusResponseSchema: GenMessage<GetStatusResponse>;
/**
 * How often commands were killed at a deadline or a cancel since the daemon started, by who killed them. Each step is tried only
 * if the previous one was late.
 *
 * @generated from message sandboxd.v1.KillCounts
 */
export type KillCounts = Message<"sandboxd.v1.KillCounts"> & {
    /**
     * Killed by the guest; the sandbox continued.
     *
     * @generated from field: uint64 by_guest = 1;
     */
    byGuest: bigint;
    /**
     * Killed by the host together with the sandbox's first process; the sandbox was lost.
     *
     * @generated from field: uint64 by_host = 2;
     */
    byHost: bigint;
    /**
     * Killed by the engine when it removed the container, because the daemon may not kill processes of the host.
     *
     * @generated from field: uint64 by_engine = 3;
     */
    byEngine: bigint;
};
/**
 * Describes the message sandboxd.v1.KillCounts.
 * Use `create(KillCountsSchema)` to create a new message.
 */
export declare const KillCountsSchema: GenMessage<KillCounts>;
/**
 * A warm pool.
 *
 * @generated from message sandboxd.v1.PoolStatus
 */
export type PoolStatus = Message<"sandboxd.v1.PoolStatus"> & {
    /**
     * Number of sandboxes that wait for a session.
     *
     * @generated from field: uint32 warm = 1;
     */
    warm: number;
    /**
     * Number of sandboxes being started.
     *
     * @generated from field: uint32 starting = 2;
     */
    starting: number;
    /**
     * Number of sandboxes that sessions hold.
     *
     * @generated from field: uint32 in_use = 3;
     */
    inUse: number;
    /**
     * Number of warm sandboxes that the pool aims for now: its part of POOL_SIZE, which all pools share by their recent bursts of opens.
     *
     * @generated from field: uint32 target = 4;
     */
    target: number;
    /**
     * Most sandboxes of all pools together: warm, starting and in use. One with more memory than those of the default environment counts as
     * several.
     *
     * @generated from field: uint32 max = 5;
     */
    max: number;
    /**
     * Number of opens that got a warm sandbox at once.
     *
     * @generated from field: uint64 hits = 6;
     */
    hits: bigint;
    /**
     * Number of opens that had to wait for a sandbox, whether they got one or not.
     *
     * @generated from field: uint64 misses = 7;
     */
    misses: bigint;
    /**
     * Number of starts that failed.
     *
     * @generated from field: uint64 failed_starts = 8;
     */
    failedStarts: bigint;
    /**
     * The pool's last failure, as a sentence; empty if its last start succeeded.
     *
     * @generated from field: string last_error = 9;
     */
    lastError: string;
    /**
     * Name of the environment of its sandboxes.
     *
     * @generated from field: string environment = 10;
     */
    environment: string;
    /**
     * Number of warm sandboxes that are always kept.
     *
     * @generated from field: uint32 min = 11;
     */
    min: number;
    /**
     * Fraction of opens that got a warm sandbox at once, 0 to 1; 1 before the first open.
     *
     * @generated from field: double hit_rate = 12;
     */
    hitRate: number;
    /**
     * Number of opens that wait now, for a start or for another session to close.
     *
     * @generated from field: uint32 waiting = 13;
     */
    waiting: number;
    /**
     * Most opens that may wait for another session to close. Beyond that the new open is refused, or one of the user with the most waiting.
     *
     * @generated from field: uint32 max_queue = 14;
     */
    maxQueue: number;
    /**
     * Longest current wait; 0 if no open waits.
     *
     * @generated from field: google.protobuf.Duration oldest_wait = 15;
     */
    oldestWait?: Duration | undefined;
    /**
     * How long opens waited that had to wait and got a sandbox.
     *
     * @generated from field: sandboxd.v1.DurationFigures waits = 16;
     */
    waits?: DurationFigures | undefined;
    /**
     * Number of opens whose wait timed out.
     *
     * @generated from field: uint64 gave_up = 17;
     */
    gaveUp: bigint;
    /**
     * Number of opens refused because the queue was full.
     *
     * @generated from field: uint64 refused = 18;
     */
    refused: bigint;
    /**
     * Number of sandboxes that may be started at once now, from measured start times.
     *
     * @generated from field: uint32 concurrency = 19;
     */
    concurrency: number;
    /**
     * How long warm sandboxes took to start.
     *
     * @generated from field: sandboxd.v1.DurationFigures starts = 20;
     */
    starts?: DurationFigures | undefined;
};
/**
 * Describes the message sandboxd.v1.PoolStatus.
 * Use `create(PoolStatusSchema)` to create a new message.
 */
export declare const PoolStatusSchema: GenMessage<PoolStatus>;
/**
 * Durations measured since the daemon started. Percentiles are exact to about 15 %.
 *
 * @generated from message sandboxd.v1.DurationFigures
 */
export type DurationFigures = Message<"sandboxd.v1.DurationFigures"> & {
    /**
     * Number of measurements.
     *
     * @generated from field: uint64 count = 1;
     */
    count: bigint;
    /**
     * Mean; 0 if there were no measurements, as are the fields below.
     *
     * @generated from field: google.protobuf.Duration mean = 2;
     */
    mean?: Duration | undefined;
    /**
     * Median.
     *
     * @generated from field: google.protobuf.Duration p50 = 3;
     */
    p50?: Duration | undefined;
    /**
     * 95th percentile.
     *
     * @generated from field: google.protobuf.Duration p95 = 4;
     */
    p95?: Duration | undefined;
    /**
     * 99th percentile.
     *
     * @generated from field: google.protobuf.Duration p99 = 5;
     */
    p99?: Duration | undefined;
    /**
     * Maximum.
     *
     * @generated from field: google.protobuf.Duration max = 6;
     */
    max?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.DurationFigures.
 * Use `create(DurationFiguresSchema)` to create a new message.
 */
export declare const DurationFiguresSchema: GenMessage<DurationFigures>;
/**
 * The container engine.
 *
 * @generated from message sandboxd.v1.EngineStatus
 */
export type EngineStatus = Message<"sandboxd.v1.EngineStatus"> & {
    /**
     * Whether the engine answered just now.
     *
     * @generated from field: bool reachable = 1;
     */
    reachable: boolean;
    /**
     * Name that the engine reports.
     *
     * @generated from field: string name = 2;
     */
    name: string;
    /**
     * Version that the engine reports.
     *
     * @generated from field: string version = 3;
     */
    version: string;
    /**
     * Version of the engine's API in use.
     *
     * @generated from field: string api_version = 4;
     */
    apiVersion: string;
    /**
     * Runtime that new sandboxes use.
     *
     * @generated from field: string runtime = 5;
     */
    runtime: string;
    /**
     * Image id that new sandboxes use.
     *
     * @generated from field: string image_id = 6;
     */
    imageId: string;
};
/**
 * Describes the message sandboxd.v1.EngineStatus.
 * Use `create(EngineStatusSchema)` to create a new message.
 */
export declare const EngineStatusSchema: GenMessage<EngineStatus>;
/**
 * One protection.
 *
 * @generated from message sandboxd.v1.Protection
 */
export type Protection = Message<"sandboxd.v1.Protection"> & {
    /**
     * Name of the protection, for example `capabilities`.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Whether the protection is in force.
     *
     * @generated from field: sandboxd.v1.ProtectionState state = 2;
     */
    state: ProtectionState;
    /**
     * What the protection does, or why it is not in force.
     *
     * @generated from field: string detail = 3;
     */
    detail: string;
    /**
     * How the daemon proved since its start that the protection is in force; empty if it is only a setting that the engine accepted.
     *
     * @generated from field: string proof = 4;
     */
    proof: string;
};
/**
 * Describes the message sandboxd.v1.Protection.
 * Use `create(ProtectionSchema)` to create a new message.
 */
export declare const ProtectionSchema: GenMessage<Protection>;
/**
 * Whether a protection is in force.
 *
 * @generated from enum sandboxd.v1.ProtectionState
 */
export declare enum ProtectionState {
    /**
     * Never sent.
     *
     * @generated from enum value: PROTECTION_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The protection is in force.
     *
     * @generated from enum value: PROTECTION_STATE_IN_FORCE = 1;
     */
    IN_FORCE = 1,
    /**
     * A weaker form is in force.
     *
     * @generated from enum value: PROTECTION_STATE_WEAKER = 2;
     */
    WEAKER = 2,
    /**
     * The protection is not in force.
     *
     * @generated from enum value: PROTECTION_STATE_MISSING = 3;
     */
    MISSING = 3
}
/**
 * Describes the enum sandboxd.v1.ProtectionState.
 */
export declare const ProtectionStateSchema: GenEnum<ProtectionState>;
/**
 * Reports to operators what the daemon is doing.
 *
 * @generated from service sandboxd.v1.AdminService
 */
export declare const AdminService: GenService<{
    /**
     * Describes the daemon, its pool, its engine and the isolation in force. Always answers, even if the
     * engine does not.
     *
     * @generated from rpc sandboxd.v1.AdminService.GetStatus
     */
    getStatus: {
        methodKind: "unary";
        input: typeof GetStatusRequestSchema;
        output: typeof GetStatusResponseSchema;
    };
    /**
     * Returns counts and rates since the daemon started.
     *
     * @generated from rpc sandboxd.v1.AdminService.GetStatistics
     */
    getStatistics: {
        methodKind: "unary";
        input: typeof GetStatisticsRequestSchema;
        output: typeof GetStatisticsResponseSchema;
    };
    /**
     * Streams figures for charts: first those that are kept of the last day and of the last minutes, then one sample a second.
     *
     * @generated from rpc sandboxd.v1.AdminService.WatchFigures
     */
    watchFigures: {
        methodKind: "server_streaming";
        input: typeof WatchFiguresRequestSchema;
        output: typeof WatchFiguresResponseSchema;
    };
    /**
     * Lists lines of the audit log, newest first. Reasons: INVALID_REQUEST.
     *
     * @generated from rpc sandboxd.v1.AdminService.ListAudit
     */
    listAudit: {
        methodKind: "unary";
        input: typeof ListAuditRequestSchema;
        output: typeof ListAuditResponseSchema;
    };
    /**
     * Checks that the audit log was not changed after it was written. This reads all of it.
     *
     * @generated from rpc sandboxd.v1.AdminService.VerifyAudit
     */
    verifyAudit: {
        methodKind: "unary";
        input: typeof VerifyAuditRequestSchema;
        output: typeof VerifyAuditResponseSchema;
    };
}>;
