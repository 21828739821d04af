import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { CapturedOutput, Exec, ExecEvent, ExecState, Execution, ExitStatus, OutputMatch, OutputPreview, OutputStream, Terminal } from "./exec_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/exec_service.proto.
 */
export declare const file_sandboxd_proto_v1_exec_service: GenFile;
/**
 * A command to run.
 *
 * @generated from message sandboxd.v1.ExecRequest
 */
export type ExecRequest = Message<"sandboxd.v1.ExecRequest"> & {
    /**
     * Required. Session to run the command in.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any.
     *
     * @generated from field: uint32 incarnation = 2;
     */
    incarnation: number;
    /**
     * Optional. Id of this exec, unique in its session: 1 to 64 letters, digits, `_`, `-`, `.`; if it is
     * empty, the daemon generates one. A Run without an id keeps neither output nor end.
     *
     * @generated from field: string exec_id = 3;
     */
    execId: string;
    /**
     * Required. What to run.
     *
     * @generated from oneof sandboxd.v1.ExecRequest.command
     */
    command: {
        /**
         * A command line, run as by `bash -c` (or `sh -c` if the image has no bash, then at most 131071 bytes). A longer one than 131071 bytes
         * runs as by `eval`. Command and environment together have about as many bytes as the kernel takes: 2031616.
         *
         * @generated from field: string shell = 4;
         */
        value: string;
        case: "shell";
    } | {
        /**
         * A program and its arguments, run without a shell: at most 32768 words of at most 131071 bytes.
         *
         * @generated from field: sandboxd.v1.Argv argv = 5;
         */
        value: Argv;
        case: "argv";
    } | {
        case: undefined;
        value?: undefined;
    };
    /**
     * Optional. Directory to start in, relative to the workspace or absolute; empty means the workspace.
     *
     * @generated from field: string cwd = 6;
     */
    cwd: string;
    /**
     * Optional. Environment variables to add or override.
     *
     * @generated from field: map<string, string> env = 7;
     */
    env: {
        [key: string]: string;
    };
    /**
     * Optional. How long the command may run; absent means the session's default (30 seconds), 0 the session's `max_exec_timeout`, which
     * is also the longest. Independent of the deadline of the call.
     *
     * @generated from field: google.protobuf.Duration timeout = 8;
     */
    timeout?: Duration | undefined;
    /**
     * Optional. What happens to the command when the caller of Exec or Run disconnects; absent means KILL. When the daemon itself stops, the
     * command continues, and its caller has half a minute after the daemon's restart to attach again.
     *
     * @generated from field: sandboxd.v1.OnDisconnect on_disconnect = 9;
     */
    onDisconnect: OnDisconnect;
    /**
     * Optional. For Run: most bytes of each stream to return, up to the session's `max_run_output_bytes`;
     * 0 means that limit.
     *
     * @generated from field: uint64 max_output_bytes = 10;
     */
    maxOutputBytes: bigint;
    /**
     * Optional. Kill the command when it has written nothing for this long; absent means never.
     *
     * @generated from field: google.protobuf.Duration no_output_timeout = 11;
     */
    noOutputTimeout?: Duration | undefined;
    /**
     * Optional. Give the command a standard input that WriteStdin feeds; otherwise it is empty.
     *
     * @generated from field: bool stdin = 12;
     */
    stdin: boolean;
    /**
     * Optional. Run the command in a terminal of this size: output is one stream, WriteStdin types into the terminal. Not for Run.
     *
     * @generated from field: sandboxd.v1.Terminal terminal = 13;
     */
    terminal?: Terminal | undefined;
    /**
     * Optional. Run the command in this named shell of the session: directory, exported variables, functions and options carry over from
     * one command to the next, even after one that calls `exit`, is killed or times out. Commands of one shell run one after the other.
     * 1 to 64 letters, digits, `_`, `-`, `.`; empty means an unnamed shell for this command only. Only with `shell`.
     *
     * @generated from field: string shell_name = 14;
     */
    shellName: string;
    /**
     * Optional. Give the command one pipe for both streams: everything is standard output, in the order in which it was written, and
     * standard error is empty. The output of a terminal is always so.
     *
     * @generated from field: bool merge_stderr = 15;
     */
    mergeStderr: boolean;
};
/**
 * Describes the message sandboxd.v1.ExecRequest.
 * Use `create(ExecRequestSchema)` to create a new message.
 */
