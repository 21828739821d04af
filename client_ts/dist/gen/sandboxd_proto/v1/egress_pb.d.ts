import type { GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/egress.proto.
 */
export declare const file_sandboxd_proto_v1_egress: GenFile;
/**
 * Hosts that a session may reach.
 *
 * @generated from message sandboxd.v1.EgressRules
 */
export type EgressRules = Message<"sandboxd.v1.EgressRules"> & {
    /**
     * Optional. At most 64 rules, each written as `[METHODS ]HOST[:PORTS]`: `example.com` (plain HTTP on port 80, TLS on port 443),
     * `*.example.com:8443` (every name below it), `GET+HEAD example.com:80` (plain HTTP with these methods), `203.0.113.7:443`, `*` (every
     * name), `github.door` (an upstream that the operator has named). No rule means that it reaches nothing.
     *
     * @generated from field: repeated string rules = 1;
     */
    rules: string[];
};
/**
 * Describes the message sandboxd.v1.EgressRules.
 * Use `create(EgressRulesSchema)` to create a new message.
 */
export declare const EgressRulesSchema: GenMessage<EgressRules>;
/**
 * What a session may reach, and what it did with that.
 *
 * @generated from message sandboxd.v1.Egress
 */
export type Egress = Message<"sandboxd.v1.Egress"> & {
    /**
     * The hosts, sorted, as in EgressRules.
     *
     * @generated from field: repeated string rules = 1;
     */
    rules: string[];
    /**
     * Whether the session has asked for these; otherwise they are those of its environment.
     *
     * @generated from field: bool is_own = 2;
     */
    isOwn: boolean;
    /**
     * Address of the proxy inside the sandbox; empty while it has none.
     *
     * @generated from field: string proxy_url = 3;
     */
    proxyUrl: string;
    /**
     * Why it has no proxy although there are rules, as a sentence; empty otherwise.
     *
     * @generated from field: string problem = 4;
     */
    problem: string;
    /**
     * Connections that were passed on. This and the following figures count from when the sandbox got its proxy.
     *
     * @generated from field: uint64 connections = 5;
     */
    connections: bigint;
    /**
     * Bytes that came from outside.
     *
     * @generated from field: uint64 bytes_in = 6;
     */
    bytesIn: bigint;
    /**
     * Bytes that went outside.
     *
     * @generated from field: uint64 bytes_out = 7;
     */
    bytesOut: bigint;
    /**
     * Most bytes in both directions together.
     *
     * @generated from field: uint64 max_bytes = 8;
     */
    maxBytes: bigint;
    /**
     * Requests that were refused, by the rule that refused them: `host`, `port`, `method`, `address`, `name`, `protocol`, `limit`.
     *
     * @generated from field: map<string, uint64> denied = 9;
     */
    denied: {
        [key: string]: bigint;
    };
    /**
     * The last requests that were refused, oldest first; at most 50.
     *
     * @generated from field: repeated sandboxd.v1.EgressDenial recent_denials = 10;
     */
    recentDenials: EgressDenial[];
};
/**
 * Describes the message sandboxd.v1.Egress.
 * Use `create(EgressSchema)` to create a new message.
 */
export declare const EgressSchema: GenMessage<Egress>;
/**
 * A request that was refused.
 *
 * @generated from message sandboxd.v1.EgressDenial
 */
export type EgressDenial = Message<"sandboxd.v1.EgressDenial"> & {
    /**
     * When it was refused.
     *
     * @generated from field: google.protobuf.Timestamp time = 1;
     */
    time?: Timestamp | undefined;
    /**
     * The rule that refused it, as in `Egress.denied`.
     *
     * @generated from field: string rule = 2;
     */
    rule: string;
    /**
     * The host that was asked for; empty if the request could not be read.
     *
     * @generated from field: string host = 3;
     */
    host: string;
    /**
     * The port that was asked for; 0 if the request could not be read.
     *
     * @generated from field: uint32 port = 4;
     */
    port: number;
    /**
     * Why, and what to do, as a sentence.
     *
     * @generated from field: string message = 5;
     */
    message: string;
};
/**
 * Describes the message sandboxd.v1.EgressDenial.
 * Use `create(EgressDenialSchema)` to create a new message.
 */
export declare const EgressDenialSchema: GenMessage<EgressDenial>;
