import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/cluster_service.proto.
 */
export declare const file_sandboxd_proto_v1_cluster_service: GenFile;
/**
 * Request for the workers.
 *
 * @generated from message sandboxd.v1.ListWorkersRequest
 */
export type ListWorkersRequest = Message<"sandboxd.v1.ListWorkersRequest"> & {};
/**
 * Describes the message sandboxd.v1.ListWorkersRequest.
 * Use `create(ListWorkersRequestSchema)` to create a new message.
 */
export declare const ListWorkersRequestSchema: GenMessage<ListWorkersRequest>;
/**
 * The workers of the cluster.
 *
 * @generated from message sandboxd.v1.ListWorkersResponse
 */
export type ListWorkersResponse = Message<"sandboxd.v1.ListWorkersResponse"> & {
    /**
     * All that are known, by id.
     *
     * @generated from field: repeated sandboxd.v1.Worker workers = 1;
     */
    workers: Worker[];
    /**
     * Id of the worker that answers.
     *
     * @generated from field: string answered_by = 2;
     */
    answeredBy: string;
};
/**
 * Describes the message sandboxd.v1.ListWorkersResponse.
 * Use `create(ListWorkersResponseSchema)` to create a new message.
 */
export declare const ListWorkersResponseSchema: GenMessage<ListWorkersResponse>;
/**
 * One daemon of a cluster.
 *
 * @generated from message sandboxd.v1.Worker
 */
export type Worker = Message<"sandboxd.v1.Worker"> & {
    /**
     * Its WORKER_ID.
     *
     * @generated from field: string id = 1;
     */
    id: string;
    /**
     * Where other workers and clients reach it; empty for a daemon alone.
     *
     * @generated from field: string address = 2;
     */
    address: string;
    /**
     * How often it has joined.
     *
     * @generated from field: uint64 generation = 3;
     */
    generation: bigint;
    /**
     * What it does.
     *
     * @generated from field: sandboxd.v1.WorkerState state = 4;
     */
    state: WorkerState;
    /**
     * Time until its lease ends; absent for a daemon alone.
     *
     * @generated from field: google.protobuf.Duration lease = 5;
     */
    lease?: Duration | undefined;
    /**
     * Version of the daemon.
     *
     * @generated from field: string version = 6;
     */
    version: string;
    /**
     * Warm sandboxes.
     *
     * @generated from field: uint32 warm = 7;
     */
    warm: number;
    /**
     * Sandboxes that sessions have.
     *
     * @generated from field: uint32 used = 8;
     */
    used: number;
    /**
     * Sandboxes that it may have.
     *
     * @generated from field: uint32 capacity = 9;
     */
    capacity: number;
    /**
     * Environments that are ready there.
     *
     * @generated from field: repeated string environments = 10;
     */
    environments: string[];
};
/**
 * Describes the message sandboxd.v1.Worker.
 * Use `create(WorkerSchema)` to create a new message.
 */
export declare const WorkerSchema: GenMessage<Worker>;
/**
 * Request for the place of a session.
 *
 * @generated from message sandboxd.v1.FindSessionRequest
 */
