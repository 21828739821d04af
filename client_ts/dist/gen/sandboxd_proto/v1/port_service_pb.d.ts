import type { GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/port_service.proto.
 */
export declare const file_sandboxd_proto_v1_port_service: GenFile;
/**
 * Request for the ports of a session.
 *
 * @generated from message sandboxd.v1.ListPortsRequest
 */
export type ListPortsRequest = Message<"sandboxd.v1.ListPortsRequest"> & {
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
 * Describes the message sandboxd.v1.ListPortsRequest.
 * Use `create(ListPortsRequestSchema)` to create a new message.
 */
export declare const ListPortsRequestSchema: GenMessage<ListPortsRequest>;
/**
 * The ports of a session.
 *
 * @generated from message sandboxd.v1.ListPortsResponse
 */
export type ListPortsResponse = Message<"sandboxd.v1.ListPortsResponse"> & {
    /**
     * Sorted by port and address.
     *
     * @generated from field: repeated sandboxd.v1.ListeningPort ports = 1;
     */
    ports: ListeningPort[];
};
/**
 * Describes the message sandboxd.v1.ListPortsResponse.
 * Use `create(ListPortsResponseSchema)` to create a new message.
 */
export declare const ListPortsResponseSchema: GenMessage<ListPortsResponse>;
/**
 * A port that a program in the sandbox listens on.
 *
 * @generated from message sandboxd.v1.ListeningPort
 */
export type ListeningPort = Message<"sandboxd.v1.ListeningPort"> & {
    /**
     * The port.
     *
     * @generated from field: uint32 port = 1;
     */
    port: number;
    /**
     * The address; `0.0.0.0` or `::` for all. Only those that include the loopback can be reached.
     *
     * @generated from field: string address = 2;
     */
    address: string;
};
/**
 * Describes the message sandboxd.v1.ListeningPort.
 * Use `create(ListeningPortSchema)` to create a new message.
 */
export declare const ListeningPortSchema: GenMessage<ListeningPort>;
/**
 * A part of what is sent to a port.
 *
 * @generated from message sandboxd.v1.ForwardPortRequest
 */
export type ForwardPortRequest = Message<"sandboxd.v1.ForwardPortRequest"> & {
    /**
     * The first message has a target, the others have data.
     *
     * @generated from oneof sandboxd.v1.ForwardPortRequest.part
     */
    part: {
        /**
         * What to connect to.
         *
         * @generated from field: sandboxd.v1.PortTarget target = 1;
         */
        value: PortTarget;
        case: "target";
    } | {
        /**
         * Bytes for the program, at most 1 MiB.
         *
         * @generated from field: bytes data = 2;
         */
        value: Uint8Array;
        case: "data";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ForwardPortRequest.
 * Use `create(ForwardPortRequestSchema)` to create a new message.
 */
export declare const ForwardPortRequestSchema: GenMessage<ForwardPortRequest>;
/**
 * A port of a session.
 *
 * @generated from message sandboxd.v1.PortTarget
 */
export type PortTarget = Message<"sandboxd.v1.PortTarget"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Port on the sandbox's loopback, 1 to 65535.
     *
     * @generated from field: uint32 port = 2;
     */
    port: number;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any.
     *
     * @generated from field: uint32 incarnation = 3;
     */
    incarnation: number;
};
/**
 * Describes the message sandboxd.v1.PortTarget.
 * Use `create(PortTargetSchema)` to create a new message.
 */
export declare const PortTargetSchema: GenMessage<PortTarget>;
/**
 * A part of what comes from a port.
 *
 * @generated from message sandboxd.v1.ForwardPortResponse
 */
export type ForwardPortResponse = Message<"sandboxd.v1.ForwardPortResponse"> & {
    /**
     * What it is.
     *
     * @generated from oneof sandboxd.v1.ForwardPortResponse.part
     */
    part: {
        /**
         * The connection is open; always the first message.
         *
         * @generated from field: sandboxd.v1.PortConnected connected = 1;
         */
        value: PortConnected;
        case: "connected";
    } | {
        /**
         * Bytes of the program.
         *
         * @generated from field: bytes data = 2;
         */
        value: Uint8Array;
        case: "data";
    } | {
        /**
         * The program sends no more bytes; it may still read some.
         *
         * @generated from field: sandboxd.v1.PortEnd end = 3;
         */
        value: PortEnd;
        case: "end";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.ForwardPortResponse.
 * Use `create(ForwardPortResponseSchema)` to create a new message.
 */
export declare const ForwardPortResponseSchema: GenMessage<ForwardPortResponse>;
/**
 * The connection is open.
 *
 * @generated from message sandboxd.v1.PortConnected
 */
export type PortConnected = Message<"sandboxd.v1.PortConnected"> & {};
/**
 * Describes the message sandboxd.v1.PortConnected.
 * Use `create(PortConnectedSchema)` to create a new message.
 */
export declare const PortConnectedSchema: GenMessage<PortConnected>;
/**
 * The program has closed its side of the connection.
 *
 * @generated from message sandboxd.v1.PortEnd
 */
export type PortEnd = Message<"sandboxd.v1.PortEnd"> & {};
/**
 * Describes the message sandboxd.v1.PortEnd.
 * Use `create(PortEndSchema)` to create a new message.
 */
export declare const PortEndSchema: GenMessage<PortEnd>;
/**
 * Request for a URL.
 *
 * @generated from message sandboxd.v1.CreatePreviewRequest
 */
export type CreatePreviewRequest = Message<"sandboxd.v1.CreatePreviewRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Port on the sandbox's loopback, 1 to 65535. A program need not listen there yet.
     *
     * @generated from field: uint32 port = 2;
     */
    port: number;
    /**
     * Optional. How long the URL is valid; absent means 1 hour. From 1 second to 24 hours.
     *
     * @generated from field: google.protobuf.Duration ttl = 3;
     */
    ttl?: Duration | undefined;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any.
     *
     * @generated from field: uint32 incarnation = 4;
     */
    incarnation: number;
};
/**
 * Describes the message sandboxd.v1.CreatePreviewRequest.
 * Use `create(CreatePreviewRequestSchema)` to create a new message.
 */
export declare const CreatePreviewRequestSchema: GenMessage<CreatePreviewRequest>;
/**
 * A URL of a preview. It is a secret: it holds the token that gives access.
 *
 * @generated from message sandboxd.v1.CreatePreviewResponse
 */
export type CreatePreviewResponse = Message<"sandboxd.v1.CreatePreviewResponse"> & {
    /**
     * With an origin of its own, `http://TOKEN.localhost:PORT/`, for browsers.
     *
     * @generated from field: string url = 1;
     */
    url: string;
    /**
     * The same under a path, `http://127.0.0.1:PORT/TOKEN/`, for programs that do not resolve names below `localhost`. Pages get neither
     * cookies nor storage there.
     *
     * @generated from field: string path_url = 2;
     */
    pathUrl: string;
    /**
     * When it expires.
     *
     * @generated from field: google.protobuf.Timestamp expire_time = 3;
     */
    expireTime?: Timestamp | undefined;
};
/**
 * Describes the message sandboxd.v1.CreatePreviewResponse.
 * Use `create(CreatePreviewResponseSchema)` to create a new message.
 */
export declare const CreatePreviewResponseSchema: GenMessage<CreatePreviewResponse>;
/**
 * Request to delete URLs.
 *
 * @generated from message sandboxd.v1.DeletePreviewsRequest
 */
export type DeletePreviewsRequest = Message<"sandboxd.v1.DeletePreviewsRequest"> & {
    /**
     * Required. Id from OpenSession.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Port whose URLs are deleted; 0 means all.
     *
     * @generated from field: uint32 port = 2;
     */
    port: number;
};
/**
 * Describes the message sandboxd.v1.DeletePreviewsRequest.
 * Use `create(DeletePreviewsRequestSchema)` to create a new message.
 */
export declare const DeletePreviewsRequestSchema: GenMessage<DeletePreviewsRequest>;
/**
 * How many URLs there were.
 *
 * @generated from message sandboxd.v1.DeletePreviewsResponse
 */
export type DeletePreviewsResponse = Message<"sandboxd.v1.DeletePreviewsResponse"> & {
    /**
     * Number of deleted URLs.
     *
     * @generated from field: uint32 deleted = 1;
     */
    deleted: number;
};
/**
 * Describes the message sandboxd.v1.DeletePreviewsResponse.
 * Use `create(DeletePreviewsResponseSchema)` to create a new message.
 */
export declare const DeletePreviewsResponseSchema: GenMessage<DeletePreviewsResponse>;
/**
 * Ports that programs in a sandbox listen on. Bytes that move count as use of the session; an open connection on which none move does not.
 *
 * @generated from service sandboxd.v1.PortService
 */
export declare const PortService: GenService<{
    /**
     * Returns the TCP ports that programs in the sandbox listen on, without those of the daemon's doors.
     * Reasons: SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SESSION_RECREATED, SESSION_RETURNING, SANDBOX_LOST, DOORS_OFF.
     *
     * @generated from rpc sandboxd.v1.PortService.ListPorts
     */
    listPorts: {
        methodKind: "unary";
        input: typeof ListPortsRequestSchema;
        output: typeof ListPortsResponseSchema;
    };
    /**
     * One connection to a port on the sandbox's loopback. The first request names it, the following ones carry data; the end of the requests
     * is passed on as the end of the data. The first response says that the connection is open. The call ends when both directions have.
     * Reasons: INVALID_REQUEST, SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SESSION_RECREATED, SESSION_RETURNING, SANDBOX_LOST,
     * PORT_NOT_LISTENING, PORT_LIMIT_REACHED, DOORS_OFF.
     *
     * @generated from rpc sandboxd.v1.PortService.ForwardPort
     */
    forwardPort: {
        methodKind: "bidi_streaming";
        input: typeof ForwardPortRequestSchema;
        output: typeof ForwardPortResponseSchema;
    };
    /**
     * Makes a URL on the daemon's host under which a browser reaches an HTTP server in the sandbox, with WebSockets. Whoever has the URL can
     * use it until it expires, the session ends or is reset, or the daemon restarts.
     * Reasons: INVALID_REQUEST, SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED, SESSION_RECREATED, SESSION_RETURNING, SANDBOX_LOST,
     * PREVIEWS_UNAVAILABLE, PORT_LIMIT_REACHED.
     *
     * @generated from rpc sandboxd.v1.PortService.CreatePreview
     */
    createPreview: {
        methodKind: "unary";
        input: typeof CreatePreviewRequestSchema;
        output: typeof CreatePreviewResponseSchema;
    };
    /**
     * Deletes the URLs of a session, or of one of its ports.
     * Reasons: SESSION_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.PortService.DeletePreviews
     */
    deletePreviews: {
        methodKind: "unary";
        input: typeof DeletePreviewsRequestSchema;
        output: typeof DeletePreviewsResponseSchema;
    };
}>;
