import type { GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/project.proto.
 */
export declare const file_sandboxd_proto_v1_project: GenFile;
/**
 * Files that a user keeps beyond sessions. A session that is opened with a project sees them in `project_files/`.
 *
 * @generated from message sandboxd.v1.Project
 */
export type Project = Message<"sandboxd.v1.Project"> & {
    /**
     * Output only. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Output only. Names the project among those of its user.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
    /**
     * Output only. When the project was created.
     *
     * @generated from field: google.protobuf.Timestamp create_time = 3;
     */
    createTime?: Timestamp | undefined;
    /**
     * Output only. Number of files.
     *
     * @generated from field: uint32 files = 4;
     */
    files: number;
    /**
     * Output only. Bytes of all files together.
     *
     * @generated from field: uint64 size_bytes = 5;
     */
    sizeBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.Project.
 * Use `create(ProjectSchema)` to create a new message.
 */
export declare const ProjectSchema: GenMessage<Project>;
/**
 * A file of a project.
 *
 * @generated from message sandboxd.v1.ProjectFile
 */
export type ProjectFile = Message<"sandboxd.v1.ProjectFile"> & {
    /**
     * Output only. Name of the file, also in `project_files/`. It is the name of the upload without its directories and without characters
     * that hide, turn or end a name; with a number, as in `report (1).pdf`, if that was taken.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Output only. Size in bytes.
     *
     * @generated from field: uint64 size_bytes = 2;
     */
    sizeBytes: bigint;
    /**
     * Output only. SHA-256 of the content, 32 bytes.
     *
     * @generated from field: bytes sha256 = 3;
     */
    sha256: Uint8Array;
    /**
     * Output only. Type of the content, for example `text/csv`; `application/octet-stream` if it is not known.
     *
     * @generated from field: string mime_type = 4;
     */
    mimeType: string;
    /**
     * Output only. When the file got its content.
     *
     * @generated from field: google.protobuf.Timestamp create_time = 5;
     */
    createTime?: Timestamp | undefined;
};
/**
 * Describes the message sandboxd.v1.ProjectFile.
 * Use `create(ProjectFileSchema)` to create a new message.
 */
export declare const ProjectFileSchema: GenMessage<ProjectFile>;
/**
 * What the projects of a user hold, and the limits on that.
 *
 * @generated from message sandboxd.v1.ProjectUsage
 */
export type ProjectUsage = Message<"sandboxd.v1.ProjectUsage"> & {
    /**
     * Output only. Number of projects.
     *
     * @generated from field: uint32 projects = 1;
     */
    projects: number;
    /**
     * Output only. Number of files in all projects.
     *
     * @generated from field: uint64 files = 2;
     */
    files: bigint;
    /**
     * Output only. Bytes of all files; this is what limits apply to.
     *
     * @generated from field: uint64 size_bytes = 3;
     */
    sizeBytes: bigint;
    /**
     * Output only. Bytes on the disk: content that several files of the user have is stored once.
     *
     * @generated from field: uint64 stored_bytes = 4;
     */
    storedBytes: bigint;
    /**
     * Output only. Most projects of a user.
     *
     * @generated from field: uint32 max_projects = 5;
     */
    maxProjects: number;
    /**
     * Output only. Most bytes of all files of a user.
     *
     * @generated from field: uint64 max_size_bytes = 6;
     */
    maxSizeBytes: bigint;
    /**
     * Output only. Most files of one project.
     *
     * @generated from field: uint32 max_project_files = 7;
     */
    maxProjectFiles: number;
    /**
     * Output only. Most bytes of one project.
     *
     * @generated from field: uint64 max_project_bytes = 8;
     */
    maxProjectBytes: bigint;
    /**
     * Output only. Most bytes of one file.
     *
     * @generated from field: uint64 max_file_bytes = 9;
     */
    maxFileBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.ProjectUsage.
 * Use `create(ProjectUsageSchema)` to create a new message.
 */
export declare const ProjectUsageSchema: GenMessage<ProjectUsage>;
