import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { EgressRules } from "./egress_pb.js";
import type { EnvironmentConfig, Session, SessionState } from "./session_pb.js";
import type { AutoSnapshot } from "./snapshot_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/session_service.proto.
 */
export declare const file_sandboxd_proto_v1_session_service: GenFile;
/**
 * Request to open the session of a (user, thread). A session that is parked, stopped or expired has again what it had: environment,
 * packages, variables, labels, idle time, policy, data sources, egress, snapshots, parking. What the request names holds instead, where it
 * would be added on an open session it is added, and nothing is refused with ENVIRONMENT_MISMATCH. If the caller may not ask for what the
 * session had, or if that is not there any more, the call fails as if the caller had named it: the session never comes back with less.
 *
 * @generated from message sandboxd.v1.OpenSessionRequest
 */
export type OpenSessionRequest = Message<"sandboxd.v1.OpenSessionRequest"> & {
    /**
     * Required. User that the session belongs to; 1 to 256 characters, no control characters.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. Conversation that the session belongs to; 1 to 256 characters, no control characters.
     *
     * @generated from field: string thread_id = 2;
     */
    threadId: string;
    /**
     * Optional. Idle time after which the session expires; absent means that of the session, or for a new one the daemon's default
     * (30 minutes). From 1 second to 7 days. On an open session it replaces the earlier value.
     *
     * @generated from field: google.protobuf.Duration idle_timeout = 3;
     */
    idleTimeout?: Duration | undefined;
    /**
     * Optional. Labels to find the session by; at most 32, with keys of 1 to 64 and values of 0 to 256
     * characters. On an open session they are merged into the earlier ones, together at most 32. UpdateSession removes labels.
     *
     * @generated from field: map<string, string> metadata = 4;
     */
    metadata: {
        [key: string]: string;
    };
    /**
     * Optional. Environment variables of every command of the session; `ExecRequest.env` overrides them. On an open session they are
     * merged into the earlier ones and apply to commands that start afterwards.
     *
     * @generated from field: map<string, string> env = 5;
     */
    env: {
        [key: string]: string;
    };
    /**
     * Optional. Project of the user whose files the session sees read-only in `project_files/`. Empty: `project_files/` belongs to the
     * session, or the project stays that of a session that exists. Another project than that of the session is PROJECT_MISMATCH, unless the
     * session has expired or was closed.
     *
     * @generated from field: string project_id = 20;
     */
    projectId: string;
    /**
     * Optional. Name of the environment, as ListEnvironments returns it; empty means the environment of the open session, or `default` for
     * a new one. A session that is open in another environment is refused with ENVIRONMENT_MISMATCH.
     *
     * @generated from field: string environment = 21;
     */
    environment: string;
    /**
     * Optional. What the session adds to its environment; absent means what the open session has, or nothing for a new one. A session that is
     * open with another configuration is refused with ENVIRONMENT_MISMATCH.
     *
     * @generated from field: sandboxd.v1.EnvironmentConfig environment_config = 22;
     */
    environmentConfig?: EnvironmentConfig | undefined;
    /**
     * Optional. Name of the command policy: `strict`, `open`, or one that the daemon's configuration defines; empty means the policy of the
     * open session, or that of the environment for a new one. The caller's token must allow it, unless no operator has set a policy. A session
     * that is open with another policy is refused with ENVIRONMENT_MISMATCH.
     *
     * @generated from field: string command_policy = 23;
     */
    commandPolicy: string;
    /**
     * Optional. Name of the command policy of a session that this call creates, if neither `command_policy` nor an operator names one:
     * it gives way to the daemon's setting, to the environment's policy, and to a token with a list that lacks it. `strict` stands for
     * `strict-node` in `node20`. It is not compared with the policy of a session that exists, which keeps its own.
     *
     * @generated from field: string default_command_policy = 26;
     */
    defaultCommandPolicy: string;
    /**
     * Optional. How long to wait for the build of an environment or of its packages that are not ready; absent means not at all, and
     * the call fails with ENVIRONMENT_NOT_READY or PACKAGES_NOT_READY while the build goes on. At most 1 hour.
     *
     * @generated from field: google.protobuf.Duration build_wait = 24;
     */
    buildWait?: Duration | undefined;
    /**
     * Optional. Hosts that the session may reach; absent means those of the open session, or those of the environment for a new one. The
     * caller's token or the daemon's configuration must allow each. A session that is open with others is refused with ENVIRONMENT_MISMATCH;
     * SetEgress changes them.
     *
     * @generated from field: sandboxd.v1.EgressRules egress = 25;
     */
    egress?: EgressRules | undefined;
    /**
     * Optional. Which automatic snapshots the session gets; unspecified means those of the session, or the daemon's default for a new one.
     *
     * @generated from field: sandboxd.v1.AutoSnapshot auto_snapshot = 40;
     */
    autoSnapshot: AutoSnapshot;
    /**
     * Optional. Idle time after which the session is parked: it gives up its sandbox and keeps its files as a snapshot. 0 means never; absent
     * means that of the session, or the daemon's default for a new one. From 1 second to 7 days; a session that expires first is not parked.
     *
     * @generated from field: google.protobuf.Duration park_after = 41;
     */
    parkAfter?: Duration | undefined;
    /**
     * Optional. Names of the data sources that code and commands of the session may query, as ListDataSources returns them; at most 32. Empty:
     * those of the open session, or none for a new one. On an open session others are added to them. Reasons: DATA_SOURCE_NOT_FOUND.
     *
     * @generated from field: repeated string data_sources = 50;
     */
    dataSources: string[];
};
/**
 * Describes the message sandboxd.v1.OpenSessionRequest.
 * Use `create(OpenSessionRequestSchema)` to create a new message.
 */
