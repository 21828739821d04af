import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { CodeEvent } from "./code_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/exec.proto.
 */
export declare const file_sandboxd_proto_v1_exec: GenFile;
/**
 * An event in the life of a command.
 *
 * @generated from message sandboxd.v1.ExecEvent
 */
export type ExecEvent = Message<"sandboxd.v1.ExecEvent"> & {
    /**
     * Order in a stream: `started` first, then `stdout`, `stderr` and `code` in the order they were read, then
     * exactly one `exited`, which is the last event. A stream without `exited` is incomplete.
     *
     * @generated from oneof sandboxd.v1.ExecEvent.event
     */
    event: {
        /**
         * The command was started.
         *
         * @generated from field: sandboxd.v1.ExecStarted started = 1;
         */
        value: ExecStarted;
        case: "started";
    } | {
        /**
         * Bytes the command wrote to its standard output.
         *
         * @generated from field: sandboxd.v1.OutputChunk stdout = 2;
         */
        value: OutputChunk;
        case: "stdout";
    } | {
        /**
         * Bytes the command wrote to its standard error; none with `merge_stderr`.
         *
         * @generated from field: sandboxd.v1.OutputChunk stderr = 3;
         */
        value: OutputChunk;
        case: "stderr";
    } | {
        /**
         * The command ended.
         *
         * @generated from field: sandboxd.v1.ExitStatus exited = 4;
         */
        value: ExitStatus;
        case: "exited";
    } | {
        /**
         * Output that is no longer kept and was not delivered on this stream.
         *
         * @generated from field: sandboxd.v1.OutputGap dropped = 5;
         */
        value: OutputGap;
        case: "dropped";
    } | {
        /**
         * Something that a run of code reported besides its output.
         *
         * @generated from field: sandboxd.v1.CodeEvent code = 6;
         */
        value: CodeEvent;
        case: "code";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ExecEvent.
 * Use `create(ExecEventSchema)` to create a new message.
 */
export declare const ExecEventSchema: GenMessage<ExecEvent>;
/**
 * A missing piece of output: more was written than is kept, and the middle is dropped first.
 *
 * @generated from message sandboxd.v1.OutputGap
 */
export type OutputGap = Message<"sandboxd.v1.OutputGap"> & {
    /**
     * Stream that the bytes belong to.
     *
     * @generated from field: sandboxd.v1.OutputStream stream = 1;
     */
    stream: OutputStream;
    /**
     * Position of the first missing byte.
     *
     * @generated from field: uint64 offset = 2;
     */
    offset: bigint;
    /**
     * Number of missing bytes; the next chunk of the stream follows after them.
     *
     * @generated from field: uint64 bytes = 3;
     */
    bytes: bigint;
};
/**
 * Describes the message sandboxd.v1.OutputGap.
 * Use `create(OutputGapSchema)` to create a new message.
 */
export declare const OutputGapSchema: GenMessage<OutputGap>;
/**
 * A command of a session, running or ended.
 *
 * @generated from message sandboxd.v1.Exec
 */
export type Exec = Message<"sandboxd.v1.Exec"> & {
    /**
     * Id of this exec.
     *
     * @generated from field: string exec_id = 1;
     */
    execId: string;
    /**
     * The command line or the arguments, cut to 200 characters.
     *
     * @generated from field: string command = 2;
     */
    command: string;
    /**
     * State of the exec.
     *
     * @generated from field: sandboxd.v1.ExecState state = 3;
     */
    state: ExecState;
    /**
     * When the command was started.
     *
     * @generated from field: google.protobuf.Timestamp start_time = 4;
     */
    startTime?: Timestamp | undefined;
    /**
     * How long the command may run.
     *
     * @generated from field: google.protobuf.Duration timeout = 5;
     */
    timeout?: Duration | undefined;
    /**
     * Bytes written to standard output so far.
     *
     * @generated from field: uint64 stdout_bytes = 6;
     */
    stdoutBytes: bigint;
    /**
     * Bytes written to standard error so far.
     *
     * @generated from field: uint64 stderr_bytes = 7;
     */
    stderrBytes: bigint;
    /**
     * Name of the shell that the command runs in; empty means an unnamed shell for this command only.
     *
     * @generated from field: string shell_name = 8;
     */
    shellName: string;
    /**
     * Whether the command runs in a terminal.
     *
     * @generated from field: bool has_terminal = 9;
     */
    hasTerminal: boolean;
    /**
     * Whether WriteStdin can write to the command's standard input.
     *
     * @generated from field: bool has_stdin = 10;
     */
    hasStdin: boolean;
    /**
     * How the command ended; absent while it runs.
     *
     * @generated from field: sandboxd.v1.ExitStatus exit = 11;
     */
    exit?: ExitStatus | undefined;
    /**
     * Number of the command's first process inside the sandbox, as the sandbox reports it. Set for commands that StartExec started, and also
     * after their end, when another process may have the number; 0 if it is not known.
     *
     * @generated from field: uint32 pid = 12;
     */
    pid: number;
    /**
     * Context that the code runs in; empty for a command.
     *
     * @generated from field: string context = 13;
     */
    context: string;
    /**
     * Position of the next event of a run of code.
     *
     * @generated from field: uint64 events_bytes = 14;
     */
    eventsBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.Exec.
 * Use `create(ExecSchema)` to create a new message.
 */
export declare const ExecSchema: GenMessage<Exec>;
/**
 * An ended command in the history of its session.
 *
 * @generated from message sandboxd.v1.Execution
 */
export type Execution = Message<"sandboxd.v1.Execution"> & {
    /**
     * Id of the exec.
     *
     * @generated from field: string exec_id = 1;
     */
    execId: string;
    /**
     * Incarnation of the session that the command ran in.
     *
     * @generated from field: uint32 incarnation = 2;
     */
    incarnation: number;
    /**
     * The command line or the arguments, cut to 200 characters.
     *
     * @generated from field: string command = 3;
     */
    command: string;
    /**
     * When the command was started.
     *
     * @generated from field: google.protobuf.Timestamp start_time = 4;
     */
    startTime?: Timestamp | undefined;
    /**
     * How the command ended, what it used and how much it wrote.
     *
     * @generated from field: sandboxd.v1.ExitStatus exit = 5;
     */
    exit?: ExitStatus | undefined;
    /**
     * Bytes written to its standard input.
     *
     * @generated from field: uint64 stdin_bytes = 6;
     */
    stdinBytes: bigint;
    /**
     * Whether the sandbox failed to start the command; the hint in `exit` then says why.
     *
     * @generated from field: bool not_started = 7;
     */
    notStarted: boolean;
    /**
     * Context that the code ran in; empty for a command.
     *
     * @generated from field: string context = 8;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.Execution.
 * Use `create(ExecutionSchema)` to create a new message.
 */
export declare const ExecutionSchema: GenMessage<Execution>;
/**
 * Size of a terminal.
 *
 * @generated from message sandboxd.v1.Terminal
 */
export type Terminal = Message<"sandboxd.v1.Terminal"> & {
    /**
     * Rows, 1 to 1000; 0 means 24.
     *
     * @generated from field: uint32 rows = 1;
     */
    rows: number;
    /**
     * Columns, 1 to 1000; 0 means 80.
     *
     * @generated from field: uint32 columns = 2;
     */
    columns: number;
};
/**
 * Describes the message sandboxd.v1.Terminal.
 * Use `create(TerminalSchema)` to create a new message.
 */
export declare const TerminalSchema: GenMessage<Terminal>;
/**
 * A line of output that a search found.
 *
 * @generated from message sandboxd.v1.OutputMatch
 */
export type OutputMatch = Message<"sandboxd.v1.OutputMatch"> & {
    /**
     * Stream that the bytes belong to.
     *
     * @generated from field: sandboxd.v1.OutputStream stream = 1;
     */
    stream: OutputStream;
    /**
     * Number of the line in its stream, counted from 1; dropped lines count.
     *
     * @generated from field: uint64 line_number = 2;
     */
    lineNumber: bigint;
    /**
     * Position of the first byte of the line in its stream.
     *
     * @generated from field: uint64 offset = 3;
     */
    offset: bigint;
    /**
     * The line without its newline, cut to a few thousand bytes.
     *
     * @generated from field: bytes line = 4;
     */
    line: Uint8Array;
    /**
     * Lines directly before the match, as many as requested and available.
     *
     * @generated from field: repeated bytes before = 5;
     */
    before: Uint8Array[];
    /**
     * Lines directly after the match.
     *
     * @generated from field: repeated bytes after = 6;
     */
    after: Uint8Array[];
};
/**
 * Describes the message sandboxd.v1.OutputMatch.
 * Use `create(OutputMatchSchema)` to create a new message.
 */
export declare const OutputMatchSchema: GenMessage<OutputMatch>;
/**
 * An output stream, shortened to a size that a model can read.
 *
 * @generated from message sandboxd.v1.OutputPreview
 */
export type OutputPreview = Message<"sandboxd.v1.OutputPreview"> & {
    /**
     * Beginning of the stream; all of it if nothing was left out. Whole lines where possible.
     *
     * @generated from field: bytes head = 1;
     */
    head: Uint8Array;
    /**
     * End of the stream; empty if nothing was left out.
     *
     * @generated from field: bytes tail = 2;
     */
    tail: Uint8Array;
    /**
     * Number of bytes between `head` and `tail`; ReadOutput and SearchOutput return them.
     *
     * @generated from field: uint64 omitted_bytes = 3;
     */
    omittedBytes: bigint;
    /**
     * Number of bytes in the whole stream.
     *
     * @generated from field: uint64 total_bytes = 4;
     */
    totalBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.OutputPreview.
 * Use `create(OutputPreviewSchema)` to create a new message.
 */
export declare const OutputPreviewSchema: GenMessage<OutputPreview>;
/**
 * The command was handed to the sandbox.
 *
 * @generated from message sandboxd.v1.ExecStarted
 */
export type ExecStarted = Message<"sandboxd.v1.ExecStarted"> & {
    /**
     * Id of this exec: from the request, or generated by the daemon.
     *
     * @generated from field: string exec_id = 1;
     */
    execId: string;
    /**
     * As in Exec.
     *
     * @generated from field: uint32 pid = 2;
     */
    pid: number;
};
/**
 * Describes the message sandboxd.v1.ExecStarted.
 * Use `create(ExecStartedSchema)` to create a new message.
 */
export declare const ExecStartedSchema: GenMessage<ExecStarted>;
/**
 * A piece of one output stream.
 *
 * @generated from message sandboxd.v1.OutputChunk
 */
export type OutputChunk = Message<"sandboxd.v1.OutputChunk"> & {
    /**
     * Position of the first byte in its stream. Chunks of a stream have no gap between them.
     *
     * @generated from field: uint64 offset = 1;
     */
    offset: bigint;
    /**
     * The bytes; they may end inside a character or a line.
     *
     * @generated from field: bytes data = 2;
     */
    data: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.OutputChunk.
 * Use `create(OutputChunkSchema)` to create a new message.
 */
export declare const OutputChunkSchema: GenMessage<OutputChunk>;
/**
 * How a command ended.
 *
 * @generated from message sandboxd.v1.ExitStatus
 */
export type ExitStatus = Message<"sandboxd.v1.ExitStatus"> & {
    /**
     * How the command's first process ended. Absent if its end was not observed, as with a lost sandbox.
     *
     * @generated from oneof sandboxd.v1.ExitStatus.outcome
     */
    outcome: {
        /**
         * Exit code; a non-zero code is not an error of the call.
         *
         * @generated from field: int32 code = 1;
         */
        value: number;
        case: "code";
    } | {
        /**
         * Number of the signal that ended it.
         *
         * @generated from field: int32 signal = 2;
         */
        value: number;
        case: "signal";
    } | {
        case: undefined;
        value?: undefined;
    };
    /**
     * Why the command ended, as determined by the daemon.
     *
     * @generated from field: sandboxd.v1.ExitReason reason = 3;
     */
    reason: ExitReason;
    /**
     * Time from the request to the end, by the daemon's clock.
     *
     * @generated from field: google.protobuf.Duration duration = 4;
     */
    duration?: Duration | undefined;
    /**
     * Bytes written to standard output, whether delivered or not.
     *
     * @generated from field: uint64 stdout_bytes = 5;
     */
    stdoutBytes: bigint;
    /**
     * Bytes written to standard error, whether delivered or not.
     *
     * @generated from field: uint64 stderr_bytes = 6;
     */
    stderrBytes: bigint;
    /**
     * One line for a model: what happened and what to do next; empty for a plain exit.
     *
     * @generated from field: string hint = 7;
     */
    hint: string;
    /**
     * What the command used, as counted by the host. Absent if the host could not measure it, as with a lost sandbox.
     *
     * @generated from field: sandboxd.v1.ExecUsage usage = 8;
     */
    usage?: ExecUsage | undefined;
    /**
     * Bytes of standard output that are no longer kept.
     *
     * @generated from field: uint64 stdout_dropped_bytes = 9;
     */
    stdoutDroppedBytes: bigint;
    /**
     * Bytes of standard error that are no longer kept.
     *
     * @generated from field: uint64 stderr_dropped_bytes = 10;
     */
    stderrDroppedBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.ExitStatus.
 * Use `create(ExitStatusSchema)` to create a new message.
 */
export declare const ExitStatusSchema: GenMessage<ExitStatus>;
/**
 * What the commands of a sandbox used while one of them ran, from the counters of the host's kernel. The counters cover the whole
 * sandbox: where commands run side by side, or one left processes behind, each command gets the sum.
 *
 * @generated from message sandboxd.v1.ExecUsage
 */
export type ExecUsage = Message<"sandboxd.v1.ExecUsage"> & {
    /**
     * Peak memory use, including the page cache.
     *
     * @generated from field: uint64 peak_memory_bytes = 1;
     */
    peakMemoryBytes: bigint;
    /**
     * CPU time.
     *
     * @generated from field: google.protobuf.Duration cpu_time = 2;
     */
    cpuTime?: Duration | undefined;
    /**
     * Peak number of processes and threads. Exact if it is a new maximum of the sandbox, otherwise the largest number sampled at the
     * beginning, at the end and once a second.
     *
     * @generated from field: uint32 peak_processes = 3;
     */
    peakProcesses: number;
    /**
     * Number of processes that the kernel killed because the memory limit was reached.
     *
     * @generated from field: uint64 oom_kills = 4;
     */
    oomKills: bigint;
    /**
     * Number of processes and threads that the kernel refused to create because the process limit was reached.
     *
     * @generated from field: uint64 refused_forks = 5;
     */
    refusedForks: bigint;
};
/**
 * Describes the message sandboxd.v1.ExecUsage.
 * Use `create(ExecUsageSchema)` to create a new message.
 */
export declare const ExecUsageSchema: GenMessage<ExecUsage>;
/**
 * Output of an ended command; the middle is left out if it is larger than the cap.
 *
 * @generated from message sandboxd.v1.CapturedOutput
 */
export type CapturedOutput = Message<"sandboxd.v1.CapturedOutput"> & {
    /**
     * The bytes; if some were left out, the first and the last part.
     *
     * @generated from field: bytes data = 1;
     */
    data: Uint8Array;
    /**
     * Number of bytes left out; 0 if `data` is everything.
     *
     * @generated from field: uint64 omitted_bytes = 2;
     */
    omittedBytes: bigint;
    /**
     * Position in `data` where bytes were left out; meaningless if none were.
     *
     * @generated from field: uint64 omitted_at = 3;
     */
    omittedAt: bigint;
};
/**
 * Describes the message sandboxd.v1.CapturedOutput.
 * Use `create(CapturedOutputSchema)` to create a new message.
 */
export declare const CapturedOutputSchema: GenMessage<CapturedOutput>;
/**
 * One of the output streams of a command.
 *
 * @generated from enum sandboxd.v1.OutputStream
 */
export declare enum OutputStream {
    /**
     * In a request: standard output. Never sent.
     *
     * @generated from enum value: OUTPUT_STREAM_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * Standard output. For a command in a terminal, all of its output.
     *
     * @generated from enum value: OUTPUT_STREAM_STDOUT = 1;
     */
    STDOUT = 1,
    /**
     * Standard error.
     *
     * @generated from enum value: OUTPUT_STREAM_STDERR = 2;
     */
    STDERR = 2,
    /**
     * Events of a run of code. Only in an OutputGap.
     *
     * @generated from enum value: OUTPUT_STREAM_EVENTS = 3;
     */
    EVENTS = 3
}
/**
 * Describes the enum sandboxd.v1.OutputStream.
 */
export declare const OutputStreamSchema: GenEnum<OutputStream>;
/**
 * State of an exec.
 *
 * @generated from enum sandboxd.v1.ExecState
 */
export declare enum ExecState {
    /**
     * Never sent. In a filter: any state.
     *
     * @generated from enum value: EXEC_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The exec waits for an earlier command in the same named shell. It has not begun, so it does not survive a restart of the daemon;
     * repeat the call that started it.
     *
     * @generated from enum value: EXEC_STATE_QUEUED = 1;
     */
    QUEUED = 1,
    /**
     * The exec runs.
     *
     * @generated from enum value: EXEC_STATE_RUNNING = 2;
     */
    RUNNING = 2,
    /**
     * The exec has ended; its output and end are kept for a while.
     *
     * @generated from enum value: EXEC_STATE_ENDED = 3;
     */
    ENDED = 3
}
/**
 * Describes the enum sandboxd.v1.ExecState.
 */
export declare const ExecStateSchema: GenEnum<ExecState>;
/**
 * Why a command ended.
 *
 * @generated from enum sandboxd.v1.ExitReason
 */
export declare enum ExitReason {
    /**
     * Never sent.
     *
     * @generated from enum value: EXIT_REASON_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The command exited by itself.
     *
     * @generated from enum value: EXIT_REASON_EXITED = 1;
     */
    EXITED = 1,
    /**
     * A signal that sandboxd did not send ended the command.
     *
     * @generated from enum value: EXIT_REASON_SIGNALLED = 2;
     */
    SIGNALLED = 2,
    /**
     * The command ran longer than its timeout; all its processes were killed, and its output is kept.
     *
     * @generated from enum value: EXIT_REASON_TIMED_OUT = 3;
     */
    TIMED_OUT = 3,
    /**
     * The caller disconnected or cancelled, and `on_disconnect` was KILL.
     *
     * @generated from enum value: EXIT_REASON_CANCELLED = 4;
     */
    CANCELLED = 4,
    /**
     * The session was closed or expired.
     *
     * @generated from enum value: EXIT_REASON_SESSION_CLOSED = 5;
     */
    SESSION_CLOSED = 5,
    /**
     * The sandbox died or misbehaved and was destroyed.
     *
     * @generated from enum value: EXIT_REASON_SANDBOX_LOST = 6;
     */
    SANDBOX_LOST = 6,
    /**
     * Another command of the session could be ended only by killing every process in the sandbox.
     *
     * @generated from enum value: EXIT_REASON_SWEPT = 7;
     */
    SWEPT = 7,
    /**
     * The command failed, and the kernel had killed a process because the memory limit was reached; all its other processes were
     * killed as well.
     *
     * @generated from enum value: EXIT_REASON_OUT_OF_MEMORY = 8;
     */
    OUT_OF_MEMORY = 8,
    /**
     * The command failed, and the kernel had refused to create a process because the process limit was reached.
     *
     * @generated from enum value: EXIT_REASON_PROCESS_LIMIT = 9;
     */
    PROCESS_LIMIT = 9,
    /**
     * The command failed, and the workspace, /tmp or /var/tmp had no space left for bytes or for files.
     *
     * @generated from enum value: EXIT_REASON_DISK_FULL = 10;
     */
    DISK_FULL = 10,
    /**
     * The command wrote nothing for longer than its no-output timeout; all its processes were killed.
     *
     * @generated from enum value: EXIT_REASON_NO_OUTPUT_TIMEOUT = 11;
     */
    NO_OUTPUT_TIMEOUT = 11
}
/**
 * Describes the enum sandboxd.v1.ExitReason.
 */
export declare const ExitReasonSchema: GenEnum<ExitReason>;
