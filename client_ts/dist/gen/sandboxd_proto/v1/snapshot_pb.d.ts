import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/snapshot.proto.
 */
export declare const file_sandboxd_proto_v1_snapshot: GenFile;
/**
 * The files of a session's workspace at one moment. Processes, /tmp and project_files/ are no part of it.
 *
 * @generated from message sandboxd.v1.Snapshot
 */
export type Snapshot = Message<"sandboxd.v1.Snapshot"> & {
    /**
     * Output only. Session that it belongs to.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Output only. Names the snapshot in its session. Counts from 1; a number is never used again.
     *
     * @generated from field: uint64 number = 2;
     */
    number: bigint;
    /**
     * Output only. When it was taken.
     *
     * @generated from field: google.protobuf.Timestamp create_time = 3;
     */
    createTime?: Timestamp | undefined;
    /**
     * Output only. Label from CreateSnapshot; empty for automatic snapshots.
     *
     * @generated from field: string label = 4;
     */
    label: string;
    /**
     * Output only. Why it was taken.
     *
     * @generated from field: sandboxd.v1.SnapshotCause cause = 5;
     */
    cause: SnapshotCause;
    /**
     * Output only. Command after which it was taken; empty for other causes.
     *
     * @generated from field: string exec_id = 6;
     */
    execId: string;
    /**
     * Output only. Turn after which it was taken, from the metadata `sandboxd-turn-id` of the call; empty if the call had none.
     *
     * @generated from field: string turn_id = 7;
     */
    turnId: string;
    /**
     * Output only. Incarnation of the session at that time.
     *
     * @generated from field: uint32 incarnation = 8;
     */
    incarnation: number;
    /**
     * Output only. Files, directories, links and FIFOs in it.
     *
     * @generated from field: uint64 files = 9;
     */
    files: bigint;
    /**
     * Output only. Bytes of all its files.
     *
     * @generated from field: uint64 size_bytes = 10;
     */
    sizeBytes: bigint;
    /**
     * Output only. Bytes that had to be stored for it, after deduplication and compression.
     *
     * @generated from field: uint64 stored_bytes = 11;
     */
    storedBytes: bigint;
    /**
     * Output only. Files, directories and links that the snapshot before it does not have.
     *
     * @generated from field: uint64 added = 12;
     */
    added: bigint;
    /**
     * Output only. Those that differ from the snapshot before it.
     *
     * @generated from field: uint64 changed = 13;
     */
    changed: bigint;
    /**
     * Output only. Those that only the snapshot before it has.
     *
     * @generated from field: uint64 removed = 14;
     */
    removed: bigint;
    /**
     * Output only. Paths of files that changed while it was taken, the first 20; each is whole, but they may not fit together. Empty for a
     * snapshot of a workspace at rest.
     *
     * @generated from field: repeated string moving_files = 15;
     */
    movingFiles: string[];
    /**
     * Output only. Number of files that changed while it was taken.
     *
     * @generated from field: uint64 moving_count = 16;
     */
    movingCount: bigint;
    /**
     * Output only. Number of sockets, which no snapshot holds.
     *
     * @generated from field: uint64 left_out = 17;
     */
    leftOut: bigint;
};
/**
 * Describes the message sandboxd.v1.Snapshot.
 * Use `create(SnapshotSchema)` to create a new message.
 */
export declare const SnapshotSchema: GenMessage<Snapshot>;
/**
 * Names a snapshot of a session.
 *
 * @generated from message sandboxd.v1.SnapshotRef
 */
