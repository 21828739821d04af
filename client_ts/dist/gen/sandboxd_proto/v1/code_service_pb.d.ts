import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { Breakpoint, CodeError, CodeLog, CodeResult, CodeViolation, Display, Variable } from "./code_pb.js";
import type { CapturedOutput, ExitStatus } from "./exec_pb.js";
import type { ExecResponseSchema, OnDisconnect, StartExecResponseSchema } from "./exec_service_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/code_service.proto.
 */
export declare const file_sandboxd_proto_v1_code_service: GenFile;
/**
 * Code to run.
 *
 * @generated from message sandboxd.v1.RunCodeRequest
 */
export type RunCodeRequest = Message<"sandboxd.v1.RunCodeRequest"> & {
    /**
     * Required. Session to run the code in.
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
     * Optional. Id of this exec, as in ExecRequest.
     *
     * @generated from field: string exec_id = 3;
     */
    execId: string;
    /**
     * Required. The code, at most 512 KiB.
     *
     * @generated from field: string code = 4;
     */
    code: string;
    /**
     * Optional. Context to run in, created if it does not exist; empty means `main`. 1 to 64 letters, digits, `_`, `-`, `.`.
     *
     * @generated from field: string context = 5;
     */
    context: string;
    /**
     * Optional. Fail with CONTEXT_LOST unless the context is on this generation; 0 means any.
     *
     * @generated from field: uint32 generation = 6;
     */
    generation: number;
    /**
     * Optional. How long the run may take; absent means 30 seconds. At the end the code is interrupted and the context keeps its variables;
     * if it does not stop, its process is killed and the answer says so. Longest and 0 as in ExecRequest.
     *
     * @generated from field: google.protobuf.Duration timeout = 7;
     */
    timeout?: Duration | undefined;
    /**
     * Optional. What happens to the run when the caller disconnects; absent means KILL, which interrupts first.
     *
     * @generated from field: sandboxd.v1.OnDisconnect on_disconnect = 8;
     */
    onDisconnect: OnDisconnect;
    /**
     * Optional. For RunCode: most bytes of each stream to return, as in ExecRequest.
     *
     * @generated from field: uint64 max_output_bytes = 9;
     */
    maxOutputBytes: bigint;
    /**
     * Optional. Language of a context that this run creates: `python` (default) or `javascript`.
     *
     * @generated from field: string language = 10;
     */
    language: string;
};
/**
 * Describes the message sandboxd.v1.RunCodeRequest.
 * Use `create(RunCodeRequestSchema)` to create a new message.
 */
export declare const RunCodeRequestSchema: GenMessage<RunCodeRequest>;
/**
 * An ended run.
 *
 * @generated from message sandboxd.v1.RunCodeResponse
 */
export type RunCodeResponse = Message<"sandboxd.v1.RunCodeResponse"> & {
    /**
     * Id of the exec.
     *
     * @generated from field: string exec_id = 1;
     */
    execId: string;
    /**
     * How the run ended.
     *
     * @generated from field: sandboxd.v1.CodeStatus status = 2;
     */
    status: CodeStatus;
    /**
     * The context after the run.
     *
     * @generated from field: sandboxd.v1.Context context = 3;
     */
    context?: Context | undefined;
    /**
     * Whether the run found its variables.
     *
     * @generated from field: sandboxd.v1.ContextOutcome outcome = 4;
     */
    outcome: ContextOutcome;
    /**
     * The result; absent if there is none.
     *
     * @generated from field: sandboxd.v1.CodeResult result = 5;
     */
    result?: CodeResult | undefined;
    /**
     * The value of the last expression; absent if there is none.
     *
     * @generated from field: sandboxd.v1.Display value = 6;
     */
    value?: Display | undefined;
    /**
     * What the code displayed, in order.
     *
     * @generated from field: repeated sandboxd.v1.Display displays = 7;
     */
    displays: Display[];
    /**
     * The exception that ended the run; absent if there was none.
     *
     * @generated from field: sandboxd.v1.CodeError error = 8;
     */
    error?: CodeError | undefined;
    /**
     * Lines of the log, in order.
     *
     * @generated from field: repeated sandboxd.v1.CodeLog logs = 9;
     */
    logs: CodeLog[];
    /**
     * Facts about the run that its reader should know.
     *
     * @generated from field: repeated string notes = 10;
     */
    notes: string[];
    /**
     * Standard output.
     *
     * @generated from field: sandboxd.v1.CapturedOutput stdout = 11;
     */
    stdout?: CapturedOutput | undefined;
    /**
     * Standard error.
     *
     * @generated from field: sandboxd.v1.CapturedOutput stderr = 12;
     */
    stderr?: CapturedOutput | undefined;
    /**
     * End of the exec: reason, duration, usage, hint.
     *
     * @generated from field: sandboxd.v1.ExitStatus exit = 13;
     */
    exit?: ExitStatus | undefined;
    /**
     * Number of displays that were left out because of a limit on their number or size.
     *
     * @generated from field: uint32 left_out_displays = 14;
     */
    leftOutDisplays: number;
    /**
     * Number of log lines that were left out.
     *
     * @generated from field: uint32 left_out_logs = 15;
     */
    leftOutLogs: number;
};
/**
 * Describes the message sandboxd.v1.RunCodeResponse.
 * Use `create(RunCodeResponseSchema)` to create a new message.
 */
export declare const RunCodeResponseSchema: GenMessage<RunCodeResponse>;
/**
 * A context: a process of the sandbox that keeps its variables from one run to the next.
 *
 * @generated from message sandboxd.v1.Context
 */