export declare const ExecRequestSchema: GenMessage<ExecRequest>;
/**
 * The started exec.
 *
 * @generated from message sandboxd.v1.StartExecResponse
 */
export type StartExecResponse = Message<"sandboxd.v1.StartExecResponse"> & {
    /**
     * The exec.
     *
     * @generated from field: sandboxd.v1.Exec exec = 1;
     */
    exec?: Exec | undefined;
    /**
     * True if the exec already existed: this call started nothing.
     *
     * @generated from field: bool already_started = 2;
     */
    alreadyStarted: boolean;
};
/**
 * Describes the message sandboxd.v1.StartExecResponse.
 * Use `create(StartExecResponseSchema)` to create a new message.
 */
export declare const StartExecResponseSchema: GenMessage<StartExecResponse>;
/**
 * Request for the stream of an exec.
 *
 * @generated from message sandboxd.v1.AttachExecRequest
 */
export type AttachExecRequest = Message<"sandboxd.v1.AttachExecRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Optional. Position in standard output to start at; 0 means the beginning.
     *
     * @generated from field: uint64 stdout_offset = 3;
     */
    stdoutOffset: bigint;
    /**
     * Optional. Position in standard error to start at; 0 means the beginning.
     *
     * @generated from field: uint64 stderr_offset = 4;
     */
    stderrOffset: bigint;
    /**
     * Optional. Position in the events of a run of code to start at, as a CodeEvent's `next_offset` gave it; 0 means the beginning.
     *
     * @generated from field: uint64 events_offset = 5;
     */
    eventsOffset: bigint;
};
/**
 * Describes the message sandboxd.v1.AttachExecRequest.
 * Use `create(AttachExecRequestSchema)` to create a new message.
 */
export declare const AttachExecRequestSchema: GenMessage<AttachExecRequest>;
/**
 * Request to wait for the end of an exec.
 *
 * @generated from message sandboxd.v1.WaitExecRequest
 */
export type WaitExecRequest = Message<"sandboxd.v1.WaitExecRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Optional. How long to wait; absent means as long as the exec may run.
     *
     * @generated from field: google.protobuf.Duration timeout = 3;
     */
    timeout?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.WaitExecRequest.
 * Use `create(WaitExecRequestSchema)` to create a new message.
 */
export declare const WaitExecRequestSchema: GenMessage<WaitExecRequest>;
/**
 * The exec, ended unless `timeout` passed first.
 *
 * @generated from message sandboxd.v1.WaitExecResponse
 */
export type WaitExecResponse = Message<"sandboxd.v1.WaitExecResponse"> & {
    /**
     * The exec as it is now.
     *
     * @generated from field: sandboxd.v1.Exec exec = 1;
     */
    exec?: Exec | undefined;
};
/**
 * Describes the message sandboxd.v1.WaitExecResponse.
 * Use `create(WaitExecResponseSchema)` to create a new message.
 */
export declare const WaitExecResponseSchema: GenMessage<WaitExecResponse>;
/**
 * Request for the execs of a session.
 *
 * @generated from message sandboxd.v1.ListExecsRequest
 */
export type ListExecsRequest = Message<"sandboxd.v1.ListExecsRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Execs per page, 1 to 1000; 0 means 100.
     *
     * @generated from field: uint32 page_size = 2;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page; empty means the first page.
     *
     * @generated from field: string page_token = 3;
     */
    pageToken: string;
    /**
     * Optional. Only execs in this state; absent means any.
     *
     * @generated from field: sandboxd.v1.ExecState state = 4;
     */
    state: ExecState;
};
/**
 * Describes the message sandboxd.v1.ListExecsRequest.
 * Use `create(ListExecsRequestSchema)` to create a new message.
 */
export declare const ListExecsRequestSchema: GenMessage<ListExecsRequest>;
/**
 * A page of execs.
 *
 * @generated from message sandboxd.v1.ListExecsResponse
 */
