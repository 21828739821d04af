import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Project, ProjectFile, ProjectUsage } from "./project_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/project_service.proto.
 */
export declare const file_sandboxd_proto_v1_project_service: GenFile;
/**
 * Request for a new project.
 *
 * @generated from message sandboxd.v1.CreateProjectRequest
 */
export type CreateProjectRequest = Message<"sandboxd.v1.CreateProjectRequest"> & {
    /**
     * Required. User that the project belongs to; 1 to 256 characters, no control characters.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. Names the project among those of the user; 1 to 256 characters, no control characters.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
};
/**
 * Describes the message sandboxd.v1.CreateProjectRequest.
 * Use `create(CreateProjectRequestSchema)` to create a new message.
 */
export declare const CreateProjectRequestSchema: GenMessage<CreateProjectRequest>;
/**
 * The project.
 *
 * @generated from message sandboxd.v1.CreateProjectResponse
 */
export type CreateProjectResponse = Message<"sandboxd.v1.CreateProjectResponse"> & {
    /**
     * The project as it is now.
     *
     * @generated from field: sandboxd.v1.Project project = 1;
     */
    project?: Project | undefined;
    /**
     * False if it existed.
     *
     * @generated from field: bool created = 2;
     */
    created: boolean;
};
/**
 * Describes the message sandboxd.v1.CreateProjectResponse.
 * Use `create(CreateProjectResponseSchema)` to create a new message.
 */
export declare const CreateProjectResponseSchema: GenMessage<CreateProjectResponse>;
/**
 * Request for one project.
 *
 * @generated from message sandboxd.v1.GetProjectRequest
 */
export type GetProjectRequest = Message<"sandboxd.v1.GetProjectRequest"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. Id from CreateProject.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
};
/**
 * Describes the message sandboxd.v1.GetProjectRequest.
 * Use `create(GetProjectRequestSchema)` to create a new message.
 */
export declare const GetProjectRequestSchema: GenMessage<GetProjectRequest>;
/**
 * One project.
 *
 * @generated from message sandboxd.v1.GetProjectResponse
 */
export type GetProjectResponse = Message<"sandboxd.v1.GetProjectResponse"> & {
    /**
     * The project as it is now.
     *
     * @generated from field: sandboxd.v1.Project project = 1;
     */
    project?: Project | undefined;
};
/**
 * Describes the message sandboxd.v1.GetProjectResponse.
 * Use `create(GetProjectResponseSchema)` to create a new message.
 */
export declare const GetProjectResponseSchema: GenMessage<GetProjectResponse>;
/**
 * Request for a page of projects.
 *
 * @generated from message sandboxd.v1.ListProjectsRequest
 */