export type FindSessionRequest = Message<"sandboxd.v1.FindSessionRequest"> & {
    /**
     * The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.FindSessionRequest.
 * Use `create(FindSessionRequestSchema)` to create a new message.
 */
export declare const FindSessionRequestSchema: GenMessage<FindSessionRequest>;
/**
 * The place of a session.
 *
 * @generated from message sandboxd.v1.FindSessionResponse
 */
export type FindSessionResponse = Message<"sandboxd.v1.FindSessionResponse"> & {
    /**
     * Worker that has it; the last one if it is parked.
     *
     * @generated from field: string worker = 1;
     */
    worker: string;
    /**
     * Where to reach that worker.
     *
     * @generated from field: string address = 2;
     */
    address: string;
    /**
     * Number of this owner; every later one has a higher number.
     *
     * @generated from field: uint64 epoch = 3;
     */
    epoch: bigint;
    /**
     * Whether it is parked: any worker can open it.
     *
     * @generated from field: bool parked = 4;
     */
    parked: boolean;
    /**
     * Number of the snapshot that another worker continues from if this one is lost; 0 if there is none.
     *
     * @generated from field: uint64 committed_snapshot = 5;
     */
    committedSnapshot: bigint;
};
/**
 * Describes the message sandboxd.v1.FindSessionResponse.
 * Use `create(FindSessionResponseSchema)` to create a new message.
 */
export declare const FindSessionResponseSchema: GenMessage<FindSessionResponse>;
/**
 * Request to move all sessions away.
 *
 * @generated from message sandboxd.v1.DrainWorkerRequest
 */
export type DrainWorkerRequest = Message<"sandboxd.v1.DrainWorkerRequest"> & {
    /**
     * How long commands may go on; 0 means 5 minutes. Then they are ended.
     *
     * @generated from field: google.protobuf.Duration timeout = 1;
     */
    timeout?: Duration | undefined;
    /**
     * Take new sessions again, and move none away.
     *
     * @generated from field: bool cancel = 2;
     */
    cancel: boolean;
};
/**
 * Describes the message sandboxd.v1.DrainWorkerRequest.
 * Use `create(DrainWorkerRequestSchema)` to create a new message.
 */
export declare const DrainWorkerRequestSchema: GenMessage<DrainWorkerRequest>;
/**
 * How far a drain is.
 *
 * @generated from message sandboxd.v1.DrainWorkerResponse
 */
export type DrainWorkerResponse = Message<"sandboxd.v1.DrainWorkerResponse"> & {
    /**
     * Sessions that were moved away.
     *
     * @generated from field: uint32 moved = 1;
     */
    moved: number;
    /**
     * Sessions that are still here.
     *
     * @generated from field: uint32 left = 2;
     */
    left: number;
    /**
     * Sessions that could not be moved; the log says why.
     *
     * @generated from field: uint32 failed = 3;
     */
    failed: number;
    /**
     * Commands that are waited for.
     *
     * @generated from field: uint32 running = 4;
     */
    running: number;
};
/**
 * Describes the message sandboxd.v1.DrainWorkerResponse.
 * Use `create(DrainWorkerResponseSchema)` to create a new message.
 */
export declare const DrainWorkerResponseSchema: GenMessage<DrainWorkerResponse>;
/**
 * What a worker does.
 *
 * @generated from enum sandboxd.v1.WorkerState
 */
export declare enum WorkerState {
    /**
     * Not used.
     *
     * @generated from enum value: WORKER_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * It takes new sessions.
     *
     * @generated from enum value: WORKER_STATE_READY = 1;
     */
    READY = 1,
    /**
     * It takes no new sessions, and moves its own away.
     *
     * @generated from enum value: WORKER_STATE_DRAINING = 2;
     */
    DRAINING = 2,
    /**
     * It has not renewed its lease: others open its sessions.
     *
     * @generated from enum value: WORKER_STATE_LOST = 3;
     */
    LOST = 3
}
/**
 * Describes the enum sandboxd.v1.WorkerState.
 */
export declare const WorkerStateSchema: GenEnum<WorkerState>;
/**
 * Reports on the daemons that share sessions, the workers of a cluster, and moves sessions between them. A daemon alone is the only worker
 * of its cluster.
 *
 * @generated from service sandboxd.v1.ClusterService
 */
export declare const ClusterService: GenService<{
    /**
     * Lists the workers. Reasons: OWNERSHIP_UNKNOWN.
     *
     * @generated from rpc sandboxd.v1.ClusterService.ListWorkers
     */
    listWorkers: {
        methodKind: "unary";
        input: typeof ListWorkersRequestSchema;
        output: typeof ListWorkersResponseSchema;
    };
    /**
     * Tells which worker has a session. Reasons: SESSION_NOT_FOUND, OWNERSHIP_UNKNOWN.
     *
     * @generated from rpc sandboxd.v1.ClusterService.FindSession
     */
    findSession: {
        methodKind: "unary";
        input: typeof FindSessionRequestSchema;
        output: typeof FindSessionResponseSchema;
    };
    /**
     * Moves all sessions away from the worker that is asked, before it is stopped for good: it gets no new ones, idle sessions are parked at
     * once, and commands get time to end. Streams how far it is, until nothing is left. The worker stays as it is then; a call with
     * `cancel` makes it ready again. Reasons: SNAPSHOTS_OFF, OWNERSHIP_UNKNOWN.
     *
     * @generated from rpc sandboxd.v1.ClusterService.DrainWorker
     */
    drainWorker: {
        methodKind: "server_streaming";
        input: typeof DrainWorkerRequestSchema;
        output: typeof DrainWorkerResponseSchema;
    };
}>;