export type ListExecsResponse = Message<"sandboxd.v1.ListExecsResponse"> & {
    /**
     * The execs, newest first.
     *
     * @generated from field: repeated sandboxd.v1.Exec execs = 1;
     */
    execs: Exec[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListExecsResponse.
 * Use `create(ListExecsResponseSchema)` to create a new message.
 */
export declare const ListExecsResponseSchema: GenMessage<ListExecsResponse>;
/**
 * Request for the history of a session.
 *
 * @generated from message sandboxd.v1.ListExecutionsRequest
 */
export type ListExecutionsRequest = Message<"sandboxd.v1.ListExecutionsRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Executions per page, 1 to 1000; 0 means 100.
     *
     * @generated from field: uint32 page_size = 2;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page; empty means the first page.
     *
     * @generated from field: string page_token = 3;
     */
    pageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListExecutionsRequest.
 * Use `create(ListExecutionsRequestSchema)` to create a new message.
 */
export declare const ListExecutionsRequestSchema: GenMessage<ListExecutionsRequest>;
/**
 * A page of the history.
 *
 * @generated from message sandboxd.v1.ListExecutionsResponse
 */
export type ListExecutionsResponse = Message<"sandboxd.v1.ListExecutionsResponse"> & {
    /**
     * Ended commands; the one that ended last comes first.
     *
     * @generated from field: repeated sandboxd.v1.Execution executions = 1;
     */
    executions: Execution[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListExecutionsResponse.
 * Use `create(ListExecutionsResponseSchema)` to create a new message.
 */
export declare const ListExecutionsResponseSchema: GenMessage<ListExecutionsResponse>;
/**
 * Request to send a signal to an exec.
 *
 * @generated from message sandboxd.v1.SignalExecRequest
 */
export type SignalExecRequest = Message<"sandboxd.v1.SignalExecRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Required. Number of the signal, 1 to 64.
     *
     * @generated from field: int32 signal = 3;
     */
    signal: number;
    /**
     * Optional. Processes to signal; absent means the group.
     *
     * @generated from field: sandboxd.v1.SignalTarget target = 4;
     */
    target: SignalTarget;
};
/**
 * Describes the message sandboxd.v1.SignalExecRequest.
 * Use `create(SignalExecRequestSchema)` to create a new message.
 */
export declare const SignalExecRequestSchema: GenMessage<SignalExecRequest>;
/**
 * The signal was sent.
 *
 * @generated from message sandboxd.v1.SignalExecResponse
 */
export type SignalExecResponse = Message<"sandboxd.v1.SignalExecResponse"> & {};
/**
 * Describes the message sandboxd.v1.SignalExecResponse.
 * Use `create(SignalExecResponseSchema)` to create a new message.
 */
export declare const SignalExecResponseSchema: GenMessage<SignalExecResponse>;
/**
 * Request to write to the standard input of an exec.
 *
 * @generated from message sandboxd.v1.WriteStdinRequest
 */
export type WriteStdinRequest = Message<"sandboxd.v1.WriteStdinRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Required unless `append` is set. Position of the first byte in the whole input.
     *
     * @generated from field: uint64 offset = 3;
     */
    offset: bigint;
    /**
     * Optional. The bytes, at most 1 MiB.
     *
     * @generated from field: bytes data = 4;
     */
    data: Uint8Array;
    /**
     * Optional. True if no more bytes follow; the command then sees the end of its input.
     *
     * @generated from field: bool eof = 5;
     */
    eof: boolean;
    /**
     * Optional. Write after everything that was written before, by this or another writer; `offset` must be 0. Several people at one terminal
     * lose nothing so. Not safe to repeat: the bytes are written again.
     *
     * @generated from field: bool append = 6;
     */
    append: boolean;
};
/**
 * Describes the message sandboxd.v1.WriteStdinRequest.
 * Use `create(WriteStdinRequestSchema)` to create a new message.
 */
export declare const WriteStdinRequestSchema: GenMessage<WriteStdinRequest>;
/**
 * The bytes were accepted.
 *
 * @generated from message sandboxd.v1.WriteStdinResponse
 */
export type WriteStdinResponse = Message<"sandboxd.v1.WriteStdinResponse"> & {
    /**
     * Position of the next byte to write.
     *
     * @generated from field: uint64 next_offset = 1;
     */
    nextOffset: bigint;
};
/**
 * Describes the message sandboxd.v1.WriteStdinResponse.
 * Use `create(WriteStdinResponseSchema)` to create a new message.
 */
export declare const WriteStdinResponseSchema: GenMessage<WriteStdinResponse>;
/**
 * Request to resize a terminal.
 *
 * @generated from message sandboxd.v1.ResizeExecRequest
 */
export type ResizeExecRequest = Message<"sandboxd.v1.ResizeExecRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Required. New size.
     *
     * @generated from field: sandboxd.v1.Terminal terminal = 3;
     */
    terminal?: Terminal | undefined;
};
/**
 * Describes the message sandboxd.v1.ResizeExecRequest.
 * Use `create(ResizeExecRequestSchema)` to create a new message.
 */
export declare const ResizeExecRequestSchema: GenMessage<ResizeExecRequest>;
/**
 * The size was changed.
 *
 * @generated from message sandboxd.v1.ResizeExecResponse
 */
export type ResizeExecResponse = Message<"sandboxd.v1.ResizeExecResponse"> & {};
/**
 * Describes the message sandboxd.v1.ResizeExecResponse.
 * Use `create(ResizeExecResponseSchema)` to create a new message.
 */
export declare const ResizeExecResponseSchema: GenMessage<ResizeExecResponse>;
/**
 * Request for kept output.
 *
 * @generated from message sandboxd.v1.ReadOutputRequest
 */
export type ReadOutputRequest = Message<"sandboxd.v1.ReadOutputRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Optional. Stream to read; absent means standard output.
     *
     * @generated from field: sandboxd.v1.OutputStream stream = 3;
     */
    stream: OutputStream;
    /**
     * Optional. Position of the first byte.
     *
     * @generated from field: uint64 offset = 4;
     */
    offset: bigint;
    /**
     * Optional. Bytes to return, up to 1 MiB; 0 means 64 KiB.
     *
     * @generated from field: uint32 max_bytes = 5;
     */
    maxBytes: number;
};
/**
 * Describes the message sandboxd.v1.ReadOutputRequest.
 * Use `create(ReadOutputRequestSchema)` to create a new message.
 */
