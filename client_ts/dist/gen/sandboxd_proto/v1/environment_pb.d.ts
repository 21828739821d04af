import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { SessionLimits } from "./session_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/environment.proto.
 */
export declare const file_sandboxd_proto_v1_environment: GenFile;
/**
 * What the sandbox of a session is made from: an image with its tools, and the limits of what commands may use.
 *
 * @generated from message sandboxd.v1.Environment
 */
export type Environment = Message<"sandboxd.v1.Environment"> & {
    /**
     * Output only. Names the environment in every call, for example `python3.12`.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Output only. What the environment offers, in one line.
     *
     * @generated from field: string description = 2;
     */
    description: string;
    /**
     * Output only. Whether sessions can be opened in it.
     *
     * @generated from field: sandboxd.v1.EnvironmentState state = 3;
     */
    state: EnvironmentState;
    /**
     * Output only. Why the state is NOT_BUILT, FAILED or UNAVAILABLE and what would help, as a sentence; empty otherwise.
     *
     * @generated from field: string state_detail = 4;
     */
    stateDetail: string;
    /**
     * Output only. Where it was made from: an image of a `registry`, packages of `debian` or `npm`, `wheels`, files of the `host`, another
     * `environment`, or an `image` that the operator named; empty before the first build.
     *
     * @generated from field: string source = 5;
     */
    source: string;
    /**
     * Output only. Why earlier sources in the order of preference were not used, one sentence each.
     *
     * @generated from field: repeated string skipped_sources = 6;
     */
    skippedSources: string[];
    /**
     * Output only. Id of the image that new sandboxes use; empty unless the state is READY, or BUILDING while an earlier image exists.
     *
     * @generated from field: string image_id = 7;
     */
    imageId: string;
    /**
     * Output only. Size of the image, with the layers that it shares with others; 0 without an image.
     *
     * @generated from field: uint64 image_bytes = 8;
     */
    imageBytes: bigint;
    /**
     * Output only. When the image was built; absent without an image.
     *
     * @generated from field: google.protobuf.Timestamp build_time = 9;
     */
    buildTime?: Timestamp | undefined;
    /**
     * Output only. How long the last successful build by this daemon took; absent if there was none.
     *
     * @generated from field: google.protobuf.Duration build_duration = 10;
     */
    buildDuration?: Duration | undefined;
    /**
     * Output only. Limits of its sessions.
     *
     * @generated from field: sandboxd.v1.SessionLimits limits = 11;
     */
    limits?: SessionLimits | undefined;
    /**
     * Output only. Names of environment variables of every command, without their values; those of the session and of the command override
     * them.
     *
     * @generated from field: map<string, string> env_vars = 12;
     */
    envVars: {
        [key: string]: string;
    };
    /**
     * Output only. Name of the command policy of sessions that ask for no other, neither by name nor by default.
     *
     * @generated from field: string command_policy = 13;
     */
    commandPolicy: string;
    /**
     * Output only. Number of open sessions in it.
     *
     * @generated from field: uint32 active_sessions = 14;
     */
    activeSessions: number;
    /**
     * Output only. Progress of the build that runs now; absent if none runs.
     *
     * @generated from field: sandboxd.v1.BuildProgress progress = 15;
     */
    progress?: BuildProgress | undefined;
    /**
     * Output only. Programs and packages of the image with their versions, sorted by kind and name. Set by GetEnvironment; empty without
     * an image.
     *
     * @generated from field: repeated sandboxd.v1.EnvironmentPackage packages = 16;
     */
    packages: EnvironmentPackage[];
    /**
     * Output only. Version of Python, for example `3.12`; empty if the environment has none, or is not built from a recipe of sandboxd.
     *
     * @generated from field: string python_version = 17;
     */
    pythonVersion: string;
    /**
     * Output only. Major version of Node.js, for example `20`; empty as for `python_version`.
     *
     * @generated from field: string node_version = 18;
     */
    nodeVersion: string;
    /**
     * Output only. Kind of packages that its sessions can ask for: `python` or `npm`.
     *
     * @generated from field: string package_kind = 19;
     */
    packageKind: string;
};
/**
 * Describes the message sandboxd.v1.Environment.
 * Use `create(EnvironmentSchema)` to create a new message.
 */
