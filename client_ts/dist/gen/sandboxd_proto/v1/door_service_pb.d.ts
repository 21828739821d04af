import type { GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Egress, EgressRules } from "./egress_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/door_service.proto.
 */
export declare const file_sandboxd_proto_v1_door_service: GenFile;
/**
 * Request for the egress of a session.
 *
 * @generated from message sandboxd.v1.GetEgressRequest
 */
export type GetEgressRequest = Message<"sandboxd.v1.GetEgressRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.GetEgressRequest.
 * Use `create(GetEgressRequestSchema)` to create a new message.
 */
export declare const GetEgressRequestSchema: GenMessage<GetEgressRequest>;
/**
 * The egress of a session.
 *
 * @generated from message sandboxd.v1.GetEgressResponse
 */
export type GetEgressResponse = Message<"sandboxd.v1.GetEgressResponse"> & {
    /**
     * As it is now.
     *
     * @generated from field: sandboxd.v1.Egress egress = 1;
     */
    egress?: Egress | undefined;
};
/**
 * Describes the message sandboxd.v1.GetEgressResponse.
 * Use `create(GetEgressResponseSchema)` to create a new message.
 */
export declare const GetEgressResponseSchema: GenMessage<GetEgressResponse>;
/**
 * Request to replace the hosts that a session may reach.
 *
 * @generated from message sandboxd.v1.SetEgressRequest
 */
export type SetEgressRequest = Message<"sandboxd.v1.SetEgressRequest"> & {
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
    /**
     * Optional. Hosts that it may reach from now on, as in EgressRules; absent means those of its environment.
     *
     * @generated from field: sandboxd.v1.EgressRules rules = 3;
     */
    rules?: EgressRules | undefined;
};
/**
 * Describes the message sandboxd.v1.SetEgressRequest.
 * Use `create(SetEgressRequestSchema)` to create a new message.
 */
export declare const SetEgressRequestSchema: GenMessage<SetEgressRequest>;
/**
 * The changed egress.
 *
 * @generated from message sandboxd.v1.SetEgressResponse
 */
export type SetEgressResponse = Message<"sandboxd.v1.SetEgressResponse"> & {
    /**
     * As it is now.
     *
     * @generated from field: sandboxd.v1.Egress egress = 1;
     */
    egress?: Egress | undefined;
};
/**
 * Describes the message sandboxd.v1.SetEgressResponse.
 * Use `create(SetEgressResponseSchema)` to create a new message.
 */
export declare const SetEgressResponseSchema: GenMessage<SetEgressResponse>;
/**
 * Request for the doors of a session.
 *
 * @generated from message sandboxd.v1.ListDoorsRequest
 */
export type ListDoorsRequest = Message<"sandboxd.v1.ListDoorsRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
};
/**
 * Describes the message sandboxd.v1.ListDoorsRequest.
 * Use `create(ListDoorsRequestSchema)` to create a new message.
 */
export declare const ListDoorsRequestSchema: GenMessage<ListDoorsRequest>;
/**
 * The doors of a session.
 *
 * @generated from message sandboxd.v1.ListDoorsResponse
 */
export type ListDoorsResponse = Message<"sandboxd.v1.ListDoorsResponse"> & {
    /**
     * Sorted by name; none for most sessions.
     *
     * @generated from field: repeated sandboxd.v1.Door doors = 1;
     */
    doors: Door[];
};
/**
 * Describes the message sandboxd.v1.ListDoorsResponse.
 * Use `create(ListDoorsResponseSchema)` to create a new message.
 */
export declare const ListDoorsResponseSchema: GenMessage<ListDoorsResponse>;
/**
 * A socket inside a sandbox that the daemon serves.
 *
 * @generated from message sandboxd.v1.Door
 */
export type Door = Message<"sandboxd.v1.Door"> & {
    /**
     * Name of the door, for example `egress`.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Where it is inside: `127.0.0.1:3128`, or `unix:@NAME` for an abstract name. Empty if it is not open.
     *
     * @generated from field: string address = 2;
     */
    address: string;
    /**
     * Why it is not open, as a sentence; empty if it is.
     *
     * @generated from field: string problem = 3;
     */
    problem: string;
    /**
     * Connections that are open.
     *
     * @generated from field: uint32 connections = 4;
     */
    connections: number;
    /**
     * Connections that were closed at once because too many were open.
     *
     * @generated from field: uint64 refused = 5;
     */
    refused: bigint;
};
/**
 * Describes the message sandboxd.v1.Door.
 * Use `create(DoorSchema)` to create a new message.
 */
export declare const DoorSchema: GenMessage<Door>;
/**
 * What a session can reach. A sandbox has no network; the daemon opens doors in it.
 *
 * @generated from service sandboxd.v1.DoorService
 */
export declare const DoorService: GenService<{
    /**
     * Returns the hosts that a session may reach, and what it did with that. Does not count as use.
     * Reasons: SESSION_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.DoorService.GetEgress
     */
    getEgress: {
        methodKind: "unary";
        input: typeof GetEgressRequestSchema;
        output: typeof GetEgressResponseSchema;
    };
    /**
     * Replaces the hosts that a session may reach. Connections to hosts that are no longer allowed are ended. The variables of the proxy are
     * set for commands that start afterwards.
     * Reasons: INVALID_REQUEST, SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SESSION_RECREATED, SESSION_RETURNING, SANDBOX_LOST,
     * EGRESS_NOT_ALLOWED, DOORS_OFF, STATE_NOT_SAVED.
     *
     * @generated from rpc sandboxd.v1.DoorService.SetEgress
     */
    setEgress: {
        methodKind: "unary";
        input: typeof SetEgressRequestSchema;
        output: typeof SetEgressResponseSchema;
    };
    /**
     * Returns the doors of a session, also those that could not be opened. Does not count as use.
     * Reasons: SESSION_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.DoorService.ListDoors
     */
    listDoors: {
        methodKind: "unary";
        input: typeof ListDoorsRequestSchema;
        output: typeof ListDoorsResponseSchema;
    };
}>;