export declare const ReadOutputRequestSchema: GenMessage<ReadOutputRequest>;
/**
 * Kept output.
 *
 * @generated from message sandboxd.v1.ReadOutputResponse
 */
export type ReadOutputResponse = Message<"sandboxd.v1.ReadOutputResponse"> & {
    /**
     * Position of the first byte of `data`: the requested one, or the first after dropped bytes.
     *
     * @generated from field: uint64 offset = 1;
     */
    offset: bigint;
    /**
     * The bytes; empty at the end of the output so far.
     *
     * @generated from field: bytes data = 2;
     */
    data: Uint8Array;
    /**
     * Number of bytes between the requested position and `offset` that are no longer kept.
     *
     * @generated from field: uint64 dropped_bytes = 3;
     */
    droppedBytes: bigint;
    /**
     * Number of bytes in the whole stream so far.
     *
     * @generated from field: uint64 total_bytes = 4;
     */
    totalBytes: bigint;
    /**
     * True if the exec has ended and no more output follows.
     *
     * @generated from field: bool ended = 5;
     */
    ended: boolean;
};
/**
 * Describes the message sandboxd.v1.ReadOutputResponse.
 * Use `create(ReadOutputResponseSchema)` to create a new message.
 */
export declare const ReadOutputResponseSchema: GenMessage<ReadOutputResponse>;
/**
 * Request to search kept output.
 *
 * @generated from message sandboxd.v1.SearchOutputRequest
 */
export type SearchOutputRequest = Message<"sandboxd.v1.SearchOutputRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Required. Regular expression, RE2 syntax, matched against each line; at most 1000 characters.
     *
     * @generated from field: string pattern = 3;
     */
    pattern: string;
    /**
     * Optional. Stream to search; absent means both.
     *
     * @generated from field: sandboxd.v1.OutputStream stream = 4;
     */
    stream: OutputStream;
    /**
     * Optional. Most matches to return, up to 1000; 0 means 100.
     *
     * @generated from field: uint32 max_matches = 5;
     */
    maxMatches: number;
    /**
     * Optional. Lines to return before and after each match, up to 10.
     *
     * @generated from field: uint32 context_lines = 6;
     */
    contextLines: number;
};
/**
 * Describes the message sandboxd.v1.SearchOutputRequest.
 * Use `create(SearchOutputRequestSchema)` to create a new message.
 */