export type ListProjectsRequest = Message<"sandboxd.v1.ListProjectsRequest"> & {
    /**
     * Required. User that the projects belong to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Optional. Projects per page, 1 to 1000; 0 means 100.
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
 * Describes the message sandboxd.v1.ListProjectsRequest.
 * Use `create(ListProjectsRequestSchema)` to create a new message.
 */
export declare const ListProjectsRequestSchema: GenMessage<ListProjectsRequest>;
/**
 * A page of projects.
 *
 * @generated from message sandboxd.v1.ListProjectsResponse
 */
export type ListProjectsResponse = Message<"sandboxd.v1.ListProjectsResponse"> & {
    /**
     * The projects, sorted by id.
     *
     * @generated from field: repeated sandboxd.v1.Project projects = 1;
     */
    projects: Project[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
    /**
     * What all projects of the user hold, not only those on this page.
     *
     * @generated from field: sandboxd.v1.ProjectUsage usage = 3;
     */
    usage?: ProjectUsage | undefined;
};
/**
 * Describes the message sandboxd.v1.ListProjectsResponse.
 * Use `create(ListProjectsResponseSchema)` to create a new message.
 */
export declare const ListProjectsResponseSchema: GenMessage<ListProjectsResponse>;
/**
 * Request to delete a project.
 *
 * @generated from message sandboxd.v1.DeleteProjectRequest
 */
export type DeleteProjectRequest = Message<"sandboxd.v1.DeleteProjectRequest"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. Id from CreateProject.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
};
/**
 * Describes the message sandboxd.v1.DeleteProjectRequest.
 * Use `create(DeleteProjectRequestSchema)` to create a new message.
 */
export declare const DeleteProjectRequestSchema: GenMessage<DeleteProjectRequest>;
/**
 * The project that was deleted.
 *
 * @generated from message sandboxd.v1.DeleteProjectResponse
 */
export type DeleteProjectResponse = Message<"sandboxd.v1.DeleteProjectResponse"> & {
    /**
     * The project as it was.
     *
     * @generated from field: sandboxd.v1.Project project = 1;
     */
    project?: Project | undefined;
};
/**
 * Describes the message sandboxd.v1.DeleteProjectResponse.
 * Use `create(DeleteProjectResponseSchema)` to create a new message.
 */
export declare const DeleteProjectResponseSchema: GenMessage<DeleteProjectResponse>;
/**
 * A part of an upload.
 *
 * @generated from message sandboxd.v1.UploadProjectFileRequest
 */
export type UploadProjectFileRequest = Message<"sandboxd.v1.UploadProjectFileRequest"> & {
    /**
     * Required. The header in the first message, chunks in all others.
     *
     * @generated from oneof sandboxd.v1.UploadProjectFileRequest.part
     */
    part: {
        /**
         * File to store.
         *
         * @generated from field: sandboxd.v1.ProjectFileHeader header = 1;
         */
        value: ProjectFileHeader;
        case: "header";
    } | {
        /**
         * Next bytes; at most 4 MiB, 1 MiB is best.
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
 * Describes the message sandboxd.v1.UploadProjectFileRequest.
 * Use `create(UploadProjectFileRequestSchema)` to create a new message.
 */
export declare const UploadProjectFileRequestSchema: GenMessage<UploadProjectFileRequest>;
/**
 * File to store.
 *
 * @generated from message sandboxd.v1.ProjectFileHeader
 */
export type ProjectFileHeader = Message<"sandboxd.v1.ProjectFileHeader"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. Project to store in.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
    /**
     * Required. Name of the file, at most 1024 characters; directories before it are ignored. The response has the name that it got.
     *
     * @generated from field: string name = 3;
     */
    name: string;
    /**
     * Optional. What to do if the project has a file of that name with other content; absent means RENAME.
     *
     * @generated from field: sandboxd.v1.OnConflict on_conflict = 4;
     */
    onConflict: OnConflict;
    /**
     * Optional. Size in bytes. If it is set, a file that cannot fit is refused at once, and one of another size is not stored. An upload
     * with neither this nor `sha256` takes 50 ms longer, because the daemon waits to be sure that its stream did not break off.
     *
     * @generated from field: optional uint64 size_bytes = 5;
     */
    sizeBytes?: bigint | undefined;
    /**
     * Optional. SHA-256 of the content, 32 bytes; a file with other content is not stored.
     *
     * @generated from field: bytes sha256 = 6;
     */
    sha256: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.ProjectFileHeader.
 * Use `create(ProjectFileHeaderSchema)` to create a new message.
 */
export declare const ProjectFileHeaderSchema: GenMessage<ProjectFileHeader>;
/**
 * The file that was stored.
 *
 * @generated from message sandboxd.v1.UploadProjectFileResponse
 */
export type UploadProjectFileResponse = Message<"sandboxd.v1.UploadProjectFileResponse"> & {
    /**
     * The file.
     *
     * @generated from field: sandboxd.v1.ProjectFile file = 1;
     */
    file?: ProjectFile | undefined;
    /**
     * What became of the upload.
     *
     * @generated from field: sandboxd.v1.UploadOutcome outcome = 2;
     */
    outcome: UploadOutcome;
};
/**
 * Describes the message sandboxd.v1.UploadProjectFileResponse.
 * Use `create(UploadProjectFileResponseSchema)` to create a new message.
 */
export declare const UploadProjectFileResponseSchema: GenMessage<UploadProjectFileResponse>;
/**
 * Request for a page of files.
 *
 * @generated from message sandboxd.v1.ListProjectFilesRequest
 */
export type ListProjectFilesRequest = Message<"sandboxd.v1.ListProjectFilesRequest"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. The project.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
    /**
     * Optional. Files per page, 1 to 1000; 0 means 100.
     *
     * @generated from field: uint32 page_size = 3;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page; empty means the first page.
     *
     * @generated from field: string page_token = 4;
     */
    pageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListProjectFilesRequest.
 * Use `create(ListProjectFilesRequestSchema)` to create a new message.
 */
export declare const ListProjectFilesRequestSchema: GenMessage<ListProjectFilesRequest>;
/**
 * A page of files.
 *
 * @generated from message sandboxd.v1.ListProjectFilesResponse
 */
export type ListProjectFilesResponse = Message<"sandboxd.v1.ListProjectFilesResponse"> & {
    /**
     * The files, sorted by name without regard to case.
     *
     * @generated from field: repeated sandboxd.v1.ProjectFile files = 1;
     */
    files: ProjectFile[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListProjectFilesResponse.
 * Use `create(ListProjectFilesResponseSchema)` to create a new message.
 */
export declare const ListProjectFilesResponseSchema: GenMessage<ListProjectFilesResponse>;
/**
 * Request for the content of a file.
 *
 * @generated from message sandboxd.v1.DownloadProjectFileRequest
 */
export type DownloadProjectFileRequest = Message<"sandboxd.v1.DownloadProjectFileRequest"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. The project.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
    /**
     * Required. Name of the file, as it was returned.
     *
     * @generated from field: string name = 3;
     */
    name: string;
};
/**
 * Describes the message sandboxd.v1.DownloadProjectFileRequest.
 * Use `create(DownloadProjectFileRequestSchema)` to create a new message.
 */
export declare const DownloadProjectFileRequestSchema: GenMessage<DownloadProjectFileRequest>;
/**
 * A part of a download.
 *
 * @generated from message sandboxd.v1.DownloadProjectFileResponse
 */
export type DownloadProjectFileResponse = Message<"sandboxd.v1.DownloadProjectFileResponse"> & {
    /**
     * The file first, then chunks.
     *
     * @generated from oneof sandboxd.v1.DownloadProjectFileResponse.part
     */
    part: {
        /**
         * The file that is sent.
         *
         * @generated from field: sandboxd.v1.ProjectFile file = 1;
         */
        value: ProjectFile;
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
 * Describes the message sandboxd.v1.DownloadProjectFileResponse.
 * Use `create(DownloadProjectFileResponseSchema)` to create a new message.
 */
export declare const DownloadProjectFileResponseSchema: GenMessage<DownloadProjectFileResponse>;
/**
 * Request to delete a file.
 *
 * @generated from message sandboxd.v1.DeleteProjectFileRequest
 */
export type DeleteProjectFileRequest = Message<"sandboxd.v1.DeleteProjectFileRequest"> & {
    /**
     * Required. User that the project belongs to.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Required. The project.
     *
     * @generated from field: string project_id = 2;
     */
    projectId: string;
    /**
     * Required. Name of the file, as it was returned.
     *
     * @generated from field: string name = 3;
     */
    name: string;
};
/**
 * Describes the message sandboxd.v1.DeleteProjectFileRequest.
 * Use `create(DeleteProjectFileRequestSchema)` to create a new message.
 */
export declare const DeleteProjectFileRequestSchema: GenMessage<DeleteProjectFileRequest>;
/**
 * The file that was deleted.
 *
 * @generated from message sandboxd.v1.DeleteProjectFileResponse
 */
export type DeleteProjectFileResponse = Message<"sandboxd.v1.DeleteProjectFileResponse"> & {
    /**
     * The file as it was.
     *
     * @generated from field: sandboxd.v1.ProjectFile file = 1;
     */
    file?: ProjectFile | undefined;
};
/**
 * Describes the message sandboxd.v1.DeleteProjectFileResponse.
 * Use `create(DeleteProjectFileResponseSchema)` to create a new message.
 */
export declare const DeleteProjectFileResponseSchema: GenMessage<DeleteProjectFileResponse>;
/**
 * What to do if a project has a file of that name with other content. Names that differ only in case are the same.
 *
 * @generated from enum sandboxd.v1.OnConflict
 */
export declare enum OnConflict {
    /**
     * Same as RENAME.
     *
     * @generated from enum value: ON_CONFLICT_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * Store the file under the next free number: `report (1).pdf`.
     *
     * @generated from enum value: ON_CONFLICT_RENAME = 1;
     */
    RENAME = 1,
    /**
     * Replace the content, in one step.
     *
     * @generated from enum value: ON_CONFLICT_REPLACE = 2;
     */
    REPLACE = 2,
    /**
     * Fail with FILE_EXISTS.
     *
     * @generated from enum value: ON_CONFLICT_FAIL = 3;
     */
    FAIL = 3
}
/**
 * Describes the enum sandboxd.v1.OnConflict.
 */
export declare const OnConflictSchema: GenEnum<OnConflict>;
/**
 * What became of an upload.
 *
 * @generated from enum sandboxd.v1.UploadOutcome
 */
export declare enum UploadOutcome {
    /**
     * Never sent.
     *
     * @generated from enum value: UPLOAD_OUTCOME_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The project has a new file.
     *
     * @generated from enum value: UPLOAD_OUTCOME_CREATED = 1;
     */
    CREATED = 1,
    /**
     * A file has new content.
     *
     * @generated from enum value: UPLOAD_OUTCOME_REPLACED = 2;
     */
    REPLACED = 2,
    /**
     * The project had this file with this content already.
     *
     * @generated from enum value: UPLOAD_OUTCOME_UNCHANGED = 3;
     */
    UNCHANGED = 3
}
/**
 * Describes the enum sandboxd.v1.UploadOutcome.
 */
export declare const UploadOutcomeSchema: GenEnum<UploadOutcome>;
/**
 * Keeps the files of projects. A project belongs to one user, and only tokens of that user, or of all users, can use it: with the token of
 * another user every call fails with NOT_PERMITTED, whether the project exists or not.
 *
 * A session that is opened with `project_id` sees the files read-only in `project_files/`, without a copy and without a wait, and also what
 * is added, replaced and deleted while it is open.
 *
 * @generated from service sandboxd.v1.ProjectService
 */
export declare const ProjectService: GenService<{
    /**
     * Creates a project; one that exists is not an error. Reasons: INVALID_REQUEST, PROJECT_FULL (the user has too many).
     *
     * @generated from rpc sandboxd.v1.ProjectService.CreateProject
     */
    createProject: {
        methodKind: "unary";
        input: typeof CreateProjectRequestSchema;
        output: typeof CreateProjectResponseSchema;
    };
    /**
     * Describes a project. Reasons: PROJECT_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.ProjectService.GetProject
     */
    getProject: {
        methodKind: "unary";
        input: typeof GetProjectRequestSchema;
        output: typeof GetProjectResponseSchema;
    };
    /**
     * Lists the projects of a user, sorted by id, in pages.
     *
     * @generated from rpc sandboxd.v1.ProjectService.ListProjects
     */
    listProjects: {
        methodKind: "unary";
        input: typeof ListProjectsRequestSchema;
        output: typeof ListProjectsResponseSchema;
    };
    /**
     * Deletes a project with all its files. Open sessions on it see an empty directory from then on. Reasons: PROJECT_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.ProjectService.DeleteProject
     */
    deleteProject: {
        methodKind: "unary";
        input: typeof DeleteProjectRequestSchema;
        output: typeof DeleteProjectResponseSchema;
    };
    /**
     * Stores a file. First message: the header; then the bytes in chunks. The file appears complete, or not at all. To send the same file
     * under the same name again changes nothing, so a retry is safe.
     * Reasons: PROJECT_NOT_FOUND, INVALID_REQUEST (the name cannot be used), FILE_TYPE_NOT_ALLOWED, FILE_EXISTS (with FAIL), FILE_TOO_LARGE,
     * PROJECT_FULL, CHECKSUM_MISMATCH, DISK_SPACE_LOW.
     *
     * @generated from rpc sandboxd.v1.ProjectService.UploadProjectFile
     */
    uploadProjectFile: {
        methodKind: "client_streaming";
        input: typeof UploadProjectFileRequestSchema;
        output: typeof UploadProjectFileResponseSchema;
    };
    /**
     * Lists the files of a project, sorted by name without regard to case, in pages. Reasons: PROJECT_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.ProjectService.ListProjectFiles
     */
    listProjectFiles: {
        methodKind: "unary";
        input: typeof ListProjectFilesRequestSchema;
        output: typeof ListProjectFilesResponseSchema;
    };
    /**
     * Reads a file. First response: its description; then the bytes in chunks. A file that is replaced or deleted meanwhile is still sent as
     * it was. Compare the bytes with `size_bytes` and `sha256` of the description. Reasons: PROJECT_NOT_FOUND, FILE_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.ProjectService.DownloadProjectFile
     */
    downloadProjectFile: {
        methodKind: "server_streaming";
        input: typeof DownloadProjectFileRequestSchema;
        output: typeof DownloadProjectFileResponseSchema;
    };
    /**
     * Deletes a file. Reasons: PROJECT_NOT_FOUND, FILE_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.ProjectService.DeleteProjectFile
     */
    deleteProjectFile: {
        methodKind: "unary";
        input: typeof DeleteProjectFileRequestSchema;
        output: typeof DeleteProjectFileResponseSchema;
    };
}>;
