import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/code.proto.
 */
export declare const file_sandboxd_proto_v1_code: GenFile;
/**
 * Something other than output that a run of code reported while it ran.
 *
 * @generated from message sandboxd.v1.CodeEvent
 */
export type CodeEvent = Message<"sandboxd.v1.CodeEvent"> & {
    /**
     * Position of this event in the stream of events.
     *
     * @generated from field: uint64 offset = 1;
     */
    offset: bigint;
    /**
     * Position of the next event; AttachExec continues from there.
     *
     * @generated from field: uint64 next_offset = 2;
     */
    nextOffset: bigint;
    /**
     * What was reported.
     *
     * @generated from oneof sandboxd.v1.CodeEvent.event
     */
    event: {
        /**
         * The value of the last expression.
         *
         * @generated from field: sandboxd.v1.Display value = 3;
         */
        value: Display;
        case: "value";
    } | {
        /**
         * Something that the code displayed: `display(...)`, a figure, a table.
         *
         * @generated from field: sandboxd.v1.Display display = 4;
         */
        value: Display;
        case: "display";
    } | {
        /**
         * The value of `__result__`, or of the last expression if `__result__` was not set.
         *
         * @generated from field: sandboxd.v1.CodeResult result = 5;
         */
        value: CodeResult;
        case: "result";
    } | {
        /**
         * The exception that ended the run.
         *
         * @generated from field: sandboxd.v1.CodeError error = 6;
         */
        value: CodeError;
        case: "error";
    } | {
        /**
         * A line that `debug`, `inspect_var` or the `logging` module wrote.
         *
         * @generated from field: sandboxd.v1.CodeLog log = 7;
         */
        value: CodeLog;
        case: "log";
    } | {
        /**
         * The debugger stopped, or StepThrough came to the next line.
         *
         * @generated from field: sandboxd.v1.DebugStep step = 8;
         */
        value: DebugStep;
        case: "step";
    } | {
        /**
         * A fact about the run that its reader should know, in one sentence.
         *
         * @generated from field: string note = 9;
         */
        value: string;
        case: "note";
    } | {
        /**
         * An answer of the debugger to a command.
         *
         * @generated from field: sandboxd.v1.DebugAnswer answer = 10;
         */
        value: DebugAnswer;
        case: "answer";
    } | {
        /**
         * Something that the policy refuses in the code; nothing has run.
         *
         * @generated from field: sandboxd.v1.CodeViolation violation = 11;
         */
        value: CodeViolation;
        case: "violation";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.CodeEvent.
 * Use `create(CodeEventSchema)` to create a new message.
 */
export declare const CodeEventSchema: GenMessage<CodeEvent>;
/**
 * Something that a code policy refuses.
 *
 * @generated from message sandboxd.v1.CodeViolation
 */
export type CodeViolation = Message<"sandboxd.v1.CodeViolation"> & {
    /**
     * Name of the rule, such as `module`, `call`, `attribute`.
     *
     * @generated from field: string rule = 1;
     */
    rule: string;
    /**
     * Line, counted from 1.
     *
     * @generated from field: uint32 line = 2;
     */
    line: number;
    /**
     * The refused name.
     *
     * @generated from field: string name = 3;
     */
    name: string;
    /**
     * What is refused, why, and an allowed way, in one sentence.
     *
     * @generated from field: string message = 4;
     */
    message: string;
};
/**
 * Describes the message sandboxd.v1.CodeViolation.
 * Use `create(CodeViolationSchema)` to create a new message.
 */
export declare const CodeViolationSchema: GenMessage<CodeViolation>;
/**
 * A value in one or more representations.
 *
 * @generated from message sandboxd.v1.Display
 */
export type Display = Message<"sandboxd.v1.Display"> & {
    /**
     * Representations of the value: one for each media type, such as `text/plain`, `text/html`, `image/png`.
     *
     * @generated from field: repeated sandboxd.v1.DisplayData data = 1;
     */
    data: DisplayData[];
    /**
     * Media types that were left out because they exceeded a limit.
     *
     * @generated from field: repeated string left_out = 2;
     */
    leftOut: string[];
};
/**
 * Describes the message sandboxd.v1.Display.
 * Use `create(DisplaySchema)` to create a new message.
 */
export declare const DisplaySchema: GenMessage<Display>;
/**
 * One representation of a displayed value.
 *
 * @generated from message sandboxd.v1.DisplayData
 */
export type DisplayData = Message<"sandboxd.v1.DisplayData"> & {
    /**
     * Media type of `data`.
     *
     * @generated from field: string media_type = 1;
     */
    mediaType: string;
    /**
     * The representation; text is UTF-8.
     *
     * @generated from field: bytes data = 2;
     */
    data: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.DisplayData.
 * Use `create(DisplayDataSchema)` to create a new message.
 */
export declare const DisplayDataSchema: GenMessage<DisplayData>;
/**
 * The result of a run as JSON.
 *
 * @generated from message sandboxd.v1.CodeResult
 */
export type CodeResult = Message<"sandboxd.v1.CodeResult"> & {
    /**
     * The value as JSON; empty if it was left out.
     *
     * @generated from field: string json = 1;
     */
    json: string;
    /**
     * What JSON cannot express and was converted, with its place in the value.
     *
     * @generated from field: repeated sandboxd.v1.Conversion conversions = 2;
     */
    conversions: Conversion[];
    /**
     * True if the value exceeded the limit on size, depth or time and was left out or cut.
     *
     * @generated from field: bool truncated = 3;
     */
    truncated: boolean;
};
/**
 * Describes the message sandboxd.v1.CodeResult.
 * Use `create(CodeResultSchema)` to create a new message.
 */
export declare const CodeResultSchema: GenMessage<CodeResult>;
/**
 * A part of a result that JSON cannot express.
 *
 * @generated from message sandboxd.v1.Conversion
 */
export type Conversion = Message<"sandboxd.v1.Conversion"> & {
    /**
     * Place in the value, such as `$.rows[3].when`.
     *
     * @generated from field: string path = 1;
     */
    path: string;
    /**
     * What was converted to what, such as `datetime to ISO text` or `NaN to null`.
     *
     * @generated from field: string what = 2;
     */
    what: string;
};
/**
 * Describes the message sandboxd.v1.Conversion.
 * Use `create(ConversionSchema)` to create a new message.
 */
export declare const ConversionSchema: GenMessage<Conversion>;
/**
 * An exception of the user's code.
 *
 * @generated from message sandboxd.v1.CodeError
 */
export type CodeError = Message<"sandboxd.v1.CodeError"> & {
    /**
     * Name of the exception's class.
     *
     * @generated from field: string type = 1;
     */
    type: string;
    /**
     * Text of the exception, cut to a limit.
     *
     * @generated from field: string message = 2;
     */
    message: string;
    /**
     * Frames of the user's code, outermost first; frames of libraries are counted, the innermost one is kept.
     *
     * @generated from field: repeated sandboxd.v1.CodeFrame frames = 3;
     */
    frames: CodeFrame[];
    /**
     * The traceback as text, as Python prints it, without frames of sandboxd.
     *
     * @generated from field: string traceback = 4;
     */
    traceback: string;
    /**
     * The exception that this one was raised from or while handling, up to 8 in a row; absent if there is none.
     *
     * @generated from field: sandboxd.v1.CodeError cause = 5;
     */
    cause?: CodeError | undefined;
};
/**
 * Describes the message sandboxd.v1.CodeError.
 * Use `create(CodeErrorSchema)` to create a new message.
 */
export declare const CodeErrorSchema: GenMessage<CodeError>;
/**
 * A frame of a traceback or of a stack.
 *
 * @generated from message sandboxd.v1.CodeFrame
 */
export type CodeFrame = Message<"sandboxd.v1.CodeFrame"> & {
    /**
     * File, or `<run N>` for code of the context's Nth run.
     *
     * @generated from field: string file = 1;
     */
    file: string;
    /**
     * Line number, counted from 1.
     *
     * @generated from field: uint32 line = 2;
     */
    line: number;
    /**
     * Name of the function, or `<module>`.
     *
     * @generated from field: string function = 3;
     */
    function: string;
    /**
     * The source line without indentation; empty if it is not known.
     *
     * @generated from field: string source = 4;
     */
    source: string;
    /**
     * Number of frames of libraries directly inside this one that were left out.
     *
     * @generated from field: uint32 left_out_frames = 5;
     */
    leftOutFrames: number;
    /**
     * Number of the frame for the debugger's commands: 0 is the innermost; only in a stack of the debugger.
     *
     * @generated from field: uint32 number = 6;
     */
    number: number;
};
/**
 * Describes the message sandboxd.v1.CodeFrame.
 * Use `create(CodeFrameSchema)` to create a new message.
 */
export declare const CodeFrameSchema: GenMessage<CodeFrame>;
/**
 * A line of the log of a run.
 *
 * @generated from message sandboxd.v1.CodeLog
 */
export type CodeLog = Message<"sandboxd.v1.CodeLog"> & {
    /**
     * Time of the line, by the sandbox's clock.
     *
     * @generated from field: google.protobuf.Timestamp time = 1;
     */
    time?: Timestamp | undefined;
    /**
     * Level: DEBUG, INFO, WARNING, ERROR or CRITICAL.
     *
     * @generated from field: string level = 2;
     */
    level: string;
    /**
     * The text.
     *
     * @generated from field: string message = 3;
     */
    message: string;
    /**
     * Name of the inspected variable; empty unless `inspect_var` wrote the line.
     *
     * @generated from field: string variable = 4;
     */
    variable: string;
    /**
     * Summary of the inspected variable.
     *
     * @generated from field: string value = 5;
     */
    value: string;
    /**
     * Type of the inspected variable.
     *
     * @generated from field: string type = 6;
     */
    type: string;
};
/**
 * Describes the message sandboxd.v1.CodeLog.
 * Use `create(CodeLogSchema)` to create a new message.
 */
export declare const CodeLogSchema: GenMessage<CodeLog>;
/**
 * A variable as the debugger or GetContextState shows it. Nothing of the user's code runs to show it.
 *
 * @generated from message sandboxd.v1.Variable
 */
export type Variable = Message<"sandboxd.v1.Variable"> & {
    /**
     * Name of the variable, attribute or key.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Name of its type.
     *
     * @generated from field: string type = 2;
     */
    type: string;
    /**
     * Summary of its value, cut to a limit.
     *
     * @generated from field: string value = 3;
     */
    value: string;
    /**
     * Summary that the previous step showed; absent if the variable is new or did not change.
     *
     * @generated from field: optional string previous_value = 4;
     */
    previousValue?: string | undefined;
    /**
     * Handle to look into the value with GetVariables while the debugger stays stopped; 0 if it has no parts.
     *
     * @generated from field: uint64 handle = 5;
     */
    handle: bigint;
    /**
     * Size in bytes, without what it refers to; 0 if it is not known.
     *
     * @generated from field: uint64 size_bytes = 6;
     */
    sizeBytes: bigint;
    /**
     * Number of elements; absent for a value that has none.
     *
     * @generated from field: optional uint64 length = 7;
     */
    length?: bigint | undefined;
};
/**
 * Describes the message sandboxd.v1.Variable.
 * Use `create(VariableSchema)` to create a new message.
 */
export declare const VariableSchema: GenMessage<Variable>;
/**
 * Where the debugger stopped.
 *
 * @generated from message sandboxd.v1.DebugStep
 */
export type DebugStep = Message<"sandboxd.v1.DebugStep"> & {
    /**
     * Number of this step in its run, from 1.
     *
     * @generated from field: uint64 number = 1;
     */
    number: bigint;
    /**
     * Why it stopped here.
     *
     * @generated from field: sandboxd.v1.StopReason reason = 2;
     */
    reason: StopReason;
    /**
     * File, or `<run N>`.
     *
     * @generated from field: string file = 3;
     */
    file: string;
    /**
     * Line that is executed next.
     *
     * @generated from field: uint32 line = 4;
     */
    line: number;
    /**
     * Source of that line.
     *
     * @generated from field: string source = 5;
     */
    source: string;
    /**
     * Name of the function, or `<module>`.
     *
     * @generated from field: string function = 6;
     */
    function: string;
    /**
     * Depth of the stack: 1 is the code of the run itself.
     *
     * @generated from field: uint32 depth = 7;
     */
    depth: number;
    /**
     * Variables of the frame that are new or have changed since the last step in it; for the first step in a frame, all of them.
     *
     * @generated from field: repeated sandboxd.v1.Variable changed = 8;
     */
    changed: Variable[];
    /**
     * Names of variables that are gone since the last step in this frame.
     *
     * @generated from field: repeated string removed = 9;
     */
    removed: string[];
    /**
     * The exception, for STOP_REASON_EXCEPTION.
     *
     * @generated from field: sandboxd.v1.CodeError error = 10;
     */
    error?: CodeError | undefined;
    /**
     * Number of the thread; 0 is the main thread.
     *
     * @generated from field: uint64 thread = 11;
     */
    thread: bigint;
    /**
     * Id of the breakpoint, for STOP_REASON_BREAKPOINT.
     *
     * @generated from field: uint32 breakpoint_id = 12;
     */
    breakpointId: number;
    /**
     * Position of standard output at this step: what was written up to there was written before it.
     *
     * @generated from field: uint64 stdout_offset = 13;
     */
    stdoutOffset: bigint;
    /**
     * Position of standard error at this step.
     *
     * @generated from field: uint64 stderr_offset = 14;
     */
    stderrOffset: bigint;
    /**
     * The value that is returned, for STOP_REASON_RETURN.
     *
     * @generated from field: string return_value = 15;
     */
    returnValue: string;
    /**
     * Number of variables that were left out because the frame has more than the limit.
     *
     * @generated from field: uint32 left_out_variables = 16;
     */
    leftOutVariables: number;
};
/**
 * Describes the message sandboxd.v1.DebugStep.
 * Use `create(DebugStepSchema)` to create a new message.
 */
export declare const DebugStepSchema: GenMessage<DebugStep>;
/**
 * An answer of the debugger.
 *
 * @generated from message sandboxd.v1.DebugAnswer
 */
export type DebugAnswer = Message<"sandboxd.v1.DebugAnswer"> & {
    /**
     * Number of the command that this answers.
     *
     * @generated from field: uint64 command = 1;
     */
    command: bigint;
    /**
     * The answer.
     *
     * @generated from oneof sandboxd.v1.DebugAnswer.answer
     */
    answer: {
        /**
         * Value of an expression.
         *
         * @generated from field: sandboxd.v1.Variable value = 2;
         */
        value: Variable;
        case: "value";
    } | {
        /**
         * Frames of the stack.
         *
         * @generated from field: sandboxd.v1.DebugStack stack = 3;
         */
        value: DebugStack;
        case: "stack";
    } | {
        /**
         * Variables of a frame or parts of a value.
         *
         * @generated from field: sandboxd.v1.DebugVariables variables = 4;
         */
        value: DebugVariables;
        case: "variables";
    } | {
        /**
         * A breakpoint as it was set.
         *
         * @generated from field: sandboxd.v1.Breakpoint breakpoint = 5;
         */
        value: Breakpoint;
        case: "breakpoint";
    } | {
        /**
         * The command failed: the reason in one sentence.
         *
         * @generated from field: string failure = 6;
         */
        value: string;
        case: "failure";
    } | {
        /**
         * The command was accepted and has no other answer.
         *
         * @generated from field: sandboxd.v1.DebugAccepted accepted = 7;
         */
        value: DebugAccepted;
        case: "accepted";
    } | {
        case: undefined;
        value?: undefined;
    };
    /**
     * What the evaluated expression raised; absent if it raised nothing.
     *
     * @generated from field: sandboxd.v1.CodeError error = 8;
     */
    error?: CodeError | undefined;
};
/**
 * Describes the message sandboxd.v1.DebugAnswer.
 * Use `create(DebugAnswerSchema)` to create a new message.
 */
export declare const DebugAnswerSchema: GenMessage<DebugAnswer>;
/**
 * A command of the debugger was accepted.
 *
 * @generated from message sandboxd.v1.DebugAccepted
 */
export type DebugAccepted = Message<"sandboxd.v1.DebugAccepted"> & {};
/**
 * Describes the message sandboxd.v1.DebugAccepted.
 * Use `create(DebugAcceptedSchema)` to create a new message.
 */
export declare const DebugAcceptedSchema: GenMessage<DebugAccepted>;
/**
 * A stack.
 *
 * @generated from message sandboxd.v1.DebugStack
 */
export type DebugStack = Message<"sandboxd.v1.DebugStack"> & {
    /**
     * The frames, innermost first, up to a limit.
     *
     * @generated from field: repeated sandboxd.v1.CodeFrame frames = 1;
     */
    frames: CodeFrame[];
    /**
     * Number of frames that were left out.
     *
     * @generated from field: uint32 left_out_frames = 2;
     */
    leftOutFrames: number;
    /**
     * Number of the thread; 0 is the main thread.
     *
     * @generated from field: uint64 thread = 3;
     */
    thread: bigint;
};
/**
 * Describes the message sandboxd.v1.DebugStack.
 * Use `create(DebugStackSchema)` to create a new message.
 */
export declare const DebugStackSchema: GenMessage<DebugStack>;
/**
 * Variables of a frame, or parts of a value.
 *
 * @generated from message sandboxd.v1.DebugVariables
 */
export type DebugVariables = Message<"sandboxd.v1.DebugVariables"> & {
    /**
     * The variables, up to a limit.
     *
     * @generated from field: repeated sandboxd.v1.Variable variables = 1;
     */
    variables: Variable[];
    /**
     * Number of variables that were left out.
     *
     * @generated from field: uint64 left_out = 2;
     */
    leftOut: bigint;
};
/**
 * Describes the message sandboxd.v1.DebugVariables.
 * Use `create(DebugVariablesSchema)` to create a new message.
 */
export declare const DebugVariablesSchema: GenMessage<DebugVariables>;
/**
 * A breakpoint.
 *
 * @generated from message sandboxd.v1.Breakpoint
 */
export type Breakpoint = Message<"sandboxd.v1.Breakpoint"> & {
    /**
     * Id, given by the debugger.
     *
     * @generated from field: uint32 id = 1;
     */
    id: number;
    /**
     * File; empty means the code of this run.
     *
     * @generated from field: string file = 2;
     */
    file: string;
    /**
     * Line, counted from 1. In an answer, the line that it is on: the next one that has code.
     *
     * @generated from field: uint32 line = 3;
     */
    line: number;
    /**
     * Expression that must be true to stop; empty means always.
     *
     * @generated from field: string condition = 4;
     */
    condition: string;
    /**
     * Name of a function to stop in, instead of a line.
     *
     * @generated from field: string function = 5;
     */
    function: string;
};
/**
 * Describes the message sandboxd.v1.Breakpoint.
 * Use `create(BreakpointSchema)` to create a new message.
 */
export declare const BreakpointSchema: GenMessage<Breakpoint>;
/**
 * Why the debugger stopped.
 *
 * @generated from enum sandboxd.v1.StopReason
 */
export declare enum StopReason {
    /**
     * Never sent.
     *
     * @generated from enum value: STOP_REASON_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The first line of the run.
     *
     * @generated from enum value: STOP_REASON_ENTRY = 1;
     */
    ENTRY = 1,
    /**
     * The end of a step.
     *
     * @generated from enum value: STOP_REASON_STEP = 2;
     */
    STEP = 2,
    /**
     * A breakpoint.
     *
     * @generated from enum value: STOP_REASON_BREAKPOINT = 3;
     */
    BREAKPOINT = 3,
    /**
     * `Pause`.
     *
     * @generated from enum value: STOP_REASON_PAUSE = 4;
     */
    PAUSE = 4,
    /**
     * An exception that nothing catches; the frames can be examined.
     *
     * @generated from enum value: STOP_REASON_EXCEPTION = 5;
     */
    EXCEPTION = 5,
    /**
     * A function is about to return to the line that called it.
     *
     * @generated from enum value: STOP_REASON_RETURN = 6;
     */
    RETURN = 6,
    /**
     * `breakpoint()` in the code.
     *
     * @generated from enum value: STOP_REASON_CODE = 7;
     */
    CODE = 7
}
/**
 * Describes the enum sandboxd.v1.StopReason.
 */
export declare const StopReasonSchema: GenEnum<StopReason>;