export declare const SearchOutputRequestSchema: GenMessage<SearchOutputRequest>;
/**
 * Result of a search.
 *
 * @generated from message sandboxd.v1.SearchOutputResponse
 */
export type SearchOutputResponse = Message<"sandboxd.v1.SearchOutputResponse"> & {
    /**
     * The matches in order, standard output first.
     *
     * @generated from field: repeated sandboxd.v1.OutputMatch matches = 1;
     */
    matches: OutputMatch[];
    /**
     * True if all kept output was searched.
     *
     * @generated from field: bool complete = 2;
     */
    complete: boolean;
    /**
     * Number of bytes that were searched.
     *
     * @generated from field: uint64 scanned_bytes = 3;
     */
    scannedBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.SearchOutputResponse.
 * Use `create(SearchOutputResponseSchema)` to create a new message.
 */
export declare const SearchOutputResponseSchema: GenMessage<SearchOutputResponse>;
/**
 * Request for a preview of the output.
 *
 * @generated from message sandboxd.v1.PreviewOutputRequest
 */
export type PreviewOutputRequest = Message<"sandboxd.v1.PreviewOutputRequest"> & {
    /**
     * Required. Session of the exec.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The exec.
     *
     * @generated from field: string exec_id = 2;
     */
    execId: string;
    /**
     * Optional. Most bytes of each stream, up to 1 MiB; 0 means 16 KiB.
     *
     * @generated from field: uint32 max_bytes = 3;
     */
    maxBytes: number;
    /**
     * Optional. Reduce progress bars to their last state and remove colour codes.
     *
     * @generated from field: bool collapse = 4;
     */
    collapse: boolean;
};
/**
 * Describes the message sandboxd.v1.PreviewOutputRequest.
 * Use `create(PreviewOutputRequestSchema)` to create a new message.
 */
export declare const PreviewOutputRequestSchema: GenMessage<PreviewOutputRequest>;
/**
 * A preview of the output.
 *
 * @generated from message sandboxd.v1.PreviewOutputResponse
 */
export type PreviewOutputResponse = Message<"sandboxd.v1.PreviewOutputResponse"> & {
    /**
     * Standard output.
     *
     * @generated from field: sandboxd.v1.OutputPreview stdout = 1;
     */
    stdout?: OutputPreview | undefined;
    /**
     * Standard error.
     *
     * @generated from field: sandboxd.v1.OutputPreview stderr = 2;
     */
    stderr?: OutputPreview | undefined;
};
/**
 * Describes the message sandboxd.v1.PreviewOutputResponse.
 * Use `create(PreviewOutputResponseSchema)` to create a new message.
 */
export declare const PreviewOutputResponseSchema: GenMessage<PreviewOutputResponse>;
/**
 * A program and its arguments.
 *
 * @generated from message sandboxd.v1.Argv
 */
export type Argv = Message<"sandboxd.v1.Argv"> & {
    /**
     * Required. The program (looked up in PATH unless it contains a slash) and its arguments; at least one.
     *
     * @generated from field: repeated string args = 1;
     */
    args: string[];
};
/**
 * Describes the message sandboxd.v1.Argv.
 * Use `create(ArgvSchema)` to create a new message.
 */
export declare const ArgvSchema: GenMessage<Argv>;
/**
 * A batch of events.
 *
 * @generated from message sandboxd.v1.ExecResponse
 */
export type ExecResponse = Message<"sandboxd.v1.ExecResponse"> & {
    /**
     * At least one event, in order.
     *
     * @generated from field: repeated sandboxd.v1.ExecEvent events = 1;
     */
    events: ExecEvent[];
};
/**
 * Describes the message sandboxd.v1.ExecResponse.
 * Use `create(ExecResponseSchema)` to create a new message.
 */
export declare const ExecResponseSchema: GenMessage<ExecResponse>;
/**
 * An ended command.
 *
 * @generated from message sandboxd.v1.RunResponse
 */
export type RunResponse = Message<"sandboxd.v1.RunResponse"> & {
    /**
     * Id of this exec.
     *
     * @generated from field: string exec_id = 1;
     */
    execId: string;
    /**
     * How the command ended.
     *
     * @generated from field: sandboxd.v1.ExitStatus exit = 2;
     */
    exit?: ExitStatus | undefined;
    /**
     * Standard output of the command.
     *
     * @generated from field: sandboxd.v1.CapturedOutput stdout = 3;
     */
    stdout?: CapturedOutput | undefined;
    /**
     * Standard error of the command.
     *
     * @generated from field: sandboxd.v1.CapturedOutput stderr = 4;
     */
    stderr?: CapturedOutput | undefined;
};
/**
 * Describes the message sandboxd.v1.RunResponse.
 * Use `create(RunResponseSchema)` to create a new message.
 */
export declare const RunResponseSchema: GenMessage<RunResponse>;
/**
 * Processes that receive a signal.
 *
 * @generated from enum sandboxd.v1.SignalTarget
 */
export declare enum SignalTarget {
    /**
     * Same as GROUP.
     *
     * @generated from enum value: SIGNAL_TARGET_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The process group of the command; in a terminal, the foreground group.
     *
     * @generated from enum value: SIGNAL_TARGET_GROUP = 1;
     */
    GROUP = 1,
    /**
     * The first process only.
     *
     * @generated from enum value: SIGNAL_TARGET_LEADER = 2;
     */
    LEADER = 2
}
/**
 * Describes the enum sandboxd.v1.SignalTarget.
 */
export declare const SignalTargetSchema: GenEnum<SignalTarget>;
/**
 * What happens to a command when its caller disconnects.
 *
 * @generated from enum sandboxd.v1.OnDisconnect
 */
export declare enum OnDisconnect {
    /**
     * Same as KILL.
     *
     * @generated from enum value: ON_DISCONNECT_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * All processes of the command are killed.
     *
     * @generated from enum value: ON_DISCONNECT_KILL = 1;
     */
    KILL = 1,
    /**
     * The command continues in the background until it ends or times out; callers can attach to it.
     *
     * @generated from enum value: ON_DISCONNECT_KEEP_RUNNING = 2;
     */
    KEEP_RUNNING = 2
}
/**
 * Describes the enum sandboxd.v1.OnDisconnect.
 */
export declare const OnDisconnectSchema: GenEnum<OnDisconnect>;
/**
 * Runs commands in sessions. An exec is an object of its session: it is started once, runs and ends whether or not a caller is attached,
 * and its output and its end are kept for late readers for a while. Exec and Run start an exec and follow it in one call.
 * All calls fail with SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED or SANDBOX_LOST if the session is not active. Calls that name an
 * exec fail with EXEC_NOT_FOUND if it does not exist.
 *
 * @generated from service sandboxd.v1.ExecService
 */
export declare const ExecService: GenService<{
    /**
     * Starts a command and streams its events. A response carries a batch: the events available at that
     * moment, so a short command answers in one message. A slow reader slows the command down. When the
     * caller disconnects, `on_disconnect` decides what happens.
     * If the session already has an exec with this `exec_id` and the same content, nothing is started and the stream is that of the existing
     * exec, from its beginning. With other content the call fails with EXEC_CONFLICT.
     * Reasons: INVALID_REQUEST, REQUEST_TOO_LARGE, SESSION_RECREATED, EXEC_CONFLICT, EXEC_LIMIT_REACHED, COMMAND_NOT_ALLOWED, COMMAND_NOT_STARTABLE,
     * DRAINING.
     *
     * @generated from rpc sandboxd.v1.ExecService.Exec
     */
    exec: {
        methodKind: "server_streaming";
        input: typeof ExecRequestSchema;
        output: typeof ExecResponseSchema;
    };
    /**
     * Starts a command and answers once, when it has ended. If the output exceeds the cap, its middle is
     * left out and counted. Otherwise like Exec, and faster for short commands.
     *
     * @generated from rpc sandboxd.v1.ExecService.Run
     */
    run: {
        methodKind: "unary";
        input: typeof ExecRequestSchema;
        output: typeof RunResponseSchema;
    };
    /**
     * Starts a command and answers as soon as it runs, or waits for an earlier command of its shell; the command continues when callers
     * disconnect. Safe to repeat with the same `exec_id`: however often it is called, even across a restart of the daemon, the command runs
     * once. Reasons as for Exec. If the sandbox has not started it after a few seconds, it answers nevertheless.
     *
     * @generated from rpc sandboxd.v1.ExecService.StartExec
     */
    startExec: {
        methodKind: "unary";
        input: typeof ExecRequestSchema;
        output: typeof StartExecResponseSchema;
    };
    /**
     * Streams an exec from any position of its output: kept output, then new events, then its end, which is the last event. Any number of
     * callers may attach at the same time. Disconnecting does not end the command. Does not count as use of the session.
     *
     * @generated from rpc sandboxd.v1.ExecService.AttachExec
     */
    attachExec: {
        methodKind: "server_streaming";
        input: typeof AttachExecRequestSchema;
        output: typeof ExecResponseSchema;
    };
    /**
     * Answers when an exec has ended, or when `timeout` has passed.
     *
     * @generated from rpc sandboxd.v1.ExecService.WaitExec
     */
    waitExec: {
        methodKind: "unary";
        input: typeof WaitExecRequestSchema;
        output: typeof WaitExecResponseSchema;
    };
    /**
     * Lists the execs of a session, newest first: those that run and those that ended recently.
     *
     * @generated from rpc sandboxd.v1.ExecService.ListExecs
     */
    listExecs: {
        methodKind: "unary";
        input: typeof ListExecsRequestSchema;
        output: typeof ListExecsResponseSchema;
    };
    /**
     * Lists the ended commands of a session, newest first, for much longer than ListExecs: as long as the session is remembered, up to a
     * number of commands. It includes every command, however it was started, but no output.
     * Reasons: SESSION_NOT_FOUND, INVALID_REQUEST.
     *
     * @generated from rpc sandboxd.v1.ExecService.ListExecutions
     */
    listExecutions: {
        methodKind: "unary";
        input: typeof ListExecutionsRequestSchema;
        output: typeof ListExecutionsResponseSchema;
    };
    /**
     * Sends a signal to a running exec. SIGKILL also ends one that waits for its shell, with reason CANCELLED. Reasons: INVALID_REQUEST,
     * EXEC_ENDED.
     *
     * @generated from rpc sandboxd.v1.ExecService.SignalExec
     */
    signalExec: {
        methodKind: "unary";
        input: typeof SignalExecRequestSchema;
        output: typeof SignalExecResponseSchema;
    };
    /**
     * Writes to the standard input of an exec that was started with `stdin` or a terminal. Answers when the sandbox has accepted the bytes or
     * has space for them, so a slow command slows its writer down. Safe to repeat without `append`: bytes at positions that were already accepted are
     * skipped.
     * Reasons: INVALID_REQUEST (also for a gap), EXEC_ENDED.
     *
     * @generated from rpc sandboxd.v1.ExecService.WriteStdin
     */
    writeStdin: {
        methodKind: "unary";
        input: typeof WriteStdinRequestSchema;
        output: typeof WriteStdinResponseSchema;
    };
    /**
     * Changes the size of an exec's terminal. Reasons: INVALID_REQUEST, EXEC_ENDED.
     *
     * @generated from rpc sandboxd.v1.ExecService.ResizeExec
     */
    resizeExec: {
        methodKind: "unary";
        input: typeof ResizeExecRequestSchema;
        output: typeof ResizeExecResponseSchema;
    };
    /**
     * Reads kept output by position.
     *
     * @generated from rpc sandboxd.v1.ExecService.ReadOutput
     */
    readOutput: {
        methodKind: "unary";
        input: typeof ReadOutputRequestSchema;
        output: typeof ReadOutputResponseSchema;
    };
    /**
     * Finds lines in kept output by a regular expression (RE2 syntax). The work is bounded: `complete` says whether everything was searched.
     *
     * @generated from rpc sandboxd.v1.ExecService.SearchOutput
     */
    searchOutput: {
        methodKind: "unary";
        input: typeof SearchOutputRequestSchema;
        output: typeof SearchOutputResponseSchema;
    };
    /**
     * Returns the beginning and the end of the output in a size that a model can read.
     *
     * @generated from rpc sandboxd.v1.ExecService.PreviewOutput
     */
    previewOutput: {
        methodKind: "unary";
        input: typeof PreviewOutputRequestSchema;
        output: typeof PreviewOutputResponseSchema;
    };
}>;
