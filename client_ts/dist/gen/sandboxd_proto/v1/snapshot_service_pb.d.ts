import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Session } from "./session_pb.js";
import type { AutoSnapshot, Snapshot, SnapshotChange, SnapshotRef } from "./snapshot_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/snapshot_service.proto.
 */
export declare const file_sandboxd_proto_v1_snapshot_service: GenFile;
/**
 * Request for a snapshot.
 *
 * @generated from message sandboxd.v1.CreateSnapshotRequest
 */
export type CreateSnapshotRequest = Message<"sandboxd.v1.CreateSnapshotRequest"> & {
    /**
     * Required. Session whose workspace to take.
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
     * Optional. Label to find it by; at most 256 characters, no control characters. Snapshots with a label are not thinned.
     *
     * @generated from field: string label = 3;
     */
    label: string;
    /**
     * Optional. What to do if commands change files meanwhile; absent means WHOLE_FILES.
     *
     * @generated from field: sandboxd.v1.SnapshotConsistency consistency = 4;
     */
    consistency: SnapshotConsistency;
    /**
     * Optional. Makes the call safe to repeat; 1 to 64 letters, digits, `_`, `-`, `.`.
     *
     * @generated from field: string request_id = 5;
     */
    requestId: string;
};
/**
 * Describes the message sandboxd.v1.CreateSnapshotRequest.
 * Use `create(CreateSnapshotRequestSchema)` to create a new message.
 */
export declare const CreateSnapshotRequestSchema: GenMessage<CreateSnapshotRequest>;
/**
 * The snapshot.
 *
 * @generated from message sandboxd.v1.CreateSnapshotResponse
 */
export type CreateSnapshotResponse = Message<"sandboxd.v1.CreateSnapshotResponse"> & {
    /**
     * The new snapshot, or the one of the first call with this `request_id`.
     *
     * @generated from field: sandboxd.v1.Snapshot snapshot = 1;
     */
    snapshot?: Snapshot | undefined;
};
/**
 * Describes the message sandboxd.v1.CreateSnapshotResponse.
 * Use `create(CreateSnapshotResponseSchema)` to create a new message.
 */
export declare const CreateSnapshotResponseSchema: GenMessage<CreateSnapshotResponse>;
/**
 * Request for a page of snapshots.
 *
 * @generated from message sandboxd.v1.ListSnapshotsRequest
 */
