import type { GenEnum, GenFile } from "@bufbuild/protobuf/codegenv2";
/**
 * Describes the file sandboxd_proto/v1/error_reason.proto.
 */
export declare const file_sandboxd_proto_v1_error_reason: GenFile;
/**
 * Why a call failed. The name of the value is the `reason` of the google.rpc.ErrorInfo in the status
 * details, with domain `sandboxd`. A command that exits non-zero, is ended by a signal or times out
 * is a result, not an error.
 *
 * @generated from enum sandboxd.v1.ErrorReason
 */
export declare enum ErrorReason {
    /**
     * Never sent.
     *
     * @generated from enum value: ERROR_REASON_UNSPECIFIED = 0;
     */
    ERROR_REASON_UNSPECIFIED = 0,
    /**
     * A field is missing, malformed or out of range. INVALID_ARGUMENT, with google.rpc.BadRequest.
     *
     * @generated from enum value: INVALID_REQUEST = 1;
     */
    INVALID_REQUEST = 1,
    /**
     * Command, arguments or environment exceed the limit. INVALID_ARGUMENT.
     *
     * @generated from enum value: REQUEST_TOO_LARGE = 2;
     */
    REQUEST_TOO_LARGE = 2,
    /**
     * There is no session with this id, or it ended too long ago. NOT_FOUND.
     *
     * @generated from enum value: SESSION_NOT_FOUND = 3;
     */
    SESSION_NOT_FOUND = 3,
    /**
     * The sandbox image is not on the host. NOT_FOUND.
     *
     * @generated from enum value: IMAGE_NOT_FOUND = 4;
     */
    IMAGE_NOT_FOUND = 4,
    /**
     * The session already has an exec with this id but other content. ALREADY_EXISTS.
     *
     * @generated from enum value: EXEC_CONFLICT = 5;
     */
    EXEC_CONFLICT = 5,
    /**
     * The session was idle for too long. FAILED_PRECONDITION; open it again.
     *
     * @generated from enum value: SESSION_EXPIRED = 6;
     */
    SESSION_EXPIRED = 6,
    /**
     * The session was closed. FAILED_PRECONDITION; open a new one.
     *
     * @generated from enum value: SESSION_CLOSED = 7;
     */
    SESSION_CLOSED = 7,
    /**
     * The session is not on the incarnation that the request names. FAILED_PRECONDITION.
     *
     * @generated from enum value: SESSION_RECREATED = 8;
     */
    SESSION_RECREATED = 8,
    /**
     * The command could not be started. FAILED_PRECONDITION. `kind` in the metadata says why: `no_program`, `not_executable`,
     * `no_directory`, `no_shell` (the image has none for command lines, or for named shells), `too_many_shells`, `too_large` (more arguments
     * than the kernel takes), `no_process` or `other`. `no_process` comes with google.rpc.RetryInfo: try again with another exec id.
     *
     * @generated from enum value: COMMAND_NOT_STARTABLE = 9;
     */
    COMMAND_NOT_STARTABLE = 9,
    /**
     * All sandboxes are in use. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: POOL_EXHAUSTED = 10;
     */
    POOL_EXHAUSTED = 10,
    /**
     * Too many commands run at the same time in this session, for this user, or in total. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: EXEC_LIMIT_REACHED = 11;
     */
    EXEC_LIMIT_REACHED = 11,
    /**
     * Too many calls are being served at the same time, or this token makes calls too often. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: TOO_MANY_REQUESTS = 12;
     */
    TOO_MANY_REQUESTS = 12,
    /**
     * The container engine does not answer. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: ENGINE_UNREACHABLE = 13;
     */
    ENGINE_UNREACHABLE = 13,
    /**
     * The container engine failed or did not answer in time. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: ENGINE_FAILED = 14;
     */
    ENGINE_FAILED = 14,
    /**
     * The daemon is shutting down. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: DRAINING = 15;
     */
    DRAINING = 15,
    /**
     * The sandbox died or misbehaved and was destroyed. ABORTED; open the session again.
     *
     * @generated from enum value: SANDBOX_LOST = 16;
     */
    SANDBOX_LOST = 16,
    /**
     * A bug in sandboxd. INTERNAL, with an error id that is also in the daemon's log.
     *
     * @generated from enum value: INTERNAL = 17;
     */
    INTERNAL = 17,
    /**
     * The host has too little disk space for another workspace. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: DISK_SPACE_LOW = 18;
     */
    DISK_SPACE_LOW = 18,
    /**
     * The session has no exec with this id, or it ended too long ago. NOT_FOUND.
     *
     * @generated from enum value: EXEC_NOT_FOUND = 19;
     */
    EXEC_NOT_FOUND = 19,
    /**
     * The exec has ended, or still waits for its shell, so the call cannot act on it. FAILED_PRECONDITION.
     *
     * @generated from enum value: EXEC_ENDED = 20;
     */
    EXEC_ENDED = 20,
    /**
     * There is nothing at this path. NOT_FOUND.
     *
     * @generated from enum value: FILE_NOT_FOUND = 21;
     */
    FILE_NOT_FOUND = 21,
    /**
     * Something already exists at this path. ALREADY_EXISTS.
     *
     * @generated from enum value: FILE_EXISTS = 22;
     */
    FILE_EXISTS = 22,
    /**
     * The entry is not a regular file. FAILED_PRECONDITION.
     *
     * @generated from enum value: NOT_A_FILE = 23;
     */
    NOT_A_FILE = 23,
    /**
     * The entry is not a directory. FAILED_PRECONDITION.
     *
     * @generated from enum value: NOT_A_DIRECTORY = 24;
     */
    NOT_A_DIRECTORY = 24,
    /**
     * The directory is not empty; remove it recursively. FAILED_PRECONDITION.
     *
     * @generated from enum value: DIRECTORY_NOT_EMPTY = 25;
     */
    DIRECTORY_NOT_EMPTY = 25,
    /**
     * The path leaves the workspace through a link. FAILED_PRECONDITION.
     *
     * @generated from enum value: OUTSIDE_WORKSPACE = 26;
     */
    OUTSIDE_WORKSPACE = 26,
    /**
     * The workspace itself, its layout and project_files/ cannot be removed or moved, entries cannot be moved between areas, and outside of
     * the workspace only /tmp and /var/tmp can be written. FAILED_PRECONDITION.
     *
     * @generated from enum value: PROTECTED_PATH = 27;
     */
    PROTECTED_PATH = 27,
    /**
     * Permissions forbid the operation. FAILED_PRECONDITION.
     *
     * @generated from enum value: FILE_NOT_PERMITTED = 28;
     */
    FILE_NOT_PERMITTED = 28,
    /**
     * The file is larger than a file may be, or larger than the operation supports; the limit is in the metadata. FAILED_PRECONDITION.
     *
     * @generated from enum value: FILE_TOO_LARGE = 29;
     */
    FILE_TOO_LARGE = 29,
    /**
     * The workspace has no space left, in bytes or in files; the limit is in the metadata. For a path outside of it: that filesystem has none.
     * FAILED_PRECONDITION.
     *
     * @generated from enum value: WORKSPACE_FULL = 30;
     */
    WORKSPACE_FULL = 30,
    /**
     * Size or checksum of the upload differ from its header. ABORTED; nothing was written, send it again.
     *
     * @generated from enum value: CHECKSUM_MISMATCH = 31;
     */
    CHECKSUM_MISMATCH = 31,
    /**
     * The file became shorter while it was read. ABORTED; read it again.
     *
     * @generated from enum value: FILE_CHANGED = 32;
     */
    FILE_CHANGED = 32,
    /**
     * The text to replace does not occur as often as expected. FAILED_PRECONDITION.
     *
     * @generated from enum value: TEXT_NOT_FOUND = 33;
     */
    TEXT_NOT_FOUND = 33,
    /**
     * The bytes are not a valid archive. INVALID_ARGUMENT.
     *
     * @generated from enum value: INVALID_ARCHIVE = 34;
     */
    INVALID_ARCHIVE = 34,
    /**
     * Too many file operations of this session run at the same time. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: FILE_BUSY = 35;
     */
    FILE_BUSY = 35,
    /**
     * A command killed or stopped the worker of the file operation. ABORTED; try again.
     *
     * @generated from enum value: FILE_WORK_INTERRUPTED = 36;
     */
    FILE_WORK_INTERRUPTED = 36,
    /**
     * The command policy refuses the command; rule and command are in the metadata, and `policy` as the `kind`. PERMISSION_DENIED; nothing
     * was started.
     *
     * @generated from enum value: COMMAND_NOT_ALLOWED = 37;
     */
    COMMAND_NOT_ALLOWED = 37,
    /**
     * The call has no token, or an unknown one. UNAUTHENTICATED.
     *
     * @generated from enum value: UNAUTHENTICATED = 38;
     */
    UNAUTHENTICATED = 38,
    /**
     * The token does not allow this, or not for this user. PERMISSION_DENIED.
     *
     * @generated from enum value: NOT_PERMITTED = 39;
     */
    NOT_PERMITTED = 39,
    /**
     * The user already has the maximum number of sessions. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: SESSION_LIMIT_REACHED = 40;
     */
    SESSION_LIMIT_REACHED = 40,
    /**
     * The upload paused for too long. ABORTED; nothing was written, send it again.
     *
     * @generated from enum value: UPLOAD_STALLED = 41;
     */
    UPLOAD_STALLED = 41,
    /**
     * The daemon cannot save its state; nothing was changed. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: STATE_NOT_SAVED = 50;
     */
    STATE_NOT_SAVED = 50,
    /**
     * The daemon has too few file descriptors left. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: OPEN_FILES_EXHAUSTED = 51;
     */
    OPEN_FILES_EXHAUSTED = 51,
    /**
     * The daemon was restarted and has not reconnected to the session's sandbox yet. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: SESSION_RETURNING = 52;
     */
    SESSION_RETURNING = 52,
    /**
     * The daemon's configuration has no environment of this name. NOT_FOUND; the known ones are in the metadata.
     *
     * @generated from enum value: ENVIRONMENT_NOT_FOUND = 60;
     */
    ENVIRONMENT_NOT_FOUND = 60,
    /**
     * The environment or its packages are still being built. UNAVAILABLE, with google.rpc.RetryInfo; step and fraction done are in the
     * metadata.
     *
     * @generated from enum value: ENVIRONMENT_NOT_READY = 61;
     */
    ENVIRONMENT_NOT_READY = 61,
    /**
     * This host cannot build the environment; the message says why and what would help. FAILED_PRECONDITION.
     *
     * @generated from enum value: ENVIRONMENT_UNAVAILABLE = 62;
     */
    ENVIRONMENT_UNAVAILABLE = 62,
    /**
     * The session is open with another environment, other packages or another command policy. FAILED_PRECONDITION; close it first, or
     * omit the field.
     *
     * @generated from enum value: ENVIRONMENT_MISMATCH = 63;
     */
    ENVIRONMENT_MISMATCH = 63,
    /**
     * The build of the environment or of its packages failed; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: ENVIRONMENT_BUILD_FAILED = 64;
     */
    ENVIRONMENT_BUILD_FAILED = 64,
    /**
     * The environment cannot be deleted: it is the default, or has open sessions. FAILED_PRECONDITION.
     *
     * @generated from enum value: ENVIRONMENT_IN_USE = 65;
     */
    ENVIRONMENT_IN_USE = 65,
    /**
     * Too many builds run or wait. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: ENVIRONMENT_BUILDS_BUSY = 66;
     */
    ENVIRONMENT_BUILDS_BUSY = 66,
    /**
     * The session has no such snapshot, or it was deleted. NOT_FOUND.
     *
     * @generated from enum value: SNAPSHOT_NOT_FOUND = 42;
     */
    SNAPSHOT_NOT_FOUND = 42,
    /**
     * Something that the snapshot needs is missing in the store or damaged; the message names it. FAILED_PRECONDITION.
     *
     * @generated from enum value: SNAPSHOT_DAMAGED = 43;
     */
    SNAPSHOT_DAMAGED = 43,
    /**
     * The session is parked. FAILED_PRECONDITION; open it, and it has its files again.
     *
     * @generated from enum value: SESSION_PARKED = 44;
     */
    SESSION_PARKED = 44,
    /**
     * This daemon takes no snapshots; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: SNAPSHOTS_OFF = 45;
     */
    SNAPSHOTS_OFF = 45,
    /**
     * Commands changed files all the time while the snapshot was taken. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: WORKSPACE_BUSY = 48;
     */
    WORKSPACE_BUSY = 48,
    /**
     * The session or its user has as many snapshots, bytes of them or parked sessions as are allowed. RESOURCE_EXHAUSTED; the limit and its
     * setting are in the metadata.
     *
     * @generated from enum value: SNAPSHOT_LIMIT_REACHED = 49;
     */
    SNAPSHOT_LIMIT_REACHED = 49,
    /**
     * The store of snapshots does not answer or failed. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: SNAPSHOT_STORE_FAILED = 53;
     */
    SNAPSHOT_STORE_FAILED = 53,
    /**
     * A parked session has its files in this snapshot. FAILED_PRECONDITION.
     *
     * @generated from enum value: SNAPSHOT_IN_USE = 54;
     */
    SNAPSHOT_IN_USE = 54,
    /**
     * The filesystem of the workspace is damaged or is not one that this release makes. FAILED_PRECONDITION.
     *
     * @generated from enum value: WORKSPACE_UNREADABLE = 55;
     */
    WORKSPACE_UNREADABLE = 55,
    /**
     * The thread has an open or parked session, so nothing can be forked into it. ALREADY_EXISTS.
     *
     * @generated from enum value: SESSION_EXISTS = 56;
     */
    SESSION_EXISTS = 56,
    /**
     * This daemon serves no web console. FAILED_PRECONDITION.
     *
     * @generated from enum value: CONSOLE_OFF = 120;
     */
    CONSOLE_OFF = 120,
    /**
     * The user has no project with this id. NOT_FOUND.
     *
     * @generated from enum value: PROJECT_NOT_FOUND = 70;
     */
    PROJECT_NOT_FOUND = 70,
    /**
     * A limit on the projects of the user, or on the files of one of them, is reached; the limit is in the metadata. FAILED_PRECONDITION.
     *
     * @generated from enum value: PROJECT_FULL = 71;
     */
    PROJECT_FULL = 71,
    /**
     * The operator does not allow files of this type in projects, or the content is not of the type that the name says. PERMISSION_DENIED;
     * nothing was stored.
     *
     * @generated from enum value: FILE_TYPE_NOT_ALLOWED = 72;
     */
    FILE_TYPE_NOT_ALLOWED = 72,
    /**
     * The session is on another project than the request names, or on none. FAILED_PRECONDITION.
     *
     * @generated from enum value: PROJECT_MISMATCH = 73;
     */
    PROJECT_MISMATCH = 73,
    /**
     * A set of packages is still being built. UNAVAILABLE, with google.rpc.RetryInfo; step and fraction done are in the metadata.
     *
     * @generated from enum value: PACKAGES_NOT_READY = 80;
     */
    PACKAGES_NOT_READY = 80,
    /**
     * The operator does not allow a package to sessions. PERMISSION_DENIED; its name is in the metadata.
     *
     * @generated from enum value: PACKAGES_NOT_ALLOWED = 81;
     */
    PACKAGES_NOT_ALLOWED = 81,
    /**
     * No versions of the packages fit together, or one has none for the environment. FAILED_PRECONDITION.
     *
     * @generated from enum value: PACKAGES_NOT_RESOLVED = 82;
     */
    PACKAGES_NOT_RESOLVED = 82,
    /**
     * A package contains what no package needs, such as a path that leads out of it. FAILED_PRECONDITION; its name is in the metadata.
     *
     * @generated from enum value: PACKAGES_UNSAFE = 83;
     */
    PACKAGES_UNSAFE = 83,
    /**
     * The packages, with what they depend on, are larger than a set may be. FAILED_PRECONDITION; the limit is in the metadata.
     *
     * @generated from enum value: PACKAGES_TOO_LARGE = 84;
     */
    PACKAGES_TOO_LARGE = 84,
    /**
     * The packages could not be installed, for example within the time that is allowed; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: PACKAGES_BUILD_FAILED = 85;
     */
    PACKAGES_BUILD_FAILED = 85,
    /**
     * The caller may not let a session reach this host. PERMISSION_DENIED; the rule is in the metadata.
     *
     * @generated from enum value: EGRESS_NOT_ALLOWED = 103;
     */
    EGRESS_NOT_ALLOWED = 103,
    /**
     * The daemon cannot open doors in sandboxes; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: DOORS_OFF = 104;
     */
    DOORS_OFF = 104,
    /**
     * No program in the sandbox accepts connections on the port. FAILED_PRECONDITION.
     *
     * @generated from enum value: PORT_NOT_LISTENING = 105;
     */
    PORT_NOT_LISTENING = 105,
    /**
     * The listener of previews cannot be opened; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: PREVIEWS_UNAVAILABLE = 106;
     */
    PREVIEWS_UNAVAILABLE = 106,
    /**
     * The session has too many connections to its ports, or too many previews. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: PORT_LIMIT_REACHED = 107;
     */
    PORT_LIMIT_REACHED = 107,
    /**
     * The package index does not answer. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: PACKAGE_INDEX_UNREACHABLE = 86;
     */
    PACKAGE_INDEX_UNREACHABLE = 86,
    /**
     * Packages of open sessions fill the space that is there for packages. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: PACKAGE_CACHE_FULL = 87;
     */
    PACKAGE_CACHE_FULL = 87,
    /**
     * The session has no context of this name. NOT_FOUND; ListContexts returns those that it has.
     *
     * @generated from enum value: CONTEXT_NOT_FOUND = 88;
     */
    CONTEXT_NOT_FOUND = 88,
    /**
     * The session has a context of this name with other settings. ALREADY_EXISTS.
     *
     * @generated from enum value: CONTEXT_CONFLICT = 89;
     */
    CONTEXT_CONFLICT = 89,
    /**
     * The context is on another generation than the request names: its process ended, and its variables are lost. ABORTED; nothing has run.
     *
     * @generated from enum value: CONTEXT_LOST = 90;
     */
    CONTEXT_LOST = 90,
    /**
     * A run is under way in the context. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: CONTEXT_BUSY = 91;
     */
    CONTEXT_BUSY = 91,
    /**
     * The session has the maximum number of contexts. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo; delete one that is no longer needed.
     *
     * @generated from enum value: CONTEXT_LIMIT_REACHED = 92;
     */
    CONTEXT_LIMIT_REACHED = 92,
    /**
     * The code policy refuses the code; rule, line and name are in the metadata. PERMISSION_DENIED; nothing has run.
     *
     * @generated from enum value: CODE_NOT_ALLOWED = 93;
     */
    CODE_NOT_ALLOWED = 93,
    /**
     * The sandbox cannot run code in this language; the message says why. FAILED_PRECONDITION.
     *
     * @generated from enum value: CODE_UNAVAILABLE = 94;
     */
    CODE_UNAVAILABLE = 94,
    /**
     * There is no data source of this name that the caller, or the session, may use. NOT_FOUND.
     *
     * @generated from enum value: DATA_SOURCE_NOT_FOUND = 95;
     */
    DATA_SOURCE_NOT_FOUND = 95,
    /**
     * The data source does not run this statement. PERMISSION_DENIED; the metadata has `rule` (ONE_STATEMENT, KIND, FUNCTION, RELATION,
     * DEPTH or GRANT) and the word that offends.
     *
     * @generated from enum value: STATEMENT_NOT_ALLOWED = 96;
     */
    STATEMENT_NOT_ALLOWED = 96,
    /**
     * The database refused the statement. FAILED_PRECONDITION; the metadata has `sqlstate` and `position`, where they are known.
     *
     * @generated from enum value: QUERY_FAILED = 97;
     */
    QUERY_FAILED = 97,
    /**
     * The query took too long and was ended, in the database too. FAILED_PRECONDITION.
     *
     * @generated from enum value: QUERY_TIMED_OUT = 98;
     */
    QUERY_TIMED_OUT = 98,
    /**
     * The statement would change more rows than the data source allows, or needs more memory than queries may have; nothing was
     * changed. FAILED_PRECONDITION; the metadata has the `limit`: CHANGED_ROWS or MEMORY.
     *
     * @generated from enum value: QUERY_LIMIT_REACHED = 99;
     */
    QUERY_LIMIT_REACHED = 99,
    /**
     * The database cannot be reached, or its login must not be used. UNAVAILABLE, with google.rpc.RetryInfo.
     *
     * @generated from enum value: DATA_SOURCE_UNAVAILABLE = 100;
     */
    DATA_SOURCE_UNAVAILABLE = 100,
    /**
     * The connection broke while a change was made: it may have been made or not. ABORTED.
     *
     * @generated from enum value: QUERY_OUTCOME_UNKNOWN = 101;
     */
    QUERY_OUTCOME_UNKNOWN = 101,
    /**
     * Too many queries wait for a connection to the data source. RESOURCE_EXHAUSTED, with google.rpc.RetryInfo.
     *
     * @generated from enum value: QUERIES_BUSY = 102;
     */
    QUERIES_BUSY = 102,
    /**
     * Another worker of the cluster has the session; the metadata has `worker`, `address` and `epoch`. UNAVAILABLE; nothing was done. Only callers
     * that accept redirects get it, and calls that were forwarded already.
     *
     * @generated from enum value: OWNED_ELSEWHERE = 121;
     */
    OWNED_ELSEWHERE = 121,
    /**
     * The cluster cannot say at the moment which worker has the session. UNAVAILABLE, with google.rpc.RetryInfo; nothing was done.
     *
     * @generated from enum value: OWNERSHIP_UNKNOWN = 122;
     */
    OWNERSHIP_UNKNOWN = 122
}
/**
 * Describes the enum sandboxd.v1.ErrorReason.
 */
export declare const ErrorReasonSchema: GenEnum<ErrorReason>;