export type SnapshotRef = Message<"sandboxd.v1.SnapshotRef"> & {
    /**
     * Required. One of the ways to name it.
     *
     * @generated from oneof sandboxd.v1.SnapshotRef.ref
     */
    ref: {
        /**
         * Its number.
         *
         * @generated from field: uint64 number = 1;
         */
        value: bigint;
        case: "number";
    } | {
        /**
         * Its label; the newest snapshot with that label.
         *
         * @generated from field: string label = 2;
         */
        value: string;
        case: "label";
    } | {
        /**
         * The state at the end of this turn: its newest snapshot.
         *
         * @generated from field: string turn_id = 3;
         */
        value: string;
        case: "turnId";
    } | {
        /**
         * The state before this turn: the newest snapshot that is older than all of the turn's.
         *
         * @generated from field: string before_turn_id = 4;
         */
        value: string;
        case: "beforeTurnId";
    } | {
        /**
         * The state before this command: the newest snapshot that is older than the command's.
         *
         * @generated from field: string before_exec_id = 5;
         */
        value: string;
        case: "beforeExecId";
    } | {
        /**
         * This many snapshots before the newest; 0 is the newest.
         *
         * @generated from field: uint32 back = 6;
         */
        value: number;
        case: "back";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.SnapshotRef.
 * Use `create(SnapshotRefSchema)` to create a new message.
 */
export declare const SnapshotRefSchema: GenMessage<SnapshotRef>;
/**
 * A path that differs between two states of a workspace.
 *
 * @generated from message sandboxd.v1.SnapshotChange
 */
export type SnapshotChange = Message<"sandboxd.v1.SnapshotChange"> & {
    /**
     * Path below the workspace; bytes that are no text are replaced by U+FFFD.
     *
     * @generated from field: string path = 1;
     */
    path: string;
    /**
     * The exact path, if it is no text; otherwise empty.
     *
     * @generated from field: bytes path_bytes = 2;
     */
    pathBytes: Uint8Array;
    /**
     * What happened to it.
     *
     * @generated from field: sandboxd.v1.SnapshotChangeKind kind = 3;
     */
    kind: SnapshotChangeKind;
    /**
     * For MOVED: the earlier path, like `path`.
     *
     * @generated from field: string moved_from = 4;
     */
    movedFrom: string;
    /**
     * For MOVED: the exact earlier path, if it is no text.
     *
     * @generated from field: bytes moved_from_bytes = 5;
     */
    movedFromBytes: Uint8Array;
    /**
     * Bytes before; 0 if it was not there.
     *
     * @generated from field: uint64 old_size_bytes = 6;
     */
    oldSizeBytes: bigint;
    /**
     * Bytes now; 0 if it is not there.
     *
     * @generated from field: uint64 new_size_bytes = 7;
     */
    newSizeBytes: bigint;
    /**
     * Type and permissions before, as in stat(2); 0 if it was not there.
     *
     * @generated from field: uint32 old_mode = 8;
     */
    oldMode: number;
    /**
     * Type and permissions now, as in stat(2); 0 if it is not there.
     *
     * @generated from field: uint32 new_mode = 9;
     */
    newMode: number;
    /**
     * With `with_text`: a unified diff of the content; empty for what is no text, did not change or is too large.
     *
     * @generated from field: string unified_diff = 10;
     */
    unifiedDiff: string;
    /**
     * With `with_text`: the content changed and is no text.
     *
     * @generated from field: bool binary = 11;
     */
    binary: boolean;
    /**
     * With `with_text`: the content was too large for a text diff, or the diff was cut because of `max_text_bytes`.
     *
     * @generated from field: bool cut = 12;
     */
    cut: boolean;
};
/**
 * Describes the message sandboxd.v1.SnapshotChange.
 * Use `create(SnapshotChangeSchema)` to create a new message.
 */
export declare const SnapshotChangeSchema: GenMessage<SnapshotChange>;
/**
 * Why a snapshot was taken.
 *
 * @generated from enum sandboxd.v1.SnapshotCause
 */
export declare enum SnapshotCause {
    /**
     * Never sent.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * CreateSnapshot.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_REQUESTED = 1;
     */
    REQUESTED = 1,
    /**
     * A command ended that changed something.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_EXEC = 2;
     */
    EXEC = 2,
    /**
     * A file call changed something.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_FILES = 3;
     */
    FILES = 3,
    /**
     * Automatic snapshots began: the workspace before the first turn.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_BASELINE = 4;
     */
    BASELINE = 4,
    /**
     * The session was parked.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_PARK = 5;
     */
    PARK = 5,
    /**
     * The session was rewound; this is what it had before.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_BEFORE_REWIND = 6;
     */
    BEFORE_REWIND = 6,
    /**
     * ImportSnapshot.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_IMPORT = 7;
     */
    IMPORT = 7,
    /**
     * The session was forked from the present.
     *
     * @generated from enum value: SNAPSHOT_CAUSE_FORK = 8;
     */
    FORK = 8
}
/**
 * Describes the enum sandboxd.v1.SnapshotCause.
 */
export declare const SnapshotCauseSchema: GenEnum<SnapshotCause>;
/**
 * Which automatic snapshots a session gets.
 *
 * @generated from enum sandboxd.v1.AutoSnapshot
 */
export declare enum AutoSnapshot {
    /**
     * In a request: what the session has, or the daemon's default for a new one. Never sent.
     *
     * @generated from enum value: AUTO_SNAPSHOT_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * None.
     *
     * @generated from enum value: AUTO_SNAPSHOT_OFF = 1;
     */
    OFF = 1,
    /**
     * One after every command or file call that changed something.
     *
     * @generated from enum value: AUTO_SNAPSHOT_COMMANDS = 2;
     */
    COMMANDS = 2,
    /**
     * One per turn: after every call that names a turn with the metadata `sandboxd-turn-id` and that changed something; it replaces the
     * earlier snapshot of that turn. What calls without a turn change belongs to the next turn.
     *
     * @generated from enum value: AUTO_SNAPSHOT_TURNS = 3;
     */
    TURNS = 3
}
/**
 * Describes the enum sandboxd.v1.AutoSnapshot.
 */
export declare const AutoSnapshotSchema: GenEnum<AutoSnapshot>;
/**
 * What happened to a path.
 *
 * @generated from enum sandboxd.v1.SnapshotChangeKind
 */
export declare enum SnapshotChangeKind {
    /**
     * Never sent.
     *
     * @generated from enum value: SNAPSHOT_CHANGE_KIND_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * It is new.
     *
     * @generated from enum value: SNAPSHOT_CHANGE_KIND_ADDED = 1;
     */
    ADDED = 1,
    /**
     * Content, type or attributes changed.
     *
     * @generated from enum value: SNAPSHOT_CHANGE_KIND_CHANGED = 2;
     */
    CHANGED = 2,
    /**
     * It is gone.
     *
     * @generated from enum value: SNAPSHOT_CHANGE_KIND_REMOVED = 3;
     */
    REMOVED = 3,
    /**
     * It has another path.
     *
     * @generated from enum value: SNAPSHOT_CHANGE_KIND_MOVED = 4;
     */
    MOVED = 4
}
/**
 * Describes the enum sandboxd.v1.SnapshotChangeKind.
 */
export declare const SnapshotChangeKindSchema: GenEnum<SnapshotChangeKind>;
