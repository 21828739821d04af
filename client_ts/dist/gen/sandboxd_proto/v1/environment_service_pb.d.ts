import type { GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { BuildProgress, Environment, EnvironmentPackage } from "./environment_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/environment_service.proto.
 */
export declare const file_sandboxd_proto_v1_environment_service: GenFile;
/**
 * Request for all environments.
 *
 * @generated from message sandboxd.v1.ListEnvironmentsRequest
 */
export type ListEnvironmentsRequest = Message<"sandboxd.v1.ListEnvironmentsRequest"> & {};
/**
 * Describes the message sandboxd.v1.ListEnvironmentsRequest.
 * Use `create(ListEnvironmentsRequestSchema)` to create a new message.
 */
export declare const ListEnvironmentsRequestSchema: GenMessage<ListEnvironmentsRequest>;
/**
 * All environments.
 *
 * @generated from message sandboxd.v1.ListEnvironmentsResponse
 */
export type ListEnvironmentsResponse = Message<"sandboxd.v1.ListEnvironmentsResponse"> & {
    /**
     * The environments, the default first, the others by name; without their packages.
     *
     * @generated from field: repeated sandboxd.v1.Environment environments = 1;
     */
    environments: Environment[];
};
/**
 * Describes the message sandboxd.v1.ListEnvironmentsResponse.
 * Use `create(ListEnvironmentsResponseSchema)` to create a new message.
 */
export declare const ListEnvironmentsResponseSchema: GenMessage<ListEnvironmentsResponse>;
/**
 * Request for one environment.
 *
 * @generated from message sandboxd.v1.GetEnvironmentRequest
 */
export type GetEnvironmentRequest = Message<"sandboxd.v1.GetEnvironmentRequest"> & {
    /**
     * Required. Name of the environment.
     *
     * @generated from field: string name = 1;
     */
    name: string;
};
/**
 * Describes the message sandboxd.v1.GetEnvironmentRequest.
 * Use `create(GetEnvironmentRequestSchema)` to create a new message.
 */
export declare const GetEnvironmentRequestSchema: GenMessage<GetEnvironmentRequest>;
/**
 * One environment.
 *
 * @generated from message sandboxd.v1.GetEnvironmentResponse
 */
export type GetEnvironmentResponse = Message<"sandboxd.v1.GetEnvironmentResponse"> & {
    /**
     * The environment as it is now.
     *
     * @generated from field: sandboxd.v1.Environment environment = 1;
     */
    environment?: Environment | undefined;
};
/**
 * Describes the message sandboxd.v1.GetEnvironmentResponse.
 * Use `create(GetEnvironmentResponseSchema)` to create a new message.
 */
export declare const GetEnvironmentResponseSchema: GenMessage<GetEnvironmentResponse>;
/**
 * Request to build the image of an environment.
 *
 * @generated from message sandboxd.v1.BuildEnvironmentRequest
 */
export type BuildEnvironmentRequest = Message<"sandboxd.v1.BuildEnvironmentRequest"> & {
    /**
     * Required. Name of the environment.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Optional. Build again even if the image is current, from sources that may be newer. New sandboxes use the new image.
     *
     * @generated from field: bool rebuild = 2;
     */
    rebuild: boolean;
};
/**
 * Describes the message sandboxd.v1.BuildEnvironmentRequest.
 * Use `create(BuildEnvironmentRequestSchema)` to create a new message.
 */
export declare const BuildEnvironmentRequestSchema: GenMessage<BuildEnvironmentRequest>;
/**
 * Progress of a build, or its result.
 *
 * @generated from message sandboxd.v1.BuildEnvironmentResponse
 */
export type BuildEnvironmentResponse = Message<"sandboxd.v1.BuildEnvironmentResponse"> & {
    /**
     * What has happened.
     *
     * @generated from oneof sandboxd.v1.BuildEnvironmentResponse.event
     */
    event: {
        /**
         * How far the build is.
         *
         * @generated from field: sandboxd.v1.BuildProgress progress = 1;
         */
        value: BuildProgress;
        case: "progress";
    } | {
        /**
         * The environment with its new image; the last message.
         *
         * @generated from field: sandboxd.v1.Environment environment = 2;
         */
        value: Environment;
        case: "environment";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.BuildEnvironmentResponse.
 * Use `create(BuildEnvironmentResponseSchema)` to create a new message.
 */
export declare const BuildEnvironmentResponseSchema: GenMessage<BuildEnvironmentResponse>;
/**
 * Request to delete the image of an environment.
 *
 * @generated from message sandboxd.v1.DeleteEnvironmentRequest
 */
export type DeleteEnvironmentRequest = Message<"sandboxd.v1.DeleteEnvironmentRequest"> & {
    /**
     * Required. Name of the environment.
     *
     * @generated from field: string name = 1;
     */
    name: string;
};
/**
 * Describes the message sandboxd.v1.DeleteEnvironmentRequest.
 * Use `create(DeleteEnvironmentRequestSchema)` to create a new message.
 */
export declare const DeleteEnvironmentRequestSchema: GenMessage<DeleteEnvironmentRequest>;
/**
 * The environment without its image.
 *
 * @generated from message sandboxd.v1.DeleteEnvironmentResponse
 */
export type DeleteEnvironmentResponse = Message<"sandboxd.v1.DeleteEnvironmentResponse"> & {
    /**
     * The environment as it is now.
     *
     * @generated from field: sandboxd.v1.Environment environment = 1;
     */
    environment?: Environment | undefined;
};
/**
 * Describes the message sandboxd.v1.DeleteEnvironmentResponse.
 * Use `create(DeleteEnvironmentResponseSchema)` to create a new message.
 */
export declare const DeleteEnvironmentResponseSchema: GenMessage<DeleteEnvironmentResponse>;
/**
 * Request to build a set of packages.
 *
 * @generated from message sandboxd.v1.EnsurePackagesRequest
 */
export type EnsurePackagesRequest = Message<"sandboxd.v1.EnsurePackagesRequest"> & {
    /**
     * Optional. Name of the environment; empty means the default.
     *
     * @generated from field: string environment = 1;
     */
    environment: string;
    /**
     * Required. Packages as in EnvironmentConfig; at most 50, each of at most 200 characters.
     *
     * @generated from field: repeated string packages = 2;
     */
    packages: string[];
};
/**
 * Describes the message sandboxd.v1.EnsurePackagesRequest.
 * Use `create(EnsurePackagesRequestSchema)` to create a new message.
 */
export declare const EnsurePackagesRequestSchema: GenMessage<EnsurePackagesRequest>;
/**
 * Progress of a package set, or its result.
 *
 * @generated from message sandboxd.v1.EnsurePackagesResponse
 */
export type EnsurePackagesResponse = Message<"sandboxd.v1.EnsurePackagesResponse"> & {
    /**
     * What has happened.
     *
     * @generated from oneof sandboxd.v1.EnsurePackagesResponse.event
     */
    event: {
        /**
         * How far the build is.
         *
         * @generated from field: sandboxd.v1.BuildProgress progress = 1;
         */
        value: BuildProgress;
        case: "progress";
    } | {
        /**
         * The finished set; the last message.
         *
         * @generated from field: sandboxd.v1.PackageSet package_set = 2;
         */
        value: PackageSet;
        case: "packageSet";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.EnsurePackagesResponse.
 * Use `create(EnsurePackagesResponseSchema)` to create a new message.
 */
export declare const EnsurePackagesResponseSchema: GenMessage<EnsurePackagesResponse>;
/**
 * A set of packages that can be attached to sessions of an environment.
 *
 * @generated from message sandboxd.v1.PackageSet
 */
export type PackageSet = Message<"sandboxd.v1.PackageSet"> & {
    /**
     * Identifies the set: the same packages in the same versions for the same kind of environment have the same id.
     *
     * @generated from field: string package_set_id = 1;
     */
    packageSetId: string;
    /**
     * Name of the environment that it was requested for.
     *
     * @generated from field: string environment = 2;
     */
    environment: string;
    /**
     * All packages of the set with their versions, including those that the requested ones depend on, sorted by name.
     *
     * @generated from field: repeated sandboxd.v1.EnvironmentPackage packages = 3;
     */
    packages: EnvironmentPackage[];
    /**
     * Bytes of the set on the host's disk.
     *
     * @generated from field: uint64 size_bytes = 4;
     */
    sizeBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.PackageSet.
 * Use `create(PackageSetSchema)` to create a new message.
 */
export declare const PackageSetSchema: GenMessage<PackageSet>;
/**
 * Lists, builds and deletes the environments that sessions can be opened in. Which ones exist is configuration of the daemon; this service
 * builds their images and prepares package sets.
 *
 * @generated from service sandboxd.v1.EnvironmentService
 */
export declare const EnvironmentService: GenService<{
    /**
     * Lists all environments, the default first, the others by name. Works without the engine.
     *
     * @generated from rpc sandboxd.v1.EnvironmentService.ListEnvironments
     */
    listEnvironments: {
        methodKind: "unary";
        input: typeof ListEnvironmentsRequestSchema;
        output: typeof ListEnvironmentsResponseSchema;
    };
    /**
     * Describes one environment, with its packages and their versions.
     * Reasons: INVALID_REQUEST, ENVIRONMENT_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.EnvironmentService.GetEnvironment
     */
    getEnvironment: {
        methodKind: "unary";
        input: typeof GetEnvironmentRequestSchema;
        output: typeof GetEnvironmentResponseSchema;
    };
    /**
     * Builds the image of an environment and streams its progress. The first message is sent at once, further ones when something changes
     * and at least every few seconds; the last one has `environment`. An image that is made from the same as it would be now is not built
     * again, unless `rebuild` is set. The build belongs to the daemon: concurrent callers share one build, and it goes on when a caller
     * disconnects; only DeleteEnvironment cancels it. Open sessions keep their sandboxes.
     * Reasons: INVALID_REQUEST, ENVIRONMENT_NOT_FOUND, ENVIRONMENT_UNAVAILABLE, ENVIRONMENT_BUILD_FAILED, ENVIRONMENT_BUILDS_BUSY, DRAINING.
     *
     * @generated from rpc sandboxd.v1.EnvironmentService.BuildEnvironment
     */
    buildEnvironment: {
        methodKind: "server_streaming";
        input: typeof BuildEnvironmentRequestSchema;
        output: typeof BuildEnvironmentResponseSchema;
    };
    /**
     * Deletes the image of an environment and cancels its build. The environment remains in the configuration and can be built again. The
     * default environment, and one with open sessions, cannot be deleted. Deleting one without an image is not an error.
     * Reasons: INVALID_REQUEST, ENVIRONMENT_NOT_FOUND, ENVIRONMENT_IN_USE, ENGINE_UNREACHABLE, ENGINE_FAILED.
     *
     * @generated from rpc sandboxd.v1.EnvironmentService.DeleteEnvironment
     */
    deleteEnvironment: {
        methodKind: "unary";
        input: typeof DeleteEnvironmentRequestSchema;
        output: typeof DeleteEnvironmentResponseSchema;
    };
    /**
     * Builds a set of packages for an environment, so that OpenSession with the same packages does not have to wait, and streams its
     * progress as BuildEnvironment does. Builds the environment first if it has no image.
     * Reasons: INVALID_REQUEST, ENVIRONMENT_NOT_FOUND, ENVIRONMENT_UNAVAILABLE, ENVIRONMENT_BUILD_FAILED, ENVIRONMENT_BUILDS_BUSY, DRAINING,
     * PACKAGES_NOT_ALLOWED, PACKAGES_NOT_RESOLVED, PACKAGES_UNSAFE, PACKAGES_TOO_LARGE, PACKAGES_BUILD_FAILED, PACKAGE_INDEX_UNREACHABLE,
     * PACKAGE_CACHE_FULL, TOO_MANY_REQUESTS, DISK_SPACE_LOW.
     *
     * @generated from rpc sandboxd.v1.EnvironmentService.EnsurePackages
     */
    ensurePackages: {
        methodKind: "server_streaming";
        input: typeof EnsurePackagesRequestSchema;
        output: typeof EnsurePackagesResponseSchema;
    };
}>;
