import { type Client, type Transport } from "@connectrpc/connect";
import { ExitReason } from "../gen/sandboxd_proto/v1/exec_pb.js";
import { ExecService } from "../gen/sandboxd_proto/v1/exec_service_pb.js";
import { FileService } from "../gen/sandboxd_proto/v1/file_service_pb.js";
import type { Session } from "../gen/sandboxd_proto/v1/session_pb.js";
import { SessionService } from "../gen/sandboxd_proto/v1/session_service_pb.js";
export { ExecService, ExitReason, FileService, SessionService };
export type { Session };
export interface Options {
    /** Address: `unix:/path`, `http://host:port` or `https://host:port`; by default SANDBOXD_URL. */
    url?: string;
    /** Token; by default SANDBOXD_TOKEN. */
    token?: string;
}
export interface SessionOptions extends Options {
    /** Environment variables of its commands. */
    env?: Record<string, string>;
    /** Labels to find it by. */
    metadata?: Record<string, string>;
    /** What its image has, such as `data` or `node20`. */
    environment?: string;
    /** Idle time in seconds after which it expires. */
    timeout?: number;
}
export interface RunOptions {
    cwd?: string;
    env?: Record<string, string>;
    /** Seconds that it may run. */
    timeout?: number;
}
/** How a command ended. */
export interface CommandResult {
    /** Exit code; 128 + n if signal n ended it, 124 if it timed out. */
    exitCode: number;
    stdout: string;
    stderr: string;
    /** Why it ended. */
    reason: ExitReason;
    /** What happened beyond the exit code, and what to do next. */
    hint: string;
}
/** A connection to a daemon, for `createClient` with any service of the API. */
export declare function connect(options?: Options): Transport;
/** The sandbox of a user's conversation: commands and files. */
export declare class Sandbox {
    session: Session;
    readonly sessions: Client<typeof SessionService>;
    readonly execs: Client<typeof ExecService>;
    readonly files: Client<typeof FileService>;
    private constructor();
    /** The sandbox of a conversation, with its files; created if there is none. */
    static open(userId: string, threadId: string, options?: SessionOptions): Promise<Sandbox>;
    get id(): string;
    /** Run a line of bash, or a program with its arguments, and wait for its end. */
    run(command: string | string[], options?: RunOptions): Promise<CommandResult>;
    /** Write a file; missing directories are created. */
    write(path: string, content: string | Uint8Array): Promise<void>;
    /** The bytes of a file. */
    read(path: string): Promise<Uint8Array>;
    /** The text of a file. */
    readText(path: string): Promise<string>;
    /** End the session and delete its files. */
    kill(): Promise<void>;
}