export type ListSnapshotsRequest = Message<"sandboxd.v1.ListSnapshotsRequest"> & {
    /**
     * Required. Session of the snapshots.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Snapshots per page, 1 to 1000; 0 means 100.
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
 * Describes the message sandboxd.v1.ListSnapshotsRequest.
 * Use `create(ListSnapshotsRequestSchema)` to create a new message.
 */
export declare const ListSnapshotsRequestSchema: GenMessage<ListSnapshotsRequest>;
/**
 * A page of snapshots.
 *
 * @generated from message sandboxd.v1.ListSnapshotsResponse
 */
export type ListSnapshotsResponse = Message<"sandboxd.v1.ListSnapshotsResponse"> & {
    /**
     * The snapshots, newest first.
     *
     * @generated from field: repeated sandboxd.v1.Snapshot snapshots = 1;
     */
    snapshots: Snapshot[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
    /**
     * What the session's snapshots take, and whether automatic ones are taken.
     *
     * @generated from field: sandboxd.v1.SnapshotLine line = 3;
     */
    line?: SnapshotLine | undefined;
};
/**
 * Describes the message sandboxd.v1.ListSnapshotsResponse.
 * Use `create(ListSnapshotsResponseSchema)` to create a new message.
 */
export declare const ListSnapshotsResponseSchema: GenMessage<ListSnapshotsResponse>;
/**
 * The line of snapshots of a session.
 *
 * @generated from message sandboxd.v1.SnapshotLine
 */
export type SnapshotLine = Message<"sandboxd.v1.SnapshotLine"> & {
    /**
     * Snapshots that are kept.
     *
     * @generated from field: uint32 snapshots = 1;
     */
    snapshots: number;
    /**
     * Bytes that they take in the store, counted once where they share content.
     *
     * @generated from field: uint64 stored_bytes = 2;
     */
    storedBytes: bigint;
    /**
     * Most automatic snapshots that are kept.
     *
     * @generated from field: uint32 max_snapshots = 3;
     */
    maxSnapshots: number;
    /**
     * Bytes above which the oldest automatic snapshots are deleted.
     *
     * @generated from field: uint64 max_stored_bytes = 4;
     */
    maxStoredBytes: bigint;
    /**
     * Which automatic snapshots the session gets.
     *
     * @generated from field: sandboxd.v1.AutoSnapshot auto_snapshot = 5;
     */
    autoSnapshot: AutoSnapshot;
    /**
     * Why automatic snapshots are not being taken now, as a sentence; empty while they are, and if they are off.
     *
     * @generated from field: string paused_because = 6;
     */
    pausedBecause: string;
};
/**
 * Describes the message sandboxd.v1.SnapshotLine.
 * Use `create(SnapshotLineSchema)` to create a new message.
 */
export declare const SnapshotLineSchema: GenMessage<SnapshotLine>;
/**
 * Request for one snapshot.
 *
 * @generated from message sandboxd.v1.GetSnapshotRequest
 */
export type GetSnapshotRequest = Message<"sandboxd.v1.GetSnapshotRequest"> & {
    /**
     * Required. Session of the snapshot.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The snapshot.
     *
     * @generated from field: sandboxd.v1.SnapshotRef snapshot = 2;
     */
    snapshot?: SnapshotRef | undefined;
};
/**
 * Describes the message sandboxd.v1.GetSnapshotRequest.
 * Use `create(GetSnapshotRequestSchema)` to create a new message.
 */
export declare const GetSnapshotRequestSchema: GenMessage<GetSnapshotRequest>;
/**
 * One snapshot.
 *
 * @generated from message sandboxd.v1.GetSnapshotResponse
 */
export type GetSnapshotResponse = Message<"sandboxd.v1.GetSnapshotResponse"> & {
    /**
     * The snapshot.
     *
     * @generated from field: sandboxd.v1.Snapshot snapshot = 1;
     */
    snapshot?: Snapshot | undefined;
};
/**
 * Describes the message sandboxd.v1.GetSnapshotResponse.
 * Use `create(GetSnapshotResponseSchema)` to create a new message.
 */
export declare const GetSnapshotResponseSchema: GenMessage<GetSnapshotResponse>;
/**
 * Request to compare.
 *
 * @generated from message sandboxd.v1.DiffSnapshotsRequest
 */
export type DiffSnapshotsRequest = Message<"sandboxd.v1.DiffSnapshotsRequest"> & {
    /**
     * Required. Session of the snapshots.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The earlier state.
     *
     * @generated from field: sandboxd.v1.SnapshotRef before = 2;
     */
    before?: SnapshotRef | undefined;
    /**
     * Optional. The later state; absent means the present.
     *
     * @generated from field: sandboxd.v1.SnapshotRef after = 3;
     */
    after?: SnapshotRef | undefined;
    /**
     * Optional. Also compare the content of text files.
     *
     * @generated from field: bool with_text = 4;
     */
    withText: boolean;
    /**
     * Optional. Only paths at or below this one, relative to the workspace; empty means all.
     *
     * @generated from field: string path_prefix = 5;
     */
    pathPrefix: string;
    /**
     * Optional. Unchanged lines around each change of a text, at most 20; absent means 3.
     *
     * @generated from field: optional uint32 context_lines = 6;
     */
    contextLines?: number | undefined;
    /**
     * Optional. Most bytes of text diffs in all, at most 8 MiB; 0 means 1 MiB.
     *
     * @generated from field: uint32 max_text_bytes = 7;
     */
    maxTextBytes: number;
};
/**
 * Describes the message sandboxd.v1.DiffSnapshotsRequest.
 * Use `create(DiffSnapshotsRequestSchema)` to create a new message.
 */
export declare const DiffSnapshotsRequestSchema: GenMessage<DiffSnapshotsRequest>;
/**
 * A part of a comparison.
 *
 * @generated from message sandboxd.v1.DiffSnapshotsResponse
 */
export type DiffSnapshotsResponse = Message<"sandboxd.v1.DiffSnapshotsResponse"> & {
    /**
     * Next changes, sorted by path.
     *
     * @generated from field: repeated sandboxd.v1.SnapshotChange changes = 1;
     */
    changes: SnapshotChange[];
    /**
     * In the last message only: totals.
     *
     * @generated from field: sandboxd.v1.DiffSummary summary = 2;
     */
    summary?: DiffSummary | undefined;
};
/**
 * Describes the message sandboxd.v1.DiffSnapshotsResponse.
 * Use `create(DiffSnapshotsResponseSchema)` to create a new message.
 */
export declare const DiffSnapshotsResponseSchema: GenMessage<DiffSnapshotsResponse>;
/**
 * Totals of a comparison.
 *
 * @generated from message sandboxd.v1.DiffSummary
 */
export type DiffSummary = Message<"sandboxd.v1.DiffSummary"> & {
    /**
     * Paths that are new.
     *
     * @generated from field: uint32 added = 1;
     */
    added: number;
    /**
     * Paths that changed.
     *
     * @generated from field: uint32 changed = 2;
     */
    changed: number;
    /**
     * Paths that are gone.
     *
     * @generated from field: uint32 removed = 3;
     */
    removed: number;
    /**
     * Paths that moved.
     *
     * @generated from field: uint32 moved = 4;
     */
    moved: number;
    /**
     * Whether there are more changes than the 10,000 that were sent.
     *
     * @generated from field: bool cut = 5;
     */
    cut: boolean;
};
/**
 * Describes the message sandboxd.v1.DiffSummary.
 * Use `create(DiffSummarySchema)` to create a new message.
 */
export declare const DiffSummarySchema: GenMessage<DiffSummary>;
/**
 * Request for the content of a file.
 *
 * @generated from message sandboxd.v1.ReadSnapshotFileRequest
 */
export type ReadSnapshotFileRequest = Message<"sandboxd.v1.ReadSnapshotFileRequest"> & {
    /**
     * Required. Session of the snapshot.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The snapshot.
     *
     * @generated from field: sandboxd.v1.SnapshotRef snapshot = 2;
     */
    snapshot?: SnapshotRef | undefined;
    /**
     * Required, unless `path_bytes` is set. Path relative to the workspace; links are not followed.
     *
     * @generated from field: string path = 3;
     */
    path: string;
    /**
     * Optional. The exact path, if it is no text.
     *
     * @generated from field: bytes path_bytes = 4;
     */
    pathBytes: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.ReadSnapshotFileRequest.
 * Use `create(ReadSnapshotFileRequestSchema)` to create a new message.
 */
export declare const ReadSnapshotFileRequestSchema: GenMessage<ReadSnapshotFileRequest>;
/**
 * A part of a file.
 *
 * @generated from message sandboxd.v1.ReadSnapshotFileResponse
 */
export type ReadSnapshotFileResponse = Message<"sandboxd.v1.ReadSnapshotFileResponse"> & {
    /**
     * The description first, then chunks.
     *
     * @generated from oneof sandboxd.v1.ReadSnapshotFileResponse.part
     */
    part: {
        /**
         * Description of the file.
         *
         * @generated from field: sandboxd.v1.SnapshotFile file = 1;
         */
        value: SnapshotFile;
        case: "file";
    } | {
        /**
         * Next bytes.
         *
         * @generated from field: bytes chunk = 2;
         */
        value: Uint8Array;
        case: "chunk";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ReadSnapshotFileResponse.
 * Use `create(ReadSnapshotFileResponseSchema)` to create a new message.
 */
export declare const ReadSnapshotFileResponseSchema: GenMessage<ReadSnapshotFileResponse>;
/**
 * A file of a snapshot.
 *
 * @generated from message sandboxd.v1.SnapshotFile
 */
export type SnapshotFile = Message<"sandboxd.v1.SnapshotFile"> & {
    /**
     * Path relative to the workspace.
     *
     * @generated from field: string path = 1;
     */
    path: string;
    /**
     * Bytes.
     *
     * @generated from field: uint64 size_bytes = 2;
     */
    sizeBytes: bigint;
    /**
     * Type and permissions, as in stat(2).
     *
     * @generated from field: uint32 mode = 3;
     */
    mode: number;
};
/**
 * Describes the message sandboxd.v1.SnapshotFile.
 * Use `create(SnapshotFileSchema)` to create a new message.
 */
export declare const SnapshotFileSchema: GenMessage<SnapshotFile>;
/**
 * Request to rewind.
 *
 * @generated from message sandboxd.v1.RestoreSessionRequest
 */
export type RestoreSessionRequest = Message<"sandboxd.v1.RestoreSessionRequest"> & {
    /**
     * Required. Session to rewind.
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
     * Required. Snapshot to return to.
     *
     * @generated from field: sandboxd.v1.SnapshotRef snapshot = 3;
     */
    snapshot?: SnapshotRef | undefined;
    /**
     * Optional. Makes the call safe to repeat; 1 to 64 letters, digits, `_`, `-`, `.`.
     *
     * @generated from field: string request_id = 4;
     */
    requestId: string;
};
/**
 * Describes the message sandboxd.v1.RestoreSessionRequest.
 * Use `create(RestoreSessionRequestSchema)` to create a new message.
 */
export declare const RestoreSessionRequestSchema: GenMessage<RestoreSessionRequest>;
/**
 * The rewound session.
 *
 * @generated from message sandboxd.v1.RestoreSessionResponse
 */
export type RestoreSessionResponse = Message<"sandboxd.v1.RestoreSessionResponse"> & {
    /**
     * The session, on its next incarnation.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
    /**
     * The snapshot that its files are from.
     *
     * @generated from field: sandboxd.v1.Snapshot restored_from = 2;
     */
    restoredFrom?: Snapshot | undefined;
    /**
     * What it had before; absent if it had no files then.
     *
     * @generated from field: sandboxd.v1.Snapshot before = 3;
     */
    before?: Snapshot | undefined;
};
/**
 * Describes the message sandboxd.v1.RestoreSessionResponse.
 * Use `create(RestoreSessionResponseSchema)` to create a new message.
 */
export declare const RestoreSessionResponseSchema: GenMessage<RestoreSessionResponse>;
/**
 * Request for forks.
 *
 * @generated from message sandboxd.v1.ForkSessionRequest
 */
export type ForkSessionRequest = Message<"sandboxd.v1.ForkSessionRequest"> & {
    /**
     * Required. Session to fork.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Snapshot to start from; absent means the present, of which a snapshot is taken.
     *
     * @generated from field: sandboxd.v1.SnapshotRef snapshot = 2;
     */
    snapshot?: SnapshotRef | undefined;
    /**
     * Threads to open, at most 100; none of them may have an open or parked session. Exactly one of `thread_ids` and `count` is set.
     *
     * @generated from field: repeated string thread_ids = 3;
     */
    threadIds: string[];
    /**
     * Number of threads to open, at most 100, with ids that the daemon makes.
     *
     * @generated from field: uint32 count = 4;
     */
    count: number;
    /**
     * Optional. Idle time of the forks; absent means that of the session.
     *
     * @generated from field: google.protobuf.Duration idle_timeout = 5;
     */
    idleTimeout?: Duration | undefined;
    /**
     * Optional. Labels of the forks, in place of those of the session.
     *
     * @generated from field: map<string, string> metadata = 6;
     */
    metadata: {
        [key: string]: string;
    };
    /**
     * Optional. Makes the call safe to repeat; 1 to 64 letters, digits, `_`, `-`, `.`.
     *
     * @generated from field: string request_id = 7;
     */
    requestId: string;
};
/**
 * Describes the message sandboxd.v1.ForkSessionRequest.
 * Use `create(ForkSessionRequestSchema)` to create a new message.
 */
export declare const ForkSessionRequestSchema: GenMessage<ForkSessionRequest>;
/**
 * The forks.
 *
 * @generated from message sandboxd.v1.ForkSessionResponse
 */
export type ForkSessionResponse = Message<"sandboxd.v1.ForkSessionResponse"> & {
    /**
     * One result per fork, in the order of the request.
     *
     * @generated from field: repeated sandboxd.v1.ForkResult forks = 1;
     */
    forks: ForkResult[];
    /**
     * The snapshot that they start from.
     *
     * @generated from field: sandboxd.v1.Snapshot snapshot = 2;
     */
    snapshot?: Snapshot | undefined;
};
/**
 * Describes the message sandboxd.v1.ForkSessionResponse.
 * Use `create(ForkSessionResponseSchema)` to create a new message.
 */
export declare const ForkSessionResponseSchema: GenMessage<ForkSessionResponse>;
/**
 * One fork.
 *
 * @generated from message sandboxd.v1.ForkResult
 */
export type ForkResult = Message<"sandboxd.v1.ForkResult"> & {
    /**
     * Its thread.
     *
     * @generated from field: string thread_id = 1;
     */
    threadId: string;
    /**
     * The open session; absent if this fork failed.
     *
     * @generated from field: sandboxd.v1.Session session = 2;
     */
    session?: Session | undefined;
    /**
     * Why it failed: the name of an ErrorReason; empty if it did not.
     *
     * @generated from field: string reason = 3;
     */
    reason: string;
    /**
     * Why it failed, as a sentence.
     *
     * @generated from field: string message = 4;
     */
    message: string;
};
/**
 * Describes the message sandboxd.v1.ForkResult.
 * Use `create(ForkResultSchema)` to create a new message.
 */
export declare const ForkResultSchema: GenMessage<ForkResult>;
/**
 * Request to park a session.
 *
 * @generated from message sandboxd.v1.ParkSessionRequest
 */
export type ParkSessionRequest = Message<"sandboxd.v1.ParkSessionRequest"> & {
    /**
     * Required. Id from OpenSession.
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
};
/**
 * Describes the message sandboxd.v1.ParkSessionRequest.
 * Use `create(ParkSessionRequestSchema)` to create a new message.
 */
export declare const ParkSessionRequestSchema: GenMessage<ParkSessionRequest>;
/**
 * The parked session.
 *
 * @generated from message sandboxd.v1.ParkSessionResponse
 */
export type ParkSessionResponse = Message<"sandboxd.v1.ParkSessionResponse"> & {
    /**
     * The session, in state PARKED.
     *
     * @generated from field: sandboxd.v1.Session session = 1;
     */
    session?: Session | undefined;
};
/**
 * Describes the message sandboxd.v1.ParkSessionResponse.
 * Use `create(ParkSessionResponseSchema)` to create a new message.
 */
export declare const ParkSessionResponseSchema: GenMessage<ParkSessionResponse>;
/**
 * Request to delete a snapshot.
 *
 * @generated from message sandboxd.v1.DeleteSnapshotRequest
 */
export type DeleteSnapshotRequest = Message<"sandboxd.v1.DeleteSnapshotRequest"> & {
    /**
     * Required. Session of the snapshot.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Number of the snapshot.
     *
     * @generated from field: uint64 number = 2;
     */
    number: bigint;
};
/**
 * Describes the message sandboxd.v1.DeleteSnapshotRequest.
 * Use `create(DeleteSnapshotRequestSchema)` to create a new message.
 */
export declare const DeleteSnapshotRequestSchema: GenMessage<DeleteSnapshotRequest>;
/**
 * The end of a deletion.
 *
 * @generated from message sandboxd.v1.DeleteSnapshotResponse
 */
export type DeleteSnapshotResponse = Message<"sandboxd.v1.DeleteSnapshotResponse"> & {
    /**
     * False if it was deleted before.
     *
     * @generated from field: bool deleted = 1;
     */
    deleted: boolean;
};
/**
 * Describes the message sandboxd.v1.DeleteSnapshotResponse.
 * Use `create(DeleteSnapshotResponseSchema)` to create a new message.
 */
export declare const DeleteSnapshotResponseSchema: GenMessage<DeleteSnapshotResponse>;
/**
 * Request for an archive.
 *
 * @generated from message sandboxd.v1.ExportSnapshotRequest
 */
export type ExportSnapshotRequest = Message<"sandboxd.v1.ExportSnapshotRequest"> & {
    /**
     * Required. Session of the snapshot.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The snapshot.
     *
     * @generated from field: sandboxd.v1.SnapshotRef snapshot = 2;
     */
    snapshot?: SnapshotRef | undefined;
};
/**
 * Describes the message sandboxd.v1.ExportSnapshotRequest.
 * Use `create(ExportSnapshotRequestSchema)` to create a new message.
 */
export declare const ExportSnapshotRequestSchema: GenMessage<ExportSnapshotRequest>;
/**
 * A part of an archive.
 *
 * @generated from message sandboxd.v1.ExportSnapshotResponse
 */
export type ExportSnapshotResponse = Message<"sandboxd.v1.ExportSnapshotResponse"> & {
    /**
     * The description first, then chunks.
     *
     * @generated from oneof sandboxd.v1.ExportSnapshotResponse.part
     */
    part: {
        /**
         * The snapshot.
         *
         * @generated from field: sandboxd.v1.Snapshot snapshot = 1;
         */
        value: Snapshot;
        case: "snapshot";
    } | {
        /**
         * Next bytes of the archive.
         *
         * @generated from field: bytes chunk = 2;
         */
        value: Uint8Array;
        case: "chunk";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ExportSnapshotResponse.
 * Use `create(ExportSnapshotResponseSchema)` to create a new message.
 */
export declare const ExportSnapshotResponseSchema: GenMessage<ExportSnapshotResponse>;
/**
 * A part of an import.
 *
 * @generated from message sandboxd.v1.ImportSnapshotRequest
 */
export type ImportSnapshotRequest = Message<"sandboxd.v1.ImportSnapshotRequest"> & {
    /**
     * Required. The header in the first message, chunks in all others.
     *
     * @generated from oneof sandboxd.v1.ImportSnapshotRequest.part
     */
    part: {
        /**
         * Where the snapshot belongs.
         *
         * @generated from field: sandboxd.v1.ImportSnapshotHeader header = 1;
         */
        value: ImportSnapshotHeader;
        case: "header";
    } | {
        /**
         * Next bytes of the archive; at most 4 MiB, 1 MiB is best.
         *
         * @generated from field: bytes chunk = 2;
         */
        value: Uint8Array;
        case: "chunk";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ImportSnapshotRequest.
 * Use `create(ImportSnapshotRequestSchema)` to create a new message.
 */
export declare const ImportSnapshotRequestSchema: GenMessage<ImportSnapshotRequest>;
/**
 * Where an imported snapshot belongs.
 *
 * @generated from message sandboxd.v1.ImportSnapshotHeader
 */
export type ImportSnapshotHeader = Message<"sandboxd.v1.ImportSnapshotHeader"> & {
    /**
     * Required. Session that gets the snapshot; its workspace does not change.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Label of the snapshot, as in CreateSnapshot.
     *
     * @generated from field: string label = 2;
     */
    label: string;
    /**
     * Optional. Makes the call safe to repeat; 1 to 64 letters, digits, `_`, `-`, `.`.
     *
     * @generated from field: string request_id = 3;
     */
    requestId: string;
};
/**
 * Describes the message sandboxd.v1.ImportSnapshotHeader.
 * Use `create(ImportSnapshotHeaderSchema)` to create a new message.
 */
export declare const ImportSnapshotHeaderSchema: GenMessage<ImportSnapshotHeader>;
/**
 * The imported snapshot.
 *
 * @generated from message sandboxd.v1.ImportSnapshotResponse
 */
export type ImportSnapshotResponse = Message<"sandboxd.v1.ImportSnapshotResponse"> & {
    /**
     * The new snapshot, or the one of the first call with this `request_id`.
     *
     * @generated from field: sandboxd.v1.Snapshot snapshot = 1;
     */
    snapshot?: Snapshot | undefined;
};
/**
 * Describes the message sandboxd.v1.ImportSnapshotResponse.
 * Use `create(ImportSnapshotResponseSchema)` to create a new message.
 */
export declare const ImportSnapshotResponseSchema: GenMessage<ImportSnapshotResponse>;
/**
 * Request to check the store.
 *
 * @generated from message sandboxd.v1.VerifySnapshotsRequest
 */
export type VerifySnapshotsRequest = Message<"sandboxd.v1.VerifySnapshotsRequest"> & {
    /**
     * Optional. Only snapshots of this session; empty means all.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.VerifySnapshotsRequest.
 * Use `create(VerifySnapshotsRequestSchema)` to create a new message.
 */
export declare const VerifySnapshotsRequestSchema: GenMessage<VerifySnapshotsRequest>;
/**
 * The findings of a check.
 *
 * @generated from message sandboxd.v1.VerifySnapshotsResponse
 */
export type VerifySnapshotsResponse = Message<"sandboxd.v1.VerifySnapshotsResponse"> & {
    /**
     * Snapshots that were checked.
     *
     * @generated from field: uint64 snapshots = 1;
     */
    snapshots: bigint;
    /**
     * Stored objects that were read and compared with their checksums.
     *
     * @generated from field: uint64 objects = 2;
     */
    objects: bigint;
    /**
     * Bytes of content that were checked.
     *
     * @generated from field: uint64 content_bytes = 3;
     */
    contentBytes: bigint;
    /**
     * What is missing or damaged, the first 100.
     *
     * @generated from field: repeated sandboxd.v1.SnapshotProblem problems = 4;
     */
    problems: SnapshotProblem[];
    /**
     * Number of problems.
     *
     * @generated from field: uint64 problem_count = 5;
     */
    problemCount: bigint;
};
/**
 * Describes the message sandboxd.v1.VerifySnapshotsResponse.
 * Use `create(VerifySnapshotsResponseSchema)` to create a new message.
 */
export declare const VerifySnapshotsResponseSchema: GenMessage<VerifySnapshotsResponse>;
/**
 * Something that is missing or damaged.
 *
 * @generated from message sandboxd.v1.SnapshotProblem
 */
export type SnapshotProblem = Message<"sandboxd.v1.SnapshotProblem"> & {
    /**
     * Key of the object in the store.
     *
     * @generated from field: string key = 1;
     */
    key: string;
    /**
     * What is wrong, as a sentence.
     *
     * @generated from field: string problem = 2;
     */
    problem: string;
};
/**
 * Describes the message sandboxd.v1.SnapshotProblem.
 * Use `create(SnapshotProblemSchema)` to create a new message.
 */
export declare const SnapshotProblemSchema: GenMessage<SnapshotProblem>;
/**
 * What a snapshot guarantees if commands change files while it is taken.
 *
 * @generated from enum sandboxd.v1.SnapshotConsistency
 */
export declare enum SnapshotConsistency {
    /**
     * Means WHOLE_FILES.
     *
     * @generated from enum value: SNAPSHOT_CONSISTENCY_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * Looks a few times; if files still change, the snapshot is taken nevertheless and `moving_files` names them.
     *
     * @generated from enum value: SNAPSHOT_CONSISTENCY_WHOLE_FILES = 1;
     */
    WHOLE_FILES = 1,
    /**
     * All of it is the state of one moment. If commands do not pause, their writes are stopped for at most half a second; fails with
     * WORKSPACE_BUSY if that is not enough.
     *
     * @generated from enum value: SNAPSHOT_CONSISTENCY_ONE_MOMENT = 2;
     */
    ONE_MOMENT = 2
}
/**
 * Describes the enum sandboxd.v1.SnapshotConsistency.
 */
export declare const SnapshotConsistencySchema: GenEnum<SnapshotConsistency>;
/**
 * Takes, compares and restores snapshots of workspaces. A snapshot belongs to its session and is deleted with it: when the session is closed,
 * or some time after it has expired. The session of another user looks like one that does not exist (SESSION_NOT_FOUND), and so do its
 * snapshots.
 *
 * A snapshot holds files: names, content, permissions, times, links, FIFOs, holes and extended attributes. It does not hold
 * processes, /tmp, or project_files/.
 *
 * `request_id` makes a call safe to repeat: a second call with the same id on the same session changes nothing and answers as the first.
 *
 * @generated from service sandboxd.v1.SnapshotService
 */
export declare const SnapshotService: GenService<{
    /**
     * Takes a snapshot of a workspace as it is. Does not count as use of the session.
     * Reasons: SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SESSION_PARKED, SANDBOX_LOST, SNAPSHOTS_OFF, SNAPSHOT_LIMIT_REACHED,
     * WORKSPACE_BUSY, DISK_SPACE_LOW, SNAPSHOT_STORE_FAILED, INVALID_REQUEST.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.CreateSnapshot
     */
    createSnapshot: {
        methodKind: "unary";
        input: typeof CreateSnapshotRequestSchema;
        output: typeof CreateSnapshotResponseSchema;
    };
    /**
     * Lists the snapshots of a session, newest first, in pages, also of one that ended. Reasons: SESSION_NOT_FOUND, INVALID_REQUEST.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ListSnapshots
     */
    listSnapshots: {
        methodKind: "unary";
        input: typeof ListSnapshotsRequestSchema;
        output: typeof ListSnapshotsResponseSchema;
    };
    /**
     * Describes one snapshot. Reasons: SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.GetSnapshot
     */
    getSnapshot: {
        methodKind: "unary";
        input: typeof GetSnapshotRequestSchema;
        output: typeof GetSnapshotResponseSchema;
    };
    /**
     * Streams what differs between two snapshots, or between a snapshot and the present: one entry per path, sorted by path. Reasons:
     * SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, SNAPSHOT_STORE_FAILED; for the present also those of CreateSnapshot.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.DiffSnapshots
     */
    diffSnapshots: {
        methodKind: "server_streaming";
        input: typeof DiffSnapshotsRequestSchema;
        output: typeof DiffSnapshotsResponseSchema;
    };
    /**
     * Reads a regular file of a snapshot. Reasons: SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, FILE_NOT_FOUND, NOT_A_FILE, SNAPSHOT_DAMAGED,
     * SNAPSHOT_STORE_FAILED.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ReadSnapshotFile
     */
    readSnapshotFile: {
        methodKind: "server_streaming";
        input: typeof ReadSnapshotFileRequestSchema;
        output: typeof ReadSnapshotFileResponseSchema;
    };
    /**
     * Rewinds a session: its files are as in the snapshot, on a fresh sandbox. The id stays the same and the incarnation increases; commands
     * end with reason SESSION_CLOSED; project_files/ stays as it is. Before, a snapshot of the present is taken, so a rewind can be rewound.
     * A session that is parked, expired or lost its sandbox can be rewound too, and is active afterwards.
     * Reasons: SESSION_NOT_FOUND, SESSION_CLOSED, SESSION_RECREATED, SNAPSHOT_NOT_FOUND, SNAPSHOT_DAMAGED, SNAPSHOT_STORE_FAILED,
     * SNAPSHOT_LIMIT_REACHED, WORKSPACE_FULL, POOL_EXHAUSTED, ENGINE_UNREACHABLE, ENGINE_FAILED, DISK_SPACE_LOW, DRAINING.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.RestoreSession
     */
    restoreSession: {
        methodKind: "unary";
        input: typeof RestoreSessionRequestSchema;
        output: typeof RestoreSessionResponseSchema;
    };
    /**
     * Opens new threads of the same user, each with the files of the snapshot and the environment, packages, variables, policy and project
     * files of the session. Each fork succeeds or fails alone. Reasons: SESSION_NOT_FOUND, SNAPSHOT_NOT_FOUND, INVALID_REQUEST; those of
     * single forks are in their results.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ForkSession
     */
    forkSession: {
        methodKind: "unary";
        input: typeof ForkSessionRequestSchema;
        output: typeof ForkSessionResponseSchema;
    };
    /**
     * Parks a session now: its commands end with reason SESSION_CLOSED, its sandbox is given up, and its files are kept as a snapshot.
     * OpenSession returns it as UNPARKED. A session that is parked already is not an error.
     * Reasons: SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SANDBOX_LOST, SNAPSHOTS_OFF, SNAPSHOT_LIMIT_REACHED,
     * SNAPSHOT_STORE_FAILED, DISK_SPACE_LOW, SESSION_RECREATED.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ParkSession
     */
    parkSession: {
        methodKind: "unary";
        input: typeof ParkSessionRequestSchema;
        output: typeof ParkSessionResponseSchema;
    };
    /**
     * Deletes a snapshot; others stay complete. A snapshot that was deleted before is not an error. Reasons: SESSION_NOT_FOUND,
     * SNAPSHOT_NOT_FOUND (there was none with this number), SNAPSHOT_IN_USE (a parked session has its files in it).
     *
     * @generated from rpc sandboxd.v1.SnapshotService.DeleteSnapshot
     */
    deleteSnapshot: {
        methodKind: "unary";
        input: typeof DeleteSnapshotRequestSchema;
        output: typeof DeleteSnapshotResponseSchema;
    };
    /**
     * Streams the files of a snapshot as a tar archive in the pax format. Reasons as for ReadSnapshotFile.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ExportSnapshot
     */
    exportSnapshot: {
        methodKind: "server_streaming";
        input: typeof ExportSnapshotRequestSchema;
        output: typeof ExportSnapshotResponseSchema;
    };
    /**
     * Makes a snapshot of a session from a tar archive. First message: the header; then the archive in chunks. Nothing of the archive is
     * extracted outside of the snapshot; devices, absolute paths and paths with `..` are refused. Reasons: SESSION_NOT_FOUND, SESSION_CLOSED,
     * INVALID_ARCHIVE, SNAPSHOT_LIMIT_REACHED, SNAPSHOTS_OFF, DISK_SPACE_LOW, SNAPSHOT_STORE_FAILED, UPLOAD_STALLED.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.ImportSnapshot
     */
    importSnapshot: {
        methodKind: "client_streaming";
        input: typeof ImportSnapshotRequestSchema;
        output: typeof ImportSnapshotResponseSchema;
    };
    /**
     * Checks that everything that snapshots need is stored and undamaged. For admins. Reasons: NOT_PERMITTED, SNAPSHOTS_OFF,
     * SNAPSHOT_STORE_FAILED.
     *
     * @generated from rpc sandboxd.v1.SnapshotService.VerifySnapshots
     */
    verifySnapshots: {
        methodKind: "unary";
        input: typeof VerifySnapshotsRequestSchema;
        output: typeof VerifySnapshotsResponseSchema;
    };
}>;