export declare const OpenSessionRequestSchema: GenMessage<OpenSessionRequest>;
/**
 * The session, and how OpenSession obtained it.
 *
 * @generated from message sandboxd.v1.OpenSessionResponse
 */
export type OpenSessionResponse = Message<"sandboxd.v1.OpenSessionResponse"> & {
    /**
     * The open session.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
    /**
     * How OpenSession obtained it.
     *
     * @generated from field: sandboxd.v1.OpenOutcome outcome = 2;
     */
    outcome: OpenOutcome;
    /**
     * Whether the files are as they were left. True for a session that was open, parked or stopped; in the latter two cases its commands
     * have ended.
     *
     * @generated from field: bool workspace_kept = 3;
     */
    workspaceKept: boolean;
};
/**
 * Describes the message sandboxd.v1.OpenSessionResponse.
 * Use `create(OpenSessionResponseSchema)` to create a new message.
 */
export declare const OpenSessionResponseSchema: GenMessage<OpenSessionResponse>;
/**
 * Request for one session.
 *
 * @generated from message sandboxd.v1.GetSessionRequest
 */
export type GetSessionRequest = Message<"sandboxd.v1.GetSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.GetSessionRequest.
 * Use `create(GetSessionRequestSchema)` to create a new message.
 */
export declare const GetSessionRequestSchema: GenMessage<GetSessionRequest>;
/**
 * One session.
 *
 * @generated from message sandboxd.v1.GetSessionResponse
 */
