// Typed clients of every service of the daemon, and a class for the usual case.
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import net from "node:net";
import { ExitReason } from "../gen/sandboxd_proto/v1/exec_pb.js";
import { ExecService } from "../gen/sandboxd_proto/v1/exec_service_pb.js";
import { FileService, OverwritePolicy } from "../gen/sandboxd_proto/v1/file_service_pb.js";
import { SessionService } from "../gen/sandboxd_proto/v1/session_service_pb.js";
export { ExecService, ExitReason, FileService, SessionService };
const CHUNK = 1 << 20;
const DEFAULT_URL = "unix:/run/sandboxd/sandboxd.sock";
/** A connection to a daemon, for `createClient` with any service of the API. */
export function connect(options = {}) {
    const url = options.url ?? process.env.SANDBOXD_URL ?? DEFAULT_URL;
    const token = options.token ?? process.env.SANDBOXD_TOKEN;
    const authorize = (next) => (request) => {
        if (token)
            request.header.set("authorization", `Bearer ${token}`);
        return next(request);
    };
    const path = url.startsWith("unix:") ? url.slice("unix:".length).replace(/^\/\/(?=\/)/, "") : "";
    return createGrpcTransport({
        baseUrl: path ? "http://localhost" : url.includes("://") ? url : `http://${url}`,
        interceptors: [authorize],
        nodeOptions: path ? { createConnection: () => net.connect(path) } : undefined,
    });
}
/** The sandbox of a user's conversation: commands and files. */
export class Sandbox {
    session;
    sessions;
    execs;
    files;
    constructor(transport, session) {
        this.session = session;
        this.sessions = createClient(SessionService, transport);
        this.execs = createClient(ExecService, transport);
        this.files = createClient(FileService, transport);
    }
    /** The sandbox of a conversation, with its files; created if there is none. */
    static async open(userId, threadId, options = {}) {
        const transport = connect(options);
        const { session } = await createClient(SessionService, transport).openSession({
            userId,
            threadId,
            env: options.env,
            metadata: options.metadata,
            environment: options.environment,
            idleTimeout: duration(options.timeout),
        });
        return new Sandbox(transport, session);
    }
    get id() {
        return this.session.sessionId;
    }
    /** Run a line of bash, or a program with its arguments, and wait for its end. */
    async run(command, options = {}) {
        const done = await this.execs.run({
            sessionId: this.id,
            incarnation: this.session.incarnation,
            command: typeof command === "string"
                ? { case: "shell", value: command }
                : { case: "argv", value: { args: command } },
            cwd: options.cwd,
            env: options.env,
            timeout: duration(options.timeout),
        });
        return {
            exitCode: exitCode(done.exit),
            stdout: decode(done.stdout?.data),
            stderr: decode(done.stderr?.data),
            reason: done.exit.reason,
            hint: done.exit.hint,
        };
    }
    /** Write a file; missing directories are created. */
    async write(path, content) {
        const data = typeof content === "string" ? new TextEncoder().encode(content) : content;
        const header = {
            sessionId: this.id,
            incarnation: this.session.incarnation,
            path,
            sizeBytes: BigInt(data.length),
            overwrite: OverwritePolicy.REPLACE,
            makeParents: true,
        };
        await this.files.uploadFile((async function* () {
            yield { part: { case: "header", value: header } };
            for (let at = 0; at < data.length; at += CHUNK) {
                yield { part: { case: "chunk", value: data.subarray(at, at + CHUNK) } };
            }
        })());
    }
    /** The bytes of a file. */
    async read(path) {
        const chunks = [];
        for await (const message of this.files.downloadFile({ sessionId: this.id, path })) {
            if (message.part.case === "chunk")
                chunks.push(message.part.value);
        }
        return new Uint8Array(Buffer.concat(chunks));
    }
    /** The text of a file. */
    async readText(path) {
        return decode(await this.read(path));
    }
    /** End the session and delete its files. */
    async kill() {
        await this.sessions.closeSession({ sessionId: this.id });
    }
}
function duration(seconds) {
    if (seconds === undefined)
        return undefined;
    const whole = Math.trunc(seconds);
    return { seconds: BigInt(whole), nanos: Math.round((seconds - whole) * 1e9) };
}
function exitCode(status) {
    if (status.reason === ExitReason.TIMED_OUT)
        return 124;
    if (status.outcome.case === "code")
        return status.outcome.value;
    return status.outcome.case === "signal" ? 128 + status.outcome.value : -1;
}
function decode(data) {
    return new TextDecoder().decode(data);
}