export declare const EnvironmentSchema: GenMessage<Environment>;
/**
 * A program or package that an environment contains.
 *
 * @generated from message sandboxd.v1.EnvironmentPackage
 */
export type EnvironmentPackage = Message<"sandboxd.v1.EnvironmentPackage"> & {
    /**
     * Kind of package: `python`, `node`, `debian` or `program`.
     *
     * @generated from field: string kind = 1;
     */
    kind: string;
    /**
     * Name of the package.
     *
     * @generated from field: string name = 2;
     */
    name: string;
    /**
     * Installed version.
     *
     * @generated from field: string version = 3;
     */
    version: string;
};
/**
 * Describes the message sandboxd.v1.EnvironmentPackage.
 * Use `create(EnvironmentPackageSchema)` to create a new message.
 */
export declare const EnvironmentPackageSchema: GenMessage<EnvironmentPackage>;
/**
 * How far a build is. A build belongs to the daemon: it goes on when the caller disconnects, and callers that ask for the same share it.
 *
 * @generated from message sandboxd.v1.BuildProgress
 */
export type BuildProgress = Message<"sandboxd.v1.BuildProgress"> & {
    /**
     * Name of the current step, for example `bootstrap`, `install`, `download` or `compile`.
     *
     * @generated from field: string step = 1;
     */
    step: string;
    /**
     * Number of the current step, counted from 1.
     *
     * @generated from field: uint32 step_number = 2;
     */
    stepNumber: number;
    /**
     * Number of steps, as far as it is known now.
     *
     * @generated from field: uint32 step_count = 3;
     */
    stepCount: number;
    /**
     * Fraction of the whole build that is done, 0 to 1; an estimate that never decreases.
     *
     * @generated from field: double fraction = 4;
     */
    fraction: number;
    /**
     * What the step does at the moment, in one line of at most 200 characters.
     *
     * @generated from field: string detail = 5;
     */
    detail: string;
    /**
     * Time since the build started.
     *
     * @generated from field: google.protobuf.Duration elapsed = 6;
     */
    elapsed?: Duration | undefined;
    /**
     * Time since the build last made progress that the daemon could see.
     *
     * @generated from field: google.protobuf.Duration since_last_sign = 7;
     */
    sinceLastSign?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.BuildProgress.
 * Use `create(BuildProgressSchema)` to create a new message.
 */
export declare const BuildProgressSchema: GenMessage<BuildProgress>;
/**
 * Whether sessions can be opened in an environment.
 *
 * @generated from enum sandboxd.v1.EnvironmentState
 */
export declare enum EnvironmentState {
    /**
     * Never sent.
     *
     * @generated from enum value: ENVIRONMENT_STATE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * It has no image yet; BuildEnvironment, or the first OpenSession, builds it.
     *
     * @generated from enum value: ENVIRONMENT_STATE_NOT_BUILT = 1;
     */
    NOT_BUILT = 1,
    /**
     * Its image is being built.
     *
     * @generated from enum value: ENVIRONMENT_STATE_BUILDING = 2;
     */
    BUILDING = 2,
    /**
     * Its image is on the host.
     *
     * @generated from enum value: ENVIRONMENT_STATE_READY = 3;
     */
    READY = 3,
    /**
     * The last build failed; BuildEnvironment tries again.
     *
     * @generated from enum value: ENVIRONMENT_STATE_FAILED = 4;
     */
    FAILED = 4,
    /**
     * This host cannot build it: none of the sources of its base can be used. BuildEnvironment tries again.
     *
     * @generated from enum value: ENVIRONMENT_STATE_UNAVAILABLE = 5;
     */
    UNAVAILABLE = 5
}
/**
 * Describes the enum sandboxd.v1.EnvironmentState.
 */
export declare const EnvironmentStateSchema: GenEnum<EnvironmentState>;
