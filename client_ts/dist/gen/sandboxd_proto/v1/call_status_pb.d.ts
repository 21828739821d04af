import type { GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Any, Duration } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/call_status.proto.
 */
export declare const file_sandboxd_proto_v1_call_status: GenFile;
/**
 * Status of a failed call, as sent in the trailer `grpc-status-details-bin`. The three messages of this file have the fields of
 * google.rpc.Status, google.rpc.ErrorInfo and google.rpc.RetryInfo under the same numbers, so a client can read them without that package.
 *
 * @generated from message sandboxd.v1.CallStatus
 */
export type CallStatus = Message<"sandboxd.v1.CallStatus"> & {
    /**
     * Status code of gRPC.
     *
     * @generated from field: int32 code = 1;
     */
    code: number;
    /**
     * A sentence that says what went wrong and what to do next.
     *
     * @generated from field: string message = 2;
     */
    message: string;
    /**
     * An ErrorInfo and further details, each under its google.rpc type.
     *
     * @generated from field: repeated google.protobuf.Any details = 3;
     */
    details: Any[];
};
/**
 * Describes the message sandboxd.v1.CallStatus.
 * Use `create(CallStatusSchema)` to create a new message.
 */
export declare const CallStatusSchema: GenMessage<CallStatus>;
/**
 * Why a call failed.
 *
 * @generated from message sandboxd.v1.CallErrorInfo
 */
export type CallErrorInfo = Message<"sandboxd.v1.CallErrorInfo"> & {
    /**
     * Name of a value of ErrorReason.
     *
     * @generated from field: string reason = 1;
     */
    reason: string;
    /**
     * Always `sandboxd`.
     *
     * @generated from field: string domain = 2;
     */
    domain: string;
    /**
     * Details for programs, such as the limit or the id that the error is about.
     *
     * @generated from field: map<string, string> metadata = 3;
     */
    metadata: {
        [key: string]: string;
    };
};
/**
 * Describes the message sandboxd.v1.CallErrorInfo.
 * Use `create(CallErrorInfoSchema)` to create a new message.
 */
export declare const CallErrorInfoSchema: GenMessage<CallErrorInfo>;
/**
 * When another attempt may succeed.
 *
 * @generated from message sandboxd.v1.CallRetryInfo
 */
export type CallRetryInfo = Message<"sandboxd.v1.CallRetryInfo"> & {
    /**
     * How long to wait before the next attempt.
     *
     * @generated from field: google.protobuf.Duration retry_delay = 1;
     */
    retryDelay?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.CallRetryInfo.
 * Use `create(CallRetryInfoSchema)` to create a new message.
 */
export declare const CallRetryInfoSchema: GenMessage<CallRetryInfo>;