export type Context = Message<"sandboxd.v1.Context"> & {
    /**
     * Name, unique in the session; `main` is the default.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Number of the process in a row that this context is on, from 1; it grows when the context was lost or restarted, and its variables
     * with it.
     *
     * @generated from field: uint32 generation = 2;
     */
    generation: number;
    /**
     * State of the context.
     *
     * @generated from field: sandboxd.v1.ContextState state = 3;
     */
    state: ContextState;
    /**
     * Language: `python` or `javascript`.
     *
     * @generated from field: string language = 4;
     */
    language: string;
    /**
     * Version of the interpreter, such as `3.11.2`; empty until the context has run.
     *
     * @generated from field: string version = 5;
     */
    version: string;
    /**
     * Number of runs in this generation.
     *
     * @generated from field: uint32 runs = 6;
     */
    runs: number;
    /**
     * How the previous generation ended; absent for the first one.
     *
     * @generated from field: sandboxd.v1.ExitStatus lost = 7;
     */
    lost?: ExitStatus | undefined;
    /**
     * Directory that the context started in.
     *
     * @generated from field: string cwd = 8;
     */
    cwd: string;
    /**
     * Name of the code policy in force.
     *
     * @generated from field: string policy = 9;
     */
    policy: string;
    /**
     * When this generation was started; absent until then.
     *
     * @generated from field: google.protobuf.Timestamp start_time = 10;
     */
    startTime?: Timestamp | undefined;
    /**
     * The end of what was written to standard output and standard error between runs, by threads or processes that runs left behind.
     *
     * @generated from field: bytes background_output = 11;
     */
    backgroundOutput: Uint8Array;
    /**
     * Exec id of the run that the context is busy with; empty if it is idle.
     *
     * @generated from field: string exec_id = 12;
     */
    execId: string;
};
/**
 * Describes the message sandboxd.v1.Context.
 * Use `create(ContextSchema)` to create a new message.
 */
export declare const ContextSchema: GenMessage<Context>;
/**
 * Request for the outcome of a run.
 *
 * @generated from message sandboxd.v1.GetCodeRunRequest
 */