export type GetSessionResponse = Message<"sandboxd.v1.GetSessionResponse"> & {
    /**
     * The session as it is now.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.GetSessionResponse.
 * Use `create(GetSessionResponseSchema)` to create a new message.
 */
export declare const GetSessionResponseSchema: GenMessage<GetSessionResponse>;
/**
 * Request for a page of sessions.
 *
 * @generated from message sandboxd.v1.ListSessionsRequest
 */
export type ListSessionsRequest = Message<"sandboxd.v1.ListSessionsRequest"> & {
    /**
     * Optional. Sessions per page, 1 to 1000; 0 means 100. In a cluster a page may have fewer, or none, although more follow.
     *
     * @generated from field: uint32 page_size = 1;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page, whichever worker gave it; empty means the first page.
     *
     * @generated from field: string page_token = 2;
     */
    pageToken: string;
    /**
     * Optional. Only sessions of this user; empty means any.
     *
     * @generated from field: string user_id = 3;
     */
    userId: string;
    /**
     * Optional. Only sessions of this thread; empty means any.
     *
     * @generated from field: string thread_id = 4;
     */
    threadId: string;
    /**
     * Optional. Only sessions in this state; absent means any.
     *
     * @generated from field: sandboxd.v1.SessionState state = 5;
     */
    state: SessionState;
    /**
     * Optional. Only sessions that carry all of these labels.
     *
     * @generated from field: map<string, string> metadata = 6;
     */
    metadata: {
        [key: string]: string;
    };
    /**
     * Optional. Set `usage` of each active session; a page then has at most 200 sessions.
     *
     * @generated from field: bool with_usage = 7;
     */
    withUsage: boolean;
};
/**
 * Describes the message sandboxd.v1.ListSessionsRequest.
 * Use `create(ListSessionsRequestSchema)` to create a new message.
 */
export declare const ListSessionsRequestSchema: GenMessage<ListSessionsRequest>;
/**
 * A page of sessions.
 *
 * @generated from message sandboxd.v1.ListSessionsResponse
 */
export type ListSessionsResponse = Message<"sandboxd.v1.ListSessionsResponse"> & {
    /**
     * The sessions, oldest first.
     *
     * @generated from field: repeated sandboxd.v1.Session sessions = 1;
     */
    sessions: Session[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
    /**
     * Workers of the cluster that did not answer in time, or are lost: sessions that only they know are missing from this page, and the
     * pages that follow do not make up for them. The same request, with the same `page_token`, returns this page again with what they
     * answer by then. Empty if the page is complete.
     *
     * @generated from field: repeated string missing_workers = 3;
     */
    missingWorkers: string[];
};
/**
 * Describes the message sandboxd.v1.ListSessionsResponse.
 * Use `create(ListSessionsResponseSchema)` to create a new message.
 */
export declare const ListSessionsResponseSchema: GenMessage<ListSessionsResponse>;
/**
 * Request to postpone the expiry of a session.
 *
 * @generated from message sandboxd.v1.TouchSessionRequest
 */
export type TouchSessionRequest = Message<"sandboxd.v1.TouchSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.TouchSessionRequest.
 * Use `create(TouchSessionRequestSchema)` to create a new message.
 */
export declare const TouchSessionRequestSchema: GenMessage<TouchSessionRequest>;
/**
 * The session with its new expiry.
 *
 * @generated from message sandboxd.v1.TouchSessionResponse
 */
export type TouchSessionResponse = Message<"sandboxd.v1.TouchSessionResponse"> & {
    /**
     * The session as it is now.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.TouchSessionResponse.
 * Use `create(TouchSessionResponseSchema)` to create a new message.
 */
export declare const TouchSessionResponseSchema: GenMessage<TouchSessionResponse>;
/**
 * Request to change a session. What it does not name stays as it is.
 *
 * @generated from message sandboxd.v1.UpdateSessionRequest
 */
export type UpdateSessionRequest = Message<"sandboxd.v1.UpdateSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Idle time after which the session expires, from 1 second to 7 days, counted from now on.
     *
     * @generated from field: google.protobuf.Duration idle_timeout = 2;
     */
    idleTimeout?: Duration | undefined;
    /**
     * Optional. Labels to set, with keys of 1 to 64 and values of 0 to 256 characters; others stay. A session has at most 32 labels.
     *
     * @generated from field: map<string, string> metadata = 3;
     */
    metadata: {
        [key: string]: string;
    };
    /**
     * Optional. Keys of labels to remove, at most 32; a key that the session does not have is ignored.
     *
     * @generated from field: repeated string remove_metadata = 4;
     */
    removeMetadata: string[];
    /**
     * Optional. Which automatic snapshots the session gets from now on; unspecified means as before.
     *
     * @generated from field: sandboxd.v1.AutoSnapshot auto_snapshot = 40;
     */
    autoSnapshot: AutoSnapshot;
    /**
     * Optional. Idle time after which the session is parked, from 1 second to 7 days; 0 means never, absent means as before.
     *
     * @generated from field: google.protobuf.Duration park_after = 41;
     */
    parkAfter?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.UpdateSessionRequest.
 * Use `create(UpdateSessionRequestSchema)` to create a new message.
 */
export declare const UpdateSessionRequestSchema: GenMessage<UpdateSessionRequest>;
/**
 * The session as it is now.
 *
 * @generated from message sandboxd.v1.UpdateSessionResponse
 */
export type UpdateSessionResponse = Message<"sandboxd.v1.UpdateSessionResponse"> & {
    /**
     * The changed session.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.UpdateSessionResponse.
 * Use `create(UpdateSessionResponseSchema)` to create a new message.
 */
export declare const UpdateSessionResponseSchema: GenMessage<UpdateSessionResponse>;
/**
 * Request to end a session.
 *
 * @generated from message sandboxd.v1.CloseSessionRequest
 */
export type CloseSessionRequest = Message<"sandboxd.v1.CloseSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.CloseSessionRequest.
 * Use `create(CloseSessionRequestSchema)` to create a new message.
 */
export declare const CloseSessionRequestSchema: GenMessage<CloseSessionRequest>;
/**
 * The session as it ended.
 *
 * @generated from message sandboxd.v1.CloseSessionResponse
 */
export type CloseSessionResponse = Message<"sandboxd.v1.CloseSessionResponse"> & {
    /**
     * The session, in state CLOSED.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.CloseSessionResponse.
 * Use `create(CloseSessionResponseSchema)` to create a new message.
 */
export declare const CloseSessionResponseSchema: GenMessage<CloseSessionResponse>;
/**
 * Request for a fresh sandbox.
 *
 * @generated from message sandboxd.v1.ResetSessionRequest
 */
export type ResetSessionRequest = Message<"sandboxd.v1.ResetSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any. Makes a repeated call safe.
     *
     * @generated from field: uint32 incarnation = 2;
     */
    incarnation: number;
};
/**
 * Describes the message sandboxd.v1.ResetSessionRequest.
 * Use `create(ResetSessionRequestSchema)` to create a new message.
 */
export declare const ResetSessionRequestSchema: GenMessage<ResetSessionRequest>;
/**
 * The session on its new sandbox.
 *
 * @generated from message sandboxd.v1.ResetSessionResponse
 */
export type ResetSessionResponse = Message<"sandboxd.v1.ResetSessionResponse"> & {
    /**
     * The session, on its next incarnation.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.ResetSessionResponse.
 * Use `create(ResetSessionResponseSchema)` to create a new message.
 */
export declare const ResetSessionResponseSchema: GenMessage<ResetSessionResponse>;
/**
 * Request for the identity of the caller.
 *
 * @generated from message sandboxd.v1.WhoAmIRequest
 */
export type WhoAmIRequest = Message<"sandboxd.v1.WhoAmIRequest"> & {};
/**
 * Describes the message sandboxd.v1.WhoAmIRequest.
 * Use `create(WhoAmIRequestSchema)` to create a new message.
 */
export declare const WhoAmIRequestSchema: GenMessage<WhoAmIRequest>;
/**
 * The caller.
 *
 * @generated from message sandboxd.v1.WhoAmIResponse
 */
export type WhoAmIResponse = Message<"sandboxd.v1.WhoAmIResponse"> & {
    /**
     * Name of the token or certificate; `host` on a listener that asks for neither.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Scope: `admin`, `user` or `read-only`.
     *
     * @generated from field: string scope = 2;
     */
    scope: string;
    /**
     * User whose sessions the caller sees; empty means the sessions of all users.
     *
     * @generated from field: string user_id = 3;
     */
    userId: string;
};
/**
 * Describes the message sandboxd.v1.WhoAmIResponse.
 * Use `create(WhoAmIResponseSchema)` to create a new message.
 */
export declare const WhoAmIResponseSchema: GenMessage<WhoAmIResponse>;
/**
 * Request for a link to the web console.
 *
 * @generated from message sandboxd.v1.CreateConsoleLinkRequest
 */
export type CreateConsoleLinkRequest = Message<"sandboxd.v1.CreateConsoleLinkRequest"> & {};
/**
 * Describes the message sandboxd.v1.CreateConsoleLinkRequest.
 * Use `create(CreateConsoleLinkRequestSchema)` to create a new message.
 */
export declare const CreateConsoleLinkRequestSchema: GenMessage<CreateConsoleLinkRequest>;
/**
 * A link to the web console.
 *
 * @generated from message sandboxd.v1.CreateConsoleLinkResponse
 */
export type CreateConsoleLinkResponse = Message<"sandboxd.v1.CreateConsoleLinkResponse"> & {
    /**
     * The link. What follows `#` is a secret.
     *
     * @generated from field: string url = 1;
     */
    url: string;
};
/**
 * Describes the message sandboxd.v1.CreateConsoleLinkResponse.
 * Use `create(CreateConsoleLinkResponseSchema)` to create a new message.
 */
export declare const CreateConsoleLinkResponseSchema: GenMessage<CreateConsoleLinkResponse>;
/**
 * How OpenSession obtained its session.
 *
 * @generated from enum sandboxd.v1.OpenOutcome
 */
export declare enum OpenOutcome {
    /**
     * Never sent.
     *
     * @generated from enum value: OPEN_OUTCOME_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * There was no session; the workspace is empty.
     *
     * @generated from enum value: OPEN_OUTCOME_CREATED = 1;
     */
    CREATED = 1,
    /**
     * The session was open; the workspace is as it was left.
     *
     * @generated from enum value: OPEN_OUTCOME_ATTACHED = 2;
     */
    ATTACHED = 2,
    /**
     * The session had expired, or was stopped or lost; same id, next incarnation. `workspace_kept` says whether the files were kept.
     *
     * @generated from enum value: OPEN_OUTCOME_RECREATED = 3;
     */
    RECREATED = 3,
    /**
     * The session was parked; same id, next incarnation, and the files as they were. Its commands had ended.
     *
     * @generated from enum value: OPEN_OUTCOME_UNPARKED = 4;
     */
    UNPARKED = 4
}
/**
 * Describes the enum sandboxd.v1.OpenOutcome.
 */
export declare const OpenOutcomeSchema: GenEnum<OpenOutcome>;
/**
 * Opens, describes and closes sessions.
 *
 * @generated from service sandboxd.v1.SessionService
 */
export declare const SessionService: GenService<{
    /**
     * Opens the session of a (user, thread), or attaches to it if it is open. This is one atomic step: any
     * number of concurrent callers share one sandbox. Safe to repeat. Counts as use.
     * Reasons: INVALID_REQUEST, PROJECT_NOT_FOUND, PROJECT_MISMATCH, POOL_EXHAUSTED, ENGINE_UNREACHABLE, ENGINE_FAILED, IMAGE_NOT_FOUND,
     * DRAINING, NOT_PERMITTED, ENVIRONMENT_NOT_FOUND, ENVIRONMENT_NOT_READY, ENVIRONMENT_UNAVAILABLE, ENVIRONMENT_BUILD_FAILED,
     * ENVIRONMENT_MISMATCH, PACKAGES_NOT_READY, EGRESS_NOT_ALLOWED, DOORS_OFF, DATA_SOURCE_NOT_FOUND, and with packages those of
     * EnsurePackages.
     *
     * @generated from rpc sandboxd.v1.SessionService.OpenSession
     */
    openSession: {
        methodKind: "unary";
        input: typeof OpenSessionRequestSchema;
        output: typeof OpenSessionResponseSchema;
    };
    /**
     * Describes one session, including one that ended recently. Does not count as use.
     * Reasons: SESSION_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.SessionService.GetSession
     */
    getSession: {
        methodKind: "unary";
        input: typeof GetSessionRequestSchema;
        output: typeof GetSessionResponseSchema;
    };
    /**
     * Lists sessions, oldest first, in pages; in a cluster those of all workers, whichever is asked. Does not count as use.
     * Reasons: INVALID_REQUEST, OWNERSHIP_UNKNOWN.
     *
     * @generated from rpc sandboxd.v1.SessionService.ListSessions
     */
    listSessions: {
        methodKind: "unary";
        input: typeof ListSessionsRequestSchema;
        output: typeof ListSessionsResponseSchema;
    };
    /**
     * Postpones the expiry of a session, as a command would.
     * Reasons: SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SANDBOX_LOST.
     *
     * @generated from rpc sandboxd.v1.SessionService.TouchSession
     */
    touchSession: {
        methodKind: "unary";
        input: typeof TouchSessionRequestSchema;
        output: typeof TouchSessionResponseSchema;
    };
    /**
     * Changes the idle time and the labels of a session. Counts as use. Safe to repeat.
     * Reasons: INVALID_REQUEST, SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SANDBOX_LOST, SESSION_RETURNING, STATE_NOT_SAVED.
     *
     * @generated from rpc sandboxd.v1.SessionService.UpdateSession
     */
    updateSession: {
        methodKind: "unary";
        input: typeof UpdateSessionRequestSchema;
        output: typeof UpdateSessionResponseSchema;
    };
    /**
     * Ends a session: running commands end with reason SESSION_CLOSED, and its sandbox and files are
     * deleted. Closing a session that has already ended is not an error.
     * Reasons: SESSION_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.SessionService.CloseSession
     */
    closeSession: {
        methodKind: "unary";
        input: typeof CloseSessionRequestSchema;
        output: typeof CloseSessionResponseSchema;
    };
    /**
     * Gives a session a fresh sandbox: its commands end with reason SESSION_CLOSED and its files are deleted, except project_files/. The id
     * stays the same and the incarnation increases. A session that has expired or lost its sandbox can be reset too.
     * Reasons: SESSION_NOT_FOUND, SESSION_CLOSED, POOL_EXHAUSTED, ENGINE_UNREACHABLE, ENGINE_FAILED, DRAINING.
     *
     * @generated from rpc sandboxd.v1.SessionService.ResetSession
     */
    resetSession: {
        methodKind: "unary";
        input: typeof ResetSessionRequestSchema;
        output: typeof ResetSessionResponseSchema;
    };
    /**
     * Returns who the caller is to the daemon.
     *
     * @generated from rpc sandboxd.v1.SessionService.WhoAmI
     */
    whoAmI: {
        methodKind: "unary";
        input: typeof WhoAmIRequestSchema;
        output: typeof WhoAmIResponseSchema;
    };
    /**
     * Returns a link that logs a browser into the web console as the caller. It works once, for a minute.
     * Reasons: CONSOLE_OFF.
     *
     * @generated from rpc sandboxd.v1.SessionService.CreateConsoleLink
     */
    createConsoleLink: {
        methodKind: "unary";
        input: typeof CreateConsoleLinkRequestSchema;
        output: typeof CreateConsoleLinkResponseSchema;
    };
}>;