export type GetCodeRunRequest = Message<"sandboxd.v1.GetCodeRunRequest"> & {
    /**
     * Required. Session of the run.
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
     * Optional. Most bytes of each stream to return, as in RunCodeRequest.
     *
     * @generated from field: uint64 max_output_bytes = 3;
     */
    maxOutputBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.GetCodeRunRequest.
 * Use `create(GetCodeRunRequestSchema)` to create a new message.
 */
export declare const GetCodeRunRequestSchema: GenMessage<GetCodeRunRequest>;
/**
 * Code to step through.
 *
 * @generated from message sandboxd.v1.StepThroughRequest
 */
export type StepThroughRequest = Message<"sandboxd.v1.StepThroughRequest"> & {
    /**
     * Required. The code and where to run it. Its timeout is for all steps together; absent means 10 minutes.
     *
     * @generated from field: sandboxd.v1.RunCodeRequest run = 1;
     */
    run?: RunCodeRequest | undefined;
    /**
     * Optional. Most steps to report, up to 20000; 0 means 20000. After them the code runs on without reports.
     *
     * @generated from field: uint32 max_steps = 2;
     */
    maxSteps: number;
    /**
     * Optional. Also step into functions that the code of the run defines; otherwise only through its top level.
     *
     * @generated from field: bool step_into_functions = 3;
     */
    stepIntoFunctions: boolean;
};
/**
 * Describes the message sandboxd.v1.StepThroughRequest.
 * Use `create(StepThroughRequestSchema)` to create a new message.
 */
export declare const StepThroughRequestSchema: GenMessage<StepThroughRequest>;
/**
 * A message to the debugger. The first one is `start` or `attach`.
 *
 * @generated from message sandboxd.v1.DebugCodeRequest
 */
export type DebugCodeRequest = Message<"sandboxd.v1.DebugCodeRequest"> & {
    /**
     * Optional. Number of this command, for its answer.
     *
     * @generated from field: uint64 command = 1;
     */
    command: bigint;
    /**
     * Required. What to do.
     *
     * @generated from oneof sandboxd.v1.DebugCodeRequest.request
     */
    request: {
        /**
         * Start a run under the debugger.
         *
         * @generated from field: sandboxd.v1.StartDebug start = 2;
         */
        value: StartDebug;
        case: "start";
    } | {
        /**
         * Attach to a run under the debugger.
         *
         * @generated from field: sandboxd.v1.AttachDebug attach = 3;
         */
        value: AttachDebug;
        case: "attach";
    } | {
        /**
         * Set a breakpoint.
         *
         * @generated from field: sandboxd.v1.Breakpoint set_breakpoint = 4;
         */
        value: Breakpoint;
        case: "setBreakpoint";
    } | {
        /**
         * Remove the breakpoint with this id.
         *
         * @generated from field: uint32 clear_breakpoint = 5;
         */
        value: number;
        case: "clearBreakpoint";
    } | {
        /**
         * Continue to the next stop.
         *
         * @generated from field: sandboxd.v1.ResumeDebug resume = 6;
         */
        value: ResumeDebug;
        case: "resume";
    } | {
        /**
         * Stop at the next line.
         *
         * @generated from field: sandboxd.v1.PauseDebug pause = 7;
         */
        value: PauseDebug;
        case: "pause";
    } | {
        /**
         * Evaluate an expression or execute a statement in a frame.
         *
         * @generated from field: sandboxd.v1.EvaluateDebug evaluate = 8;
         */
        value: EvaluateDebug;
        case: "evaluate";
    } | {
        /**
         * Return the stack.
         *
         * @generated from field: sandboxd.v1.GetDebugStack stack = 9;
         */
        value: GetDebugStack;
        case: "stack";
    } | {
        /**
         * Return variables of a frame, or parts of a value.
         *
         * @generated from field: sandboxd.v1.GetDebugVariables variables = 10;
         */
        value: GetDebugVariables;
        case: "variables";
    } | {
        /**
         * End the run: the code is interrupted.
         *
         * @generated from field: sandboxd.v1.QuitDebug quit = 11;
         */
        value: QuitDebug;
        case: "quit";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.DebugCodeRequest.
 * Use `create(DebugCodeRequestSchema)` to create a new message.
 */
export declare const DebugCodeRequestSchema: GenMessage<DebugCodeRequest>;
/**
 * Request to start a run under the debugger.
 *
 * @generated from message sandboxd.v1.StartDebug
 */
export type StartDebug = Message<"sandboxd.v1.StartDebug"> & {
    /**
     * Required. The code and where to run it. Its timeout includes the time in which it is stopped; absent means 10 minutes.
     *
     * @generated from field: sandboxd.v1.RunCodeRequest run = 1;
     */
    run?: RunCodeRequest | undefined;
    /**
     * Optional. Breakpoints to set before the first line.
     *
     * @generated from field: repeated sandboxd.v1.Breakpoint breakpoints = 2;
     */
    breakpoints: Breakpoint[];
    /**
     * Optional. Do not stop before the first line.
     *
     * @generated from field: bool run_to_breakpoint = 3;
     */
    runToBreakpoint: boolean;
    /**
     * Optional. Do not stop at an exception that nothing catches.
     *
     * @generated from field: bool ignore_exceptions = 4;
     */
    ignoreExceptions: boolean;
};
/**
 * Describes the message sandboxd.v1.StartDebug.
 * Use `create(StartDebugSchema)` to create a new message.
 */
export declare const StartDebugSchema: GenMessage<StartDebug>;
/**
 * Request to attach to a run under the debugger.
 *
 * @generated from message sandboxd.v1.AttachDebug
 */
export type AttachDebug = Message<"sandboxd.v1.AttachDebug"> & {
    /**
     * Required. Session of the run.
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
     * Optional. Position in standard output to start at.
     *
     * @generated from field: uint64 stdout_offset = 3;
     */
    stdoutOffset: bigint;
    /**
     * Optional. Position in standard error to start at.
     *
     * @generated from field: uint64 stderr_offset = 4;
     */
    stderrOffset: bigint;
    /**
     * Optional. Position in the stream of events to start at.
     *
     * @generated from field: uint64 events_offset = 5;
     */
    eventsOffset: bigint;
};
/**
 * Describes the message sandboxd.v1.AttachDebug.
 * Use `create(AttachDebugSchema)` to create a new message.
 */
export declare const AttachDebugSchema: GenMessage<AttachDebug>;
/**
 * Request to continue.
 *
 * @generated from message sandboxd.v1.ResumeDebug
 */
export type ResumeDebug = Message<"sandboxd.v1.ResumeDebug"> & {
    /**
     * Optional. How far; absent means to the next breakpoint.
     *
     * @generated from field: sandboxd.v1.ResumeMode mode = 1;
     */
    mode: ResumeMode;
};
/**
 * Describes the message sandboxd.v1.ResumeDebug.
 * Use `create(ResumeDebugSchema)` to create a new message.
 */
export declare const ResumeDebugSchema: GenMessage<ResumeDebug>;
/**
 * Request to stop at the next line.
 *
 * @generated from message sandboxd.v1.PauseDebug
 */
export type PauseDebug = Message<"sandboxd.v1.PauseDebug"> & {};
/**
 * Describes the message sandboxd.v1.PauseDebug.
 * Use `create(PauseDebugSchema)` to create a new message.
 */
export declare const PauseDebugSchema: GenMessage<PauseDebug>;
/**
 * Request to end a run under the debugger.
 *
 * @generated from message sandboxd.v1.QuitDebug
 */
export type QuitDebug = Message<"sandboxd.v1.QuitDebug"> & {};
/**
 * Describes the message sandboxd.v1.QuitDebug.
 * Use `create(QuitDebugSchema)` to create a new message.
 */
export declare const QuitDebugSchema: GenMessage<QuitDebug>;
/**
 * Request to evaluate an expression while the debugger is stopped.
 *
 * @generated from message sandboxd.v1.EvaluateDebug
 */
export type EvaluateDebug = Message<"sandboxd.v1.EvaluateDebug"> & {
    /**
     * Required. The expression or statement; it may run for half a second.
     *
     * @generated from field: string expression = 1;
     */
    expression: string;
    /**
     * Optional. Number of the frame; 0 means the innermost.
     *
     * @generated from field: uint32 frame = 2;
     */
    frame: number;
};
/**
 * Describes the message sandboxd.v1.EvaluateDebug.
 * Use `create(EvaluateDebugSchema)` to create a new message.
 */
export declare const EvaluateDebugSchema: GenMessage<EvaluateDebug>;
/**
 * Request for the stack.
 *
 * @generated from message sandboxd.v1.GetDebugStack
 */
export type GetDebugStack = Message<"sandboxd.v1.GetDebugStack"> & {
    /**
     * Optional. Most frames to return, up to 200; 0 means 50.
     *
     * @generated from field: uint32 max_frames = 1;
     */
    maxFrames: number;
};
/**
 * Describes the message sandboxd.v1.GetDebugStack.
 * Use `create(GetDebugStackSchema)` to create a new message.
 */
export declare const GetDebugStackSchema: GenMessage<GetDebugStack>;
/**
 * Request for variables.
 *
 * @generated from message sandboxd.v1.GetDebugVariables
 */
export type GetDebugVariables = Message<"sandboxd.v1.GetDebugVariables"> & {
    /**
     * Optional. Number of the frame; 0 means the innermost.
     *
     * @generated from field: uint32 frame = 1;
     */
    frame: number;
    /**
     * Optional. Handle of a value to look into, instead of a frame.
     *
     * @generated from field: uint64 handle = 2;
     */
    handle: bigint;
    /**
     * Optional. Global variables of the frame instead of local ones.
     *
     * @generated from field: bool globals = 3;
     */
    globals: boolean;
    /**
     * Optional. Number of variables to leave out at the beginning.
     *
     * @generated from field: uint32 offset = 4;
     */
    offset: number;
};
/**
 * Describes the message sandboxd.v1.GetDebugVariables.
 * Use `create(GetDebugVariablesSchema)` to create a new message.
 */
export declare const GetDebugVariablesSchema: GenMessage<GetDebugVariables>;
/**
 * Request to create a context.
 *
 * @generated from message sandboxd.v1.CreateContextRequest
 */
export type CreateContextRequest = Message<"sandboxd.v1.CreateContextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Name of the context.
     *
     * @generated from field: string name = 2;
     */
    name: string;
    /**
     * Optional. Language: `python` (default) or `javascript`.
     *
     * @generated from field: string language = 3;
     */
    language: string;
    /**
     * Optional. Directory to start in, relative to the workspace or absolute; empty means the workspace.
     *
     * @generated from field: string cwd = 4;
     */
    cwd: string;
    /**
     * Optional. Environment variables to add or override.
     *
     * @generated from field: map<string, string> env = 5;
     */
    env: {
        [key: string]: string;
    };
    /**
     * Optional. Name of a code policy within what the caller's token allows; empty means the session's.
     *
     * @generated from field: string policy = 6;
     */
    policy: string;
    /**
     * Optional. Limits of this context, within those of the daemon; a value of 0 means the daemon's default.
     *
     * @generated from field: sandboxd.v1.CodeLimits limits = 7;
     */
    limits?: CodeLimits | undefined;
};
/**
 * Describes the message sandboxd.v1.CreateContextRequest.
 * Use `create(CreateContextRequestSchema)` to create a new message.
 */
export declare const CreateContextRequestSchema: GenMessage<CreateContextRequest>;
/**
 * Limits of contexts.
 *
 * @generated from message sandboxd.v1.CodeLimits
 */
export type CodeLimits = Message<"sandboxd.v1.CodeLimits"> & {
    /**
     * Memory of all contexts of a session together.
     *
     * @generated from field: uint64 memory_bytes = 1;
     */
    memoryBytes: bigint;
    /**
     * CPU of all contexts of a session together, in percent of one processor.
     *
     * @generated from field: uint32 cpu_percent = 2;
     */
    cpuPercent: number;
    /**
     * Longest time of a run.
     *
     * @generated from field: google.protobuf.Duration timeout = 3;
     */
    timeout?: Duration | undefined;
    /**
     * Open files of a context.
     *
     * @generated from field: uint32 open_files = 4;
     */
    openFiles: number;
    /**
     * Threads and processes of a context besides its first.
     *
     * @generated from field: uint32 threads = 5;
     */
    threads: number;
};
/**
 * Describes the message sandboxd.v1.CodeLimits.
 * Use `create(CodeLimitsSchema)` to create a new message.
 */
export declare const CodeLimitsSchema: GenMessage<CodeLimits>;
/**
 * The context.
 *
 * @generated from message sandboxd.v1.CreateContextResponse
 */
export type CreateContextResponse = Message<"sandboxd.v1.CreateContextResponse"> & {
    /**
     * The context.
     *
     * @generated from field: sandboxd.v1.Context context = 1;
     */
    context?: Context | undefined;
    /**
     * True if it existed.
     *
     * @generated from field: bool already_exists = 2;
     */
    alreadyExists: boolean;
};
/**
 * Describes the message sandboxd.v1.CreateContextResponse.
 * Use `create(CreateContextResponseSchema)` to create a new message.
 */
export declare const CreateContextResponseSchema: GenMessage<CreateContextResponse>;
/**
 * Request for the contexts of a session.
 *
 * @generated from message sandboxd.v1.ListContextsRequest
 */
export type ListContextsRequest = Message<"sandboxd.v1.ListContextsRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.ListContextsRequest.
 * Use `create(ListContextsRequestSchema)` to create a new message.
 */
export declare const ListContextsRequestSchema: GenMessage<ListContextsRequest>;
/**
 * The contexts of a session.
 *
 * @generated from message sandboxd.v1.ListContextsResponse
 */
export type ListContextsResponse = Message<"sandboxd.v1.ListContextsResponse"> & {
    /**
     * The contexts, in the order of their creation.
     *
     * @generated from field: repeated sandboxd.v1.Context contexts = 1;
     */
    contexts: Context[];
};
/**
 * Describes the message sandboxd.v1.ListContextsResponse.
 * Use `create(ListContextsResponseSchema)` to create a new message.
 */
export declare const ListContextsResponseSchema: GenMessage<ListContextsResponse>;
/**
 * Request for the variables of a context.
 *
 * @generated from message sandboxd.v1.GetContextStateRequest
 */
export type GetContextStateRequest = Message<"sandboxd.v1.GetContextStateRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The context; empty means `main`.
     *
     * @generated from field: string context = 2;
     */
    context: string;
    /**
     * Optional. How long to wait for a run that is under way; absent means not at all.
     *
     * @generated from field: google.protobuf.Duration timeout = 3;
     */
    timeout?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.GetContextStateRequest.
 * Use `create(GetContextStateRequestSchema)` to create a new message.
 */
export declare const GetContextStateRequestSchema: GenMessage<GetContextStateRequest>;
/**
 * The variables of a context.
 *
 * @generated from message sandboxd.v1.GetContextStateResponse
 */
export type GetContextStateResponse = Message<"sandboxd.v1.GetContextStateResponse"> & {
    /**
     * The context.
     *
     * @generated from field: sandboxd.v1.Context context = 1;
     */
    context?: Context | undefined;
    /**
     * Its variables, up to a limit.
     *
     * @generated from field: repeated sandboxd.v1.Variable variables = 2;
     */
    variables: Variable[];
    /**
     * Number of variables that were left out.
     *
     * @generated from field: uint64 left_out = 3;
     */
    leftOut: bigint;
};
/**
 * Describes the message sandboxd.v1.GetContextStateResponse.
 * Use `create(GetContextStateResponseSchema)` to create a new message.
 */
export declare const GetContextStateResponseSchema: GenMessage<GetContextStateResponse>;
/**
 * Request to interrupt a context.
 *
 * @generated from message sandboxd.v1.InterruptContextRequest
 */
export type InterruptContextRequest = Message<"sandboxd.v1.InterruptContextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The context; empty means `main`.
     *
     * @generated from field: string context = 2;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.InterruptContextRequest.
 * Use `create(InterruptContextRequestSchema)` to create a new message.
 */
export declare const InterruptContextRequestSchema: GenMessage<InterruptContextRequest>;
/**
 * The outcome of an interrupt.
 *
 * @generated from message sandboxd.v1.InterruptContextResponse
 */
export type InterruptContextResponse = Message<"sandboxd.v1.InterruptContextResponse"> & {
    /**
     * True if a run was under way and was interrupted.
     *
     * @generated from field: bool interrupted = 1;
     */
    interrupted: boolean;
};
/**
 * Describes the message sandboxd.v1.InterruptContextResponse.
 * Use `create(InterruptContextResponseSchema)` to create a new message.
 */
export declare const InterruptContextResponseSchema: GenMessage<InterruptContextResponse>;
/**
 * Request to restart a context.
 *
 * @generated from message sandboxd.v1.RestartContextRequest
 */
export type RestartContextRequest = Message<"sandboxd.v1.RestartContextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The context; empty means `main`.
     *
     * @generated from field: string context = 2;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.RestartContextRequest.
 * Use `create(RestartContextRequestSchema)` to create a new message.
 */
export declare const RestartContextRequestSchema: GenMessage<RestartContextRequest>;
/**
 * The restarted context.
 *
 * @generated from message sandboxd.v1.RestartContextResponse
 */
export type RestartContextResponse = Message<"sandboxd.v1.RestartContextResponse"> & {
    /**
     * The context.
     *
     * @generated from field: sandboxd.v1.Context context = 1;
     */
    context?: Context | undefined;
};
/**
 * Describes the message sandboxd.v1.RestartContextResponse.
 * Use `create(RestartContextResponseSchema)` to create a new message.
 */
export declare const RestartContextResponseSchema: GenMessage<RestartContextResponse>;
/**
 * Request to delete a context.
 *
 * @generated from message sandboxd.v1.DeleteContextRequest
 */
export type DeleteContextRequest = Message<"sandboxd.v1.DeleteContextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The context.
     *
     * @generated from field: string context = 2;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.DeleteContextRequest.
 * Use `create(DeleteContextRequestSchema)` to create a new message.
 */
export declare const DeleteContextRequestSchema: GenMessage<DeleteContextRequest>;
/**
 * The context was deleted.
 *
 * @generated from message sandboxd.v1.DeleteContextResponse
 */
export type DeleteContextResponse = Message<"sandboxd.v1.DeleteContextResponse"> & {};
/**
 * Describes the message sandboxd.v1.DeleteContextResponse.
 * Use `create(DeleteContextResponseSchema)` to create a new message.
 */
export declare const DeleteContextResponseSchema: GenMessage<DeleteContextResponse>;
/**
 * Request to run code in a session for this call only.
 *
 * @generated from message sandboxd.v1.QuickExecuteRequest
 */
export type QuickExecuteRequest = Message<"sandboxd.v1.QuickExecuteRequest"> & {
    /**
     * Required. User of the session.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. The code, at most 512 KiB.
     *
     * @generated from field: string code = 2;
     */
    code: string;
    /**
     * Optional. Environment of the session; empty means the default.
     *
     * @generated from field: string environment = 3;
     */
    environment: string;
    /**
     * Optional. Python packages of the session.
     *
     * @generated from field: repeated string packages = 4;
     */
    packages: string[];
    /**
     * Optional. As in RunCodeRequest.
     *
     * @generated from field: google.protobuf.Duration timeout = 5;
     */
    timeout?: Duration | undefined;
    /**
     * Optional. Language: `python` (default) or `javascript`.
     *
     * @generated from field: string language = 6;
     */
    language: string;
    /**
     * Optional. Most bytes of each stream to return, as in RunCodeRequest.
     *
     * @generated from field: uint64 max_output_bytes = 7;
     */
    maxOutputBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.QuickExecuteRequest.
 * Use `create(QuickExecuteRequestSchema)` to create a new message.
 */
export declare const QuickExecuteRequestSchema: GenMessage<QuickExecuteRequest>;
/**
 * The outcome of a quick run.
 *
 * @generated from message sandboxd.v1.QuickExecuteResponse
 */
export type QuickExecuteResponse = Message<"sandboxd.v1.QuickExecuteResponse"> & {
    /**
     * The run. Its session no longer exists.
     *
     * @generated from field: sandboxd.v1.RunCodeResponse run = 1;
     */
    run?: RunCodeResponse | undefined;
};
/**
 * Describes the message sandboxd.v1.QuickExecuteResponse.
 * Use `create(QuickExecuteResponseSchema)` to create a new message.
 */
export declare const QuickExecuteResponseSchema: GenMessage<QuickExecuteResponse>;
/**
 * Request to check code.
 *
 * @generated from message sandboxd.v1.CheckCodeRequest
 */
export type CheckCodeRequest = Message<"sandboxd.v1.CheckCodeRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The code.
     *
     * @generated from field: string code = 2;
     */
    code: string;
    /**
     * Optional. The context whose policy applies; empty means `main`.
     *
     * @generated from field: string context = 3;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.CheckCodeRequest.
 * Use `create(CheckCodeRequestSchema)` to create a new message.
 */
export declare const CheckCodeRequestSchema: GenMessage<CheckCodeRequest>;
/**
 * The outcome of a check.
 *
 * @generated from message sandboxd.v1.CheckCodeResponse
 */
export type CheckCodeResponse = Message<"sandboxd.v1.CheckCodeResponse"> & {
    /**
     * True if the policy allows the code.
     *
     * @generated from field: bool allowed = 1;
     */
    allowed: boolean;
    /**
     * What the policy refuses, in the order of the lines.
     *
     * @generated from field: repeated sandboxd.v1.CodeViolation violations = 2;
     */
    violations: CodeViolation[];
};
/**
 * Describes the message sandboxd.v1.CheckCodeResponse.
 * Use `create(CheckCodeResponseSchema)` to create a new message.
 */
export declare const CheckCodeResponseSchema: GenMessage<CheckCodeResponse>;
/**
 * Request for the functions that code can call.
 *
 * @generated from message sandboxd.v1.ListFunctionsRequest
 */
export type ListFunctionsRequest = Message<"sandboxd.v1.ListFunctionsRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The context; empty means `main`.
     *
     * @generated from field: string context = 2;
     */
    context: string;
};
/**
 * Describes the message sandboxd.v1.ListFunctionsRequest.
 * Use `create(ListFunctionsRequestSchema)` to create a new message.
 */
export declare const ListFunctionsRequestSchema: GenMessage<ListFunctionsRequest>;
/**
 * What code can use in a context.
 *
 * @generated from message sandboxd.v1.ListFunctionsResponse
 */
export type ListFunctionsResponse = Message<"sandboxd.v1.ListFunctionsResponse"> & {
    /**
     * Functions that sandboxd adds.
     *
     * @generated from field: repeated sandboxd.v1.CodeFunction functions = 1;
     */
    functions: CodeFunction[];
    /**
     * Modules that the policy allows; empty means all.
     *
     * @generated from field: repeated string allowed_modules = 2;
     */
    allowedModules: string[];
    /**
     * Calls that the policy refuses.
     *
     * @generated from field: repeated string blocked_calls = 3;
     */
    blockedCalls: string[];
    /**
     * Limits in force.
     *
     * @generated from field: sandboxd.v1.CodeLimits limits = 4;
     */
    limits?: CodeLimits | undefined;
    /**
     * Worked examples.
     *
     * @generated from field: repeated sandboxd.v1.CodeExample examples = 5;
     */
    examples: CodeExample[];
    /**
     * Name of the policy in force.
     *
     * @generated from field: string policy = 6;
     */
    policy: string;
};
/**
 * Describes the message sandboxd.v1.ListFunctionsResponse.
 * Use `create(ListFunctionsResponseSchema)` to create a new message.
 */
export declare const ListFunctionsResponseSchema: GenMessage<ListFunctionsResponse>;
/**
 * A function that sandboxd adds.
 *
 * @generated from message sandboxd.v1.CodeFunction
 */
export type CodeFunction = Message<"sandboxd.v1.CodeFunction"> & {
    /**
     * Its name.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Its parameters and result, as in Python.
     *
     * @generated from field: string signature = 2;
     */
    signature: string;
    /**
     * What it does, in one sentence.
     *
     * @generated from field: string description = 3;
     */
    description: string;
};
/**
 * Describes the message sandboxd.v1.CodeFunction.
 * Use `create(CodeFunctionSchema)` to create a new message.
 */
export declare const CodeFunctionSchema: GenMessage<CodeFunction>;
/**
 * A worked example.
 *
 * @generated from message sandboxd.v1.CodeExample
 */
export type CodeExample = Message<"sandboxd.v1.CodeExample"> & {
    /**
     * Title.
     *
     * @generated from field: string title = 1;
     */
    title: string;
    /**
     * The code.
     *
     * @generated from field: string code = 2;
     */
    code: string;
};
/**
 * Describes the message sandboxd.v1.CodeExample.
 * Use `create(CodeExampleSchema)` to create a new message.
 */
export declare const CodeExampleSchema: GenMessage<CodeExample>;
/**
 * How a run ended.
 *
 * @generated from enum sandboxd.v1.CodeStatus
 */
export declare enum CodeStatus {
    /**
     * Never sent.
     *
     * @generated from enum value: CODE_STATUS_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The code ran to its end.
     *
     * @generated from enum value: CODE_STATUS_OK = 1;
     */
    OK = 1,
    /**
     * An exception ended it.
     *
     * @generated from enum value: CODE_STATUS_RAISED = 2;
     */
    RAISED = 2,
    /**
     * It was interrupted; the context keeps its variables.
     *
     * @generated from enum value: CODE_STATUS_INTERRUPTED = 3;
     */
    INTERRUPTED = 3,
    /**
     * It ran longer than its timeout; `context` says whether the variables are kept.
     *
     * @generated from enum value: CODE_STATUS_TIMED_OUT = 4;
     */
    TIMED_OUT = 4,
    /**
     * The process of the context ended; its variables are lost. `exit` says how.
     *
     * @generated from enum value: CODE_STATUS_CONTEXT_LOST = 5;
     */
    CONTEXT_LOST = 5,
    /**
     * The policy refused the code; nothing has run. RunCode and QuickExecute fail with CODE_NOT_ALLOWED instead.
     *
     * @generated from enum value: CODE_STATUS_REFUSED = 6;
     */
    REFUSED = 6
}
/**
 * Describes the enum sandboxd.v1.CodeStatus.
 */
export declare const CodeStatusSchema: GenEnum<CodeStatus>;
/**
 * Whether a run found the variables of earlier runs.
 *
 * @generated from enum sandboxd.v1.ContextOutcome
 */
export declare enum ContextOutcome {
    /**
     * Never sent.
     *
     * @generated from enum value: CONTEXT_OUTCOME_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The context is new: this was its first run.
     *
     * @generated from enum value: CONTEXT_OUTCOME_CREATED = 1;
     */
    CREATED = 1,
    /**
     * The context was there.
     *
     * @generated from enum value: CONTEXT_OUTCOME_KEPT = 2;
     */
    KEPT = 2,
    /**
     * The context had been lost; this run began without its variables.
     *
     * @generated from enum value: CONTEXT_OUTCOME_RECREATED = 3;
     */
    RECREATED = 3
}
/**
 * Describes the enum sandboxd.v1.ContextOutcome.
 */
export declare const ContextOutcomeSchema: GenEnum<ContextOutcome>;
/**
 * State of a context.
 *
 * @generated from enum sandboxd.v1.ContextState
 */
export declare enum ContextState {
    /**
     * Never sent.
     *
     * @generated from enum value: CONTEXT_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The context waits for a run. One that has not run yet may have no process.
     *
     * @generated from enum value: CONTEXT_STATE_IDLE = 1;
     */
    IDLE = 1,
    /**
     * A run is under way.
     *
     * @generated from enum value: CONTEXT_STATE_BUSY = 2;
     */
    BUSY = 2,
    /**
     * The process ended; the next run gets a fresh one with the next generation.
     *
     * @generated from enum value: CONTEXT_STATE_LOST = 3;
     */
    LOST = 3
}
/**
 * Describes the enum sandboxd.v1.ContextState.
 */
export declare const ContextStateSchema: GenEnum<ContextState>;
/**
 * How far to continue.
 *
 * @generated from enum sandboxd.v1.ResumeMode
 */
export declare enum ResumeMode {
    /**
     * Same as CONTINUE.
     *
     * @generated from enum value: RESUME_MODE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * To the next breakpoint, or to the end.
     *
     * @generated from enum value: RESUME_MODE_CONTINUE = 1;
     */
    CONTINUE = 1,
    /**
     * To the next line, in a called function too.
     *
     * @generated from enum value: RESUME_MODE_STEP_IN = 2;
     */
    STEP_IN = 2,
    /**
     * To the next line of this function or of its caller.
     *
     * @generated from enum value: RESUME_MODE_STEP_OVER = 3;
     */
    STEP_OVER = 3,
    /**
     * To the return of this function.
     *
     * @generated from enum value: RESUME_MODE_STEP_OUT = 4;
     */
    STEP_OUT = 4
}
/**
 * Describes the enum sandboxd.v1.ResumeMode.
 */
export declare const ResumeModeSchema: GenEnum<ResumeMode>;
/**
 * Runs code in contexts that keep their variables from one run to the next. A run is an exec: ListExecs, AttachExec, WaitExec, ReadOutput,
 * SignalExec and the history include it, it runs once for each exec id, and it survives a restart of the daemon with its context.
 * All calls fail with SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED or SANDBOX_LOST if the session is not active. Calls that name a
 * context fail with CONTEXT_NOT_FOUND if it does not exist; runs create it.
 *
 * @generated from service sandboxd.v1.CodeService
 */
export declare const CodeService: GenService<{
    /**
     * Runs code and answers once, when it has ended.
     * Reasons: INVALID_REQUEST, REQUEST_TOO_LARGE, SESSION_RECREATED, EXEC_CONFLICT, EXEC_LIMIT_REACHED, CONTEXT_LIMIT_REACHED, CONTEXT_LOST,
     * CODE_NOT_ALLOWED, CODE_UNAVAILABLE, DRAINING.
     *
     * @generated from rpc sandboxd.v1.CodeService.RunCode
     */
    runCode: {
        methodKind: "unary";
        input: typeof RunCodeRequestSchema;
        output: typeof RunCodeResponseSchema;
    };
    /**
     * Runs code and streams its output and its events. Otherwise like RunCode.
     *
     * @generated from rpc sandboxd.v1.CodeService.StreamCode
     */
    streamCode: {
        methodKind: "server_streaming";
        input: typeof RunCodeRequestSchema;
        output: typeof ExecResponseSchema;
    };
    /**
     * Starts a run and answers as soon as it runs or waits for an earlier run of its context; the run continues when callers disconnect.
     * AttachExec follows it, WaitExec waits for it. Safe to repeat with the same `exec_id`.
     *
     * @generated from rpc sandboxd.v1.CodeService.StartCode
     */
    startCode: {
        methodKind: "unary";
        input: typeof RunCodeRequestSchema;
        output: typeof StartExecResponseSchema;
    };
    /**
     * Returns the outcome of a run that has ended, from its kept events and output, as RunCode would have.
     * Reasons: EXEC_NOT_FOUND, INVALID_REQUEST if the exec is not a run of code or has not ended.
     *
     * @generated from rpc sandboxd.v1.CodeService.GetCodeRun
     */
    getCodeRun: {
        methodKind: "unary";
        input: typeof GetCodeRunRequestSchema;
        output: typeof RunCodeResponseSchema;
    };
    /**
     * Runs code and streams every line that it executes, with the variables that changed and the output in between.
     *
     * @generated from rpc sandboxd.v1.CodeService.StepThrough
     */
    stepThrough: {
        methodKind: "server_streaming";
        input: typeof StepThroughRequestSchema;
        output: typeof ExecResponseSchema;
    };
    /**
     * Debugs code: the first request starts a run or attaches to one, the following ones are commands. Responses carry the events of the run
     * and the answers to commands. The run ends when the caller disconnects, unless `on_disconnect` is KEEP_RUNNING; then it stays where it
     * is until its timeout, and another call can attach.
     *
     * @generated from rpc sandboxd.v1.CodeService.DebugCode
     */
    debugCode: {
        methodKind: "bidi_streaming";
        input: typeof DebugCodeRequestSchema;
        output: typeof ExecResponseSchema;
    };
    /**
     * Creates a context, or returns the one that exists with the same settings. Reasons: INVALID_REQUEST, CONTEXT_CONFLICT,
     * CONTEXT_LIMIT_REACHED, CODE_UNAVAILABLE.
     *
     * @generated from rpc sandboxd.v1.CodeService.CreateContext
     */
    createContext: {
        methodKind: "unary";
        input: typeof CreateContextRequestSchema;
        output: typeof CreateContextResponseSchema;
    };
    /**
     * Lists the contexts of a session.
     *
     * @generated from rpc sandboxd.v1.CodeService.ListContexts
     */
    listContexts: {
        methodKind: "unary";
        input: typeof ListContextsRequestSchema;
        output: typeof ListContextsResponseSchema;
    };
    /**
     * Returns the variables of a context. Nothing of the user's code runs. Waits for a run that is under way, up to `timeout`.
     * Reasons: CONTEXT_BUSY if the run is still under way then.
     *
     * @generated from rpc sandboxd.v1.CodeService.GetContextState
     */
    getContextState: {
        methodKind: "unary";
        input: typeof GetContextStateRequestSchema;
        output: typeof GetContextStateResponseSchema;
    };
    /**
     * Interrupts the run of a context as Ctrl-C would; the context keeps its variables. Does nothing if the context is idle.
     *
     * @generated from rpc sandboxd.v1.CodeService.InterruptContext
     */
    interruptContext: {
        methodKind: "unary";
        input: typeof InterruptContextRequestSchema;
        output: typeof InterruptContextResponseSchema;
    };
    /**
     * Ends the process of a context; the next run gets a fresh one with the next generation.
     *
     * @generated from rpc sandboxd.v1.CodeService.RestartContext
     */
    restartContext: {
        methodKind: "unary";
        input: typeof RestartContextRequestSchema;
        output: typeof RestartContextResponseSchema;
    };
    /**
     * Ends the process of a context and forgets the context. Its `atexit` functions do not run.
     *
     * @generated from rpc sandboxd.v1.CodeService.DeleteContext
     */
    deleteContext: {
        methodKind: "unary";
        input: typeof DeleteContextRequestSchema;
        output: typeof DeleteContextResponseSchema;
    };
    /**
     * Opens a session for this call only, runs code in it, and closes it, also if the caller disconnects.
     *
     * @generated from rpc sandboxd.v1.CodeService.QuickExecute
     */
    quickExecute: {
        methodKind: "unary";
        input: typeof QuickExecuteRequestSchema;
        output: typeof QuickExecuteResponseSchema;
    };
    /**
     * Checks code against the policy of a context without running it.
     *
     * @generated from rpc sandboxd.v1.CodeService.CheckCode
     */
    checkCode: {
        methodKind: "unary";
        input: typeof CheckCodeRequestSchema;
        output: typeof CheckCodeResponseSchema;
    };
    /**
     * Lists the functions that code can call besides the language's own, the allowed modules, the limits, and worked examples.
     *
     * @generated from rpc sandboxd.v1.CodeService.ListFunctions
     */
    listFunctions: {
        methodKind: "unary";
        input: typeof ListFunctionsRequestSchema;
        output: typeof ListFunctionsResponseSchema;
    };
}>;
