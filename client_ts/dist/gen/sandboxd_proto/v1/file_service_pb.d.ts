import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration } from "@bufbuild/protobuf/wkt";
import type { FileEntry, FileType, GrepMatch, RefusedMember, TarCompression, WorkspaceUsage } from "./files_pb.js";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/file_service.proto.
 */
export declare const file_sandboxd_proto_v1_file_service: GenFile;
/**
 * A part of an upload.
 *
 * @generated from message sandboxd.v1.UploadFileRequest
 */
export type UploadFileRequest = Message<"sandboxd.v1.UploadFileRequest"> & {
    /**
     * Required. The header in the first message, chunks in all others.
     *
     * @generated from oneof sandboxd.v1.UploadFileRequest.part
     */
    part: {
        /**
         * File to write.
         *
         * @generated from field: sandboxd.v1.UploadHeader header = 1;
         */
        value: UploadHeader;
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
 * Describes the message sandboxd.v1.UploadFileRequest.
 * Use `create(UploadFileRequestSchema)` to create a new message.
 */
export declare const UploadFileRequestSchema: GenMessage<UploadFileRequest>;
/**
 * File to write.
 *
 * @generated from message sandboxd.v1.UploadHeader
 */
export type UploadHeader = Message<"sandboxd.v1.UploadHeader"> & {
    /**
     * Required. Session to write in.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the file.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Permission bits; 0 means those of the file that is replaced, and 0644 for a new file. Set-user-ID, set-group-ID and sticky
     * bits are removed.
     *
     * @generated from field: uint32 mode = 4;
     */
    mode: number;
    /**
     * Optional. Size in bytes. If it is set, a file that cannot fit is refused at once, and one of another size is not written. An upload
     * with neither this nor `sha256` takes 50 ms longer, because the daemon waits to be sure that its stream did not break off.
     *
     * @generated from field: optional uint64 size_bytes = 5;
     */
    sizeBytes?: bigint | undefined;
    /**
     * Optional. SHA-256 of the content, 32 bytes; a file with other content is not written.
     *
     * @generated from field: bytes sha256 = 6;
     */
    sha256: Uint8Array;
    /**
     * Optional. What to do if something exists at the path; absent means REPLACE.
     *
     * @generated from field: sandboxd.v1.OverwritePolicy overwrite = 7;
     */
    overwrite: OverwritePolicy;
    /**
     * Optional. Create missing parent directories.
     *
     * @generated from field: bool make_parents = 8;
     */
    makeParents: boolean;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any.
     *
     * @generated from field: uint32 incarnation = 9;
     */
    incarnation: number;
};
/**
 * Describes the message sandboxd.v1.UploadHeader.
 * Use `create(UploadHeaderSchema)` to create a new message.
 */
export declare const UploadHeaderSchema: GenMessage<UploadHeader>;
/**
 * The file that was written.
 *
 * @generated from message sandboxd.v1.UploadFileResponse
 */
export type UploadFileResponse = Message<"sandboxd.v1.UploadFileResponse"> & {
    /**
     * The file.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 1;
     */
    entry?: FileEntry | undefined;
    /**
     * SHA-256 of the written bytes, 32 bytes.
     *
     * @generated from field: bytes sha256 = 2;
     */
    sha256: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.UploadFileResponse.
 * Use `create(UploadFileResponseSchema)` to create a new message.
 */
export declare const UploadFileResponseSchema: GenMessage<UploadFileResponse>;
/**
 * Request for a file.
 *
 * @generated from message sandboxd.v1.DownloadFileRequest
 */
export type DownloadFileRequest = Message<"sandboxd.v1.DownloadFileRequest"> & {
    /**
     * Required. Session to read from.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the file.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Position of the first byte to send.
     *
     * @generated from field: uint64 offset = 4;
     */
    offset: bigint;
    /**
     * Optional. Most bytes to send; 0 means up to the end.
     *
     * @generated from field: uint64 length = 5;
     */
    length: bigint;
};
/**
 * Describes the message sandboxd.v1.DownloadFileRequest.
 * Use `create(DownloadFileRequestSchema)` to create a new message.
 */
export declare const DownloadFileRequestSchema: GenMessage<DownloadFileRequest>;
/**
 * A part of a download.
 *
 * @generated from message sandboxd.v1.DownloadFileResponse
 */
export type DownloadFileResponse = Message<"sandboxd.v1.DownloadFileResponse"> & {
    /**
     * The entry first, then chunks, then the end.
     *
     * @generated from oneof sandboxd.v1.DownloadFileResponse.part
     */
    part: {
        /**
         * The file as it is at the start of the download.
         *
         * @generated from field: sandboxd.v1.FileEntry entry = 1;
         */
        value: FileEntry;
        case: "entry";
    } | {
        /**
         * Next bytes.
         *
         * @generated from field: bytes chunk = 2;
         */
        value: Uint8Array;
        case: "chunk";
    } | {
        /**
         * Everything has been sent.
         *
         * @generated from field: sandboxd.v1.DownloadEnd end = 3;
         */
        value: DownloadEnd;
        case: "end";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.DownloadFileResponse.
 * Use `create(DownloadFileResponseSchema)` to create a new message.
 */
export declare const DownloadFileResponseSchema: GenMessage<DownloadFileResponse>;
/**
 * The end of a download.
 *
 * @generated from message sandboxd.v1.DownloadEnd
 */
export type DownloadEnd = Message<"sandboxd.v1.DownloadEnd"> & {
    /**
     * Number of bytes sent.
     *
     * @generated from field: uint64 sent_bytes = 1;
     */
    sentBytes: bigint;
    /**
     * SHA-256 of the sent bytes, 32 bytes.
     *
     * @generated from field: bytes sha256 = 2;
     */
    sha256: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.DownloadEnd.
 * Use `create(DownloadEndSchema)` to create a new message.
 */
export declare const DownloadEndSchema: GenMessage<DownloadEnd>;
/**
 * Request for the entries of a directory.
 *
 * @generated from message sandboxd.v1.ListFilesRequest
 */
export type ListFilesRequest = Message<"sandboxd.v1.ListFilesRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Path of the directory; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Include everything below its directories.
     *
     * @generated from field: bool recursive = 4;
     */
    recursive: boolean;
    /**
     * Optional. Levels of directories to include: 1 is the directory alone, 2 includes its directories. 0 means 1, or all with `recursive`.
     *
     * @generated from field: uint32 depth = 7;
     */
    depth: number;
    /**
     * Optional. Entries per page, 1 to 10000; 0 means 1000.
     *
     * @generated from field: uint32 page_size = 5;
     */
    pageSize: number;
    /**
     * Optional. `next_page_token` of the previous page; empty means the first page.
     *
     * @generated from field: string page_token = 6;
     */
    pageToken: string;
};
/**
 * Describes the message sandboxd.v1.ListFilesRequest.
 * Use `create(ListFilesRequestSchema)` to create a new message.
 */
export declare const ListFilesRequestSchema: GenMessage<ListFilesRequest>;
/**
 * A page of entries.
 *
 * @generated from message sandboxd.v1.ListFilesResponse
 */
export type ListFilesResponse = Message<"sandboxd.v1.ListFilesResponse"> & {
    /**
     * The entries, sorted by the bytes of their paths.
     *
     * @generated from field: repeated sandboxd.v1.FileEntry entries = 1;
     */
    entries: FileEntry[];
    /**
     * Token of the next page; empty on the last page.
     *
     * @generated from field: string next_page_token = 2;
     */
    nextPageToken: string;
    /**
     * Number of regular files in the whole listing, not only on this page.
     *
     * @generated from field: uint64 total_files = 3;
     */
    totalFiles: bigint;
    /**
     * Total size of those files in bytes.
     *
     * @generated from field: uint64 total_bytes = 4;
     */
    totalBytes: bigint;
    /**
     * False if there were too many entries; the listing and its totals then cover only some of them.
     *
     * @generated from field: bool complete = 5;
     */
    complete: boolean;
    /**
     * What the whole workspace holds, and its limits.
     *
     * @generated from field: sandboxd.v1.WorkspaceUsage usage = 6;
     */
    usage?: WorkspaceUsage | undefined;
};
/**
 * Describes the message sandboxd.v1.ListFilesResponse.
 * Use `create(ListFilesResponseSchema)` to create a new message.
 */
export declare const ListFilesResponseSchema: GenMessage<ListFilesResponse>;
/**
 * Request for one entry.
 *
 * @generated from message sandboxd.v1.StatFileRequest
 */
export type StatFileRequest = Message<"sandboxd.v1.StatFileRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The path; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Describe the target of a link, not the link.
     *
     * @generated from field: bool follow_links = 4;
     */
    followLinks: boolean;
};
/**
 * Describes the message sandboxd.v1.StatFileRequest.
 * Use `create(StatFileRequestSchema)` to create a new message.
 */
export declare const StatFileRequestSchema: GenMessage<StatFileRequest>;
/**
 * One entry.
 *
 * @generated from message sandboxd.v1.StatFileResponse
 */
export type StatFileResponse = Message<"sandboxd.v1.StatFileResponse"> & {
    /**
     * The entry.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 1;
     */
    entry?: FileEntry | undefined;
};
/**
 * Describes the message sandboxd.v1.StatFileResponse.
 * Use `create(StatFileResponseSchema)` to create a new message.
 */
export declare const StatFileResponseSchema: GenMessage<StatFileResponse>;
/**
 * Request to create a directory.
 *
 * @generated from message sandboxd.v1.MakeDirectoryRequest
 */
export type MakeDirectoryRequest = Message<"sandboxd.v1.MakeDirectoryRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the directory.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Create missing parent directories.
     *
     * @generated from field: bool make_parents = 4;
     */
    makeParents: boolean;
    /**
     * Optional. Permission bits; 0 means 0755.
     *
     * @generated from field: uint32 mode = 5;
     */
    mode: number;
};
/**
 * Describes the message sandboxd.v1.MakeDirectoryRequest.
 * Use `create(MakeDirectoryRequestSchema)` to create a new message.
 */
export declare const MakeDirectoryRequestSchema: GenMessage<MakeDirectoryRequest>;
/**
 * The directory.
 *
 * @generated from message sandboxd.v1.MakeDirectoryResponse
 */
export type MakeDirectoryResponse = Message<"sandboxd.v1.MakeDirectoryResponse"> & {
    /**
     * The directory.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 1;
     */
    entry?: FileEntry | undefined;
    /**
     * False if the directory already existed.
     *
     * @generated from field: bool created = 2;
     */
    created: boolean;
};
/**
 * Describes the message sandboxd.v1.MakeDirectoryResponse.
 * Use `create(MakeDirectoryResponseSchema)` to create a new message.
 */
export declare const MakeDirectoryResponseSchema: GenMessage<MakeDirectoryResponse>;
/**
 * Request to move an entry.
 *
 * @generated from message sandboxd.v1.MoveFileRequest
 */
export type MoveFileRequest = Message<"sandboxd.v1.MoveFileRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Current path of the entry.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Required. New path of the entry itself, not the directory to put it into.
     *
     * @generated from field: string new_path = 4;
     */
    newPath: string;
    /**
     * Optional. Exact path, which replaces `new_path`.
     *
     * @generated from field: bytes new_path_bytes = 5;
     */
    newPathBytes: Uint8Array;
    /**
     * Optional. Replace an existing file; otherwise it is FILE_EXISTS. A directory is never replaced.
     *
     * @generated from field: bool replace = 6;
     */
    replace: boolean;
    /**
     * Optional. Create missing parent directories of the new path.
     *
     * @generated from field: bool make_parents = 7;
     */
    makeParents: boolean;
};
/**
 * Describes the message sandboxd.v1.MoveFileRequest.
 * Use `create(MoveFileRequestSchema)` to create a new message.
 */
export declare const MoveFileRequestSchema: GenMessage<MoveFileRequest>;
/**
 * The entry at its new path.
 *
 * @generated from message sandboxd.v1.MoveFileResponse
 */
export type MoveFileResponse = Message<"sandboxd.v1.MoveFileResponse"> & {
    /**
     * The entry.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 1;
     */
    entry?: FileEntry | undefined;
};
/**
 * Describes the message sandboxd.v1.MoveFileResponse.
 * Use `create(MoveFileResponseSchema)` to create a new message.
 */
export declare const MoveFileResponseSchema: GenMessage<MoveFileResponse>;
/**
 * Request to remove an entry.
 *
 * @generated from message sandboxd.v1.RemoveFileRequest
 */
export type RemoveFileRequest = Message<"sandboxd.v1.RemoveFileRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. The path.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Remove a directory with everything in it.
     *
     * @generated from field: bool recursive = 4;
     */
    recursive: boolean;
    /**
     * Optional. Succeed if nothing exists at the path.
     *
     * @generated from field: bool ignore_missing = 5;
     */
    ignoreMissing: boolean;
};
/**
 * Describes the message sandboxd.v1.RemoveFileRequest.
 * Use `create(RemoveFileRequestSchema)` to create a new message.
 */
export declare const RemoveFileRequestSchema: GenMessage<RemoveFileRequest>;
/**
 * Result of a removal.
 *
 * @generated from message sandboxd.v1.RemoveFileResponse
 */
export type RemoveFileResponse = Message<"sandboxd.v1.RemoveFileResponse"> & {
    /**
     * Number of removed entries, including directories.
     *
     * @generated from field: uint64 removed = 1;
     */
    removed: bigint;
};
/**
 * Describes the message sandboxd.v1.RemoveFileResponse.
 * Use `create(RemoveFileResponseSchema)` to create a new message.
 */
export declare const RemoveFileResponseSchema: GenMessage<RemoveFileResponse>;
/**
 * Request for lines of a text file.
 *
 * @generated from message sandboxd.v1.ReadTextRequest
 */
export type ReadTextRequest = Message<"sandboxd.v1.ReadTextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the file.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. First line to return, counted from 1; 0 means the first.
     *
     * @generated from field: uint64 first_line = 4;
     */
    firstLine: bigint;
    /**
     * Optional. Most lines to return; 0 means as many as fit.
     *
     * @generated from field: uint64 max_lines = 5;
     */
    maxLines: bigint;
    /**
     * Optional. Most bytes of text, up to 4 MiB; 0 means 256 KiB.
     *
     * @generated from field: uint32 max_bytes = 6;
     */
    maxBytes: number;
};
/**
 * Describes the message sandboxd.v1.ReadTextRequest.
 * Use `create(ReadTextRequestSchema)` to create a new message.
 */
export declare const ReadTextRequestSchema: GenMessage<ReadTextRequest>;
/**
 * Lines of a text file.
 *
 * @generated from message sandboxd.v1.ReadTextResponse
 */
export type ReadTextResponse = Message<"sandboxd.v1.ReadTextResponse"> & {
    /**
     * The lines with their newlines, invalid UTF-8 replaced.
     *
     * @generated from field: string text = 1;
     */
    text: string;
    /**
     * Number of the first line in `text`, counted from 1.
     *
     * @generated from field: uint64 first_line = 2;
     */
    firstLine: bigint;
    /**
     * Number of lines in `text`.
     *
     * @generated from field: uint64 line_count = 3;
     */
    lineCount: bigint;
    /**
     * Number of lines in the whole file.
     *
     * @generated from field: uint64 total_lines = 4;
     */
    totalLines: bigint;
    /**
     * True if the file has more lines after `text`, or if the last line is cut.
     *
     * @generated from field: bool truncated = 5;
     */
    truncated: boolean;
    /**
     * The file.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 6;
     */
    entry?: FileEntry | undefined;
    /**
     * True if bytes in `text` were replaced because they are not UTF-8; the file is then probably not text.
     *
     * @generated from field: bool invalid_utf8 = 7;
     */
    invalidUtf8: boolean;
};
/**
 * Describes the message sandboxd.v1.ReadTextResponse.
 * Use `create(ReadTextResponseSchema)` to create a new message.
 */
export declare const ReadTextResponseSchema: GenMessage<ReadTextResponse>;
/**
 * Request to write text.
 *
 * @generated from message sandboxd.v1.WriteTextRequest
 */
export type WriteTextRequest = Message<"sandboxd.v1.WriteTextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the file.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. The text, at most 4 MiB.
     *
     * @generated from field: string text = 4;
     */
    text: string;
    /**
     * Optional. First line to replace, counted from 1; the rest of the file is kept. 0 means that the whole file is replaced.
     *
     * @generated from field: uint64 first_line = 5;
     */
    firstLine: bigint;
    /**
     * Optional. With `first_line`: number of lines to replace; 0 means that the text is inserted before that line.
     *
     * @generated from field: uint64 line_count = 6;
     */
    lineCount: bigint;
    /**
     * Optional. Create missing parent directories.
     *
     * @generated from field: bool make_parents = 7;
     */
    makeParents: boolean;
    /**
     * Optional. What to do if something exists at the path; absent means REPLACE, which keeps the permission bits of the file.
     *
     * @generated from field: sandboxd.v1.OverwritePolicy overwrite = 8;
     */
    overwrite: OverwritePolicy;
};
/**
 * Describes the message sandboxd.v1.WriteTextRequest.
 * Use `create(WriteTextRequestSchema)` to create a new message.
 */
export declare const WriteTextRequestSchema: GenMessage<WriteTextRequest>;
/**
 * The file that was written.
 *
 * @generated from message sandboxd.v1.WriteTextResponse
 */
export type WriteTextResponse = Message<"sandboxd.v1.WriteTextResponse"> & {
    /**
     * The file.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 1;
     */
    entry?: FileEntry | undefined;
};
/**
 * Describes the message sandboxd.v1.WriteTextResponse.
 * Use `create(WriteTextResponseSchema)` to create a new message.
 */
export declare const WriteTextResponseSchema: GenMessage<WriteTextResponse>;
/**
 * Request to replace a piece of text.
 *
 * @generated from message sandboxd.v1.EditTextRequest
 */
export type EditTextRequest = Message<"sandboxd.v1.EditTextRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Required. Path of the file.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Required. The exact text to replace, including newlines.
     *
     * @generated from field: string old_text = 4;
     */
    oldText: string;
    /**
     * Optional. Replacement text; empty means that the text is deleted.
     *
     * @generated from field: string new_text = 5;
     */
    newText: string;
    /**
     * Optional. How often the text must occur; all occurrences are replaced. 0 means once.
     *
     * @generated from field: uint32 expected_count = 6;
     */
    expectedCount: number;
    /**
     * Optional. Replace every occurrence; there must be at least one.
     *
     * @generated from field: bool replace_all = 7;
     */
    replaceAll: boolean;
};
/**
 * Describes the message sandboxd.v1.EditTextRequest.
 * Use `create(EditTextRequestSchema)` to create a new message.
 */
export declare const EditTextRequestSchema: GenMessage<EditTextRequest>;
/**
 * Result of a replacement.
 *
 * @generated from message sandboxd.v1.EditTextResponse
 */
export type EditTextResponse = Message<"sandboxd.v1.EditTextResponse"> & {
    /**
     * Number of replaced occurrences.
     *
     * @generated from field: uint64 replaced = 1;
     */
    replaced: bigint;
    /**
     * The file.
     *
     * @generated from field: sandboxd.v1.FileEntry entry = 2;
     */
    entry?: FileEntry | undefined;
};
/**
 * Describes the message sandboxd.v1.EditTextResponse.
 * Use `create(EditTextResponseSchema)` to create a new message.
 */
export declare const EditTextResponseSchema: GenMessage<EditTextResponse>;
/**
 * Request to search files.
 *
 * @generated from message sandboxd.v1.GrepFilesRequest
 */
export type GrepFilesRequest = Message<"sandboxd.v1.GrepFilesRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. File or directory to search; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Required. Text or regular expression to search for, 1 to 1000 characters.
     *
     * @generated from field: string pattern = 4;
     */
    pattern: string;
    /**
     * Optional. Treat the pattern as a regular expression (Python syntax, matched against each line) instead of plain text.
     *
     * @generated from field: bool regex = 5;
     */
    regex: boolean;
    /**
     * Optional. Ignore case.
     *
     * @generated from field: bool ignore_case = 6;
     */
    ignoreCase: boolean;
    /**
     * Optional. Search only files whose path matches this pattern, as in GlobFiles; empty means all.
     *
     * @generated from field: string glob = 7;
     */
    glob: string;
    /**
     * Optional. Most matches to return, up to 10000; 0 means 1000.
     *
     * @generated from field: uint32 max_matches = 8;
     */
    maxMatches: number;
    /**
     * Optional. Names of directories that are not searched, at any depth, such as `.git`; `*`, `?` and `[a-z]` have their meaning. At most 32.
     *
     * @generated from field: repeated string exclude_dirs = 9;
     */
    excludeDirs: string[];
};
/**
 * Describes the message sandboxd.v1.GrepFilesRequest.
 * Use `create(GrepFilesRequestSchema)` to create a new message.
 */
export declare const GrepFilesRequestSchema: GenMessage<GrepFilesRequest>;
/**
 * Result of a search.
 *
 * @generated from message sandboxd.v1.GrepFilesResponse
 */
export type GrepFilesResponse = Message<"sandboxd.v1.GrepFilesResponse"> & {
    /**
     * The matches, by path and line.
     *
     * @generated from field: repeated sandboxd.v1.GrepMatch matches = 1;
     */
    matches: GrepMatch[];
    /**
     * True if everything was searched; false if matches, bytes or time reached their limit.
     *
     * @generated from field: bool complete = 2;
     */
    complete: boolean;
    /**
     * Number of files that were searched; files with NUL bytes at their beginning are skipped.
     *
     * @generated from field: uint64 searched_files = 3;
     */
    searchedFiles: bigint;
};
/**
 * Describes the message sandboxd.v1.GrepFilesResponse.
 * Use `create(GrepFilesResponseSchema)` to create a new message.
 */
export declare const GrepFilesResponseSchema: GenMessage<GrepFilesResponse>;
/**
 * Request to find entries by pattern.
 *
 * @generated from message sandboxd.v1.GlobFilesRequest
 */
export type GlobFilesRequest = Message<"sandboxd.v1.GlobFilesRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Directory to search; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Required. The pattern, relative to the directory: `*` and `?` within a name, `[a-z]`, `{py,md}` for alternatives (at most 256
     * combinations), `**` for any number of directories. A pattern without a slash matches names at any depth. `..` is refused.
     *
     * @generated from field: string pattern = 4;
     */
    pattern: string;
    /**
     * Optional. Most entries to return, up to 10000; 0 means 1000.
     *
     * @generated from field: uint32 max_entries = 5;
     */
    maxEntries: number;
    /**
     * Optional. Types of the entries to return; none means all.
     *
     * @generated from field: repeated sandboxd.v1.FileType types = 6;
     */
    types: FileType[];
    /**
     * Optional. As in a shell, only a dot in the pattern matches the dot at the beginning of a hidden name.
     *
     * @generated from field: bool skip_hidden = 7;
     */
    skipHidden: boolean;
    /**
     * Optional. Names of directories that are neither returned nor searched, as in GrepFiles.
     *
     * @generated from field: repeated string exclude_dirs = 8;
     */
    excludeDirs: string[];
};
/**
 * Describes the message sandboxd.v1.GlobFilesRequest.
 * Use `create(GlobFilesRequestSchema)` to create a new message.
 */
export declare const GlobFilesRequestSchema: GenMessage<GlobFilesRequest>;
/**
 * Result of a search.
 *
 * @generated from message sandboxd.v1.GlobFilesResponse
 */
export type GlobFilesResponse = Message<"sandboxd.v1.GlobFilesResponse"> & {
    /**
     * The entries, sorted by the bytes of their paths.
     *
     * @generated from field: repeated sandboxd.v1.FileEntry entries = 1;
     */
    entries: FileEntry[];
    /**
     * True if these are all matching entries.
     *
     * @generated from field: bool complete = 2;
     */
    complete: boolean;
};
/**
 * Describes the message sandboxd.v1.GlobFilesResponse.
 * Use `create(GlobFilesResponseSchema)` to create a new message.
 */
export declare const GlobFilesResponseSchema: GenMessage<GlobFilesResponse>;
/**
 * Request to watch for changes.
 *
 * @generated from message sandboxd.v1.WatchFilesRequest
 */
export type WatchFilesRequest = Message<"sandboxd.v1.WatchFilesRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Directory to watch; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Include everything below its directories, also directories created later.
     *
     * @generated from field: bool recursive = 4;
     */
    recursive: boolean;
    /**
     * Optional. How long rapid changes of one file are collected; absent means 50 ms, at most 10 s.
     *
     * @generated from field: google.protobuf.Duration gather = 5;
     */
    gather?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.WatchFilesRequest.
 * Use `create(WatchFilesRequestSchema)` to create a new message.
 */
export declare const WatchFilesRequestSchema: GenMessage<WatchFilesRequest>;
/**
 * A batch of changes.
 *
 * @generated from message sandboxd.v1.WatchFilesResponse
 */
export type WatchFilesResponse = Message<"sandboxd.v1.WatchFilesResponse"> & {
    /**
     * True in the first response: changes from now on are reported.
     *
     * @generated from field: bool watching = 1;
     */
    watching: boolean;
    /**
     * The changes, in order.
     *
     * @generated from field: repeated sandboxd.v1.FileChange changes = 2;
     */
    changes: FileChange[];
    /**
     * True if there were too many changes: some between the previous response and this one may be missing. List the files again.
     *
     * @generated from field: bool overflow = 3;
     */
    overflow: boolean;
};
/**
 * Describes the message sandboxd.v1.WatchFilesResponse.
 * Use `create(WatchFilesResponseSchema)` to create a new message.
 */
export declare const WatchFilesResponseSchema: GenMessage<WatchFilesResponse>;
/**
 * A change of one entry.
 *
 * @generated from message sandboxd.v1.FileChange
 */
export type FileChange = Message<"sandboxd.v1.FileChange"> & {
    /**
     * Kind of change.
     *
     * @generated from field: sandboxd.v1.FileChangeKind kind = 1;
     */
    kind: FileChangeKind;
    /**
     * Path relative to the workspace, or absolute if the watched directory is outside of it, as text; for a move, the new path.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Exact path if `path` is not exact; otherwise empty.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * For a move: the old path, as text.
     *
     * @generated from field: string old_path = 4;
     */
    oldPath: string;
    /**
     * Exact old path if `old_path` is not exact; otherwise empty.
     *
     * @generated from field: bytes old_path_bytes = 5;
     */
    oldPathBytes: Uint8Array;
    /**
     * True if the entry is a directory.
     *
     * @generated from field: bool is_directory = 6;
     */
    isDirectory: boolean;
};
/**
 * Describes the message sandboxd.v1.FileChange.
 * Use `create(FileChangeSchema)` to create a new message.
 */
export declare const FileChangeSchema: GenMessage<FileChange>;
/**
 * A part of an archive.
 *
 * @generated from message sandboxd.v1.UploadTarRequest
 */
export type UploadTarRequest = Message<"sandboxd.v1.UploadTarRequest"> & {
    /**
     * Required. The header in the first message, chunks in all others.
     *
     * @generated from oneof sandboxd.v1.UploadTarRequest.part
     */
    part: {
        /**
         * Where to extract the archive.
         *
         * @generated from field: sandboxd.v1.UploadTarHeader header = 1;
         */
        value: UploadTarHeader;
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
 * Describes the message sandboxd.v1.UploadTarRequest.
 * Use `create(UploadTarRequestSchema)` to create a new message.
 */
export declare const UploadTarRequestSchema: GenMessage<UploadTarRequest>;
/**
 * Where to extract an archive.
 *
 * @generated from message sandboxd.v1.UploadTarHeader
 */
export type UploadTarHeader = Message<"sandboxd.v1.UploadTarHeader"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. Directory to extract into, created if it is missing; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Compression of the bytes; absent means none.
     *
     * @generated from field: sandboxd.v1.TarCompression compression = 4;
     */
    compression: TarCompression;
    /**
     * Optional. What to do with members that already exist; absent means REPLACE. With FAIL they are refused and reported.
     *
     * @generated from field: sandboxd.v1.OverwritePolicy overwrite = 5;
     */
    overwrite: OverwritePolicy;
    /**
     * Optional. Fail with SESSION_RECREATED unless the session is on this incarnation; 0 means any.
     *
     * @generated from field: uint32 incarnation = 6;
     */
    incarnation: number;
};
/**
 * Describes the message sandboxd.v1.UploadTarHeader.
 * Use `create(UploadTarHeaderSchema)` to create a new message.
 */
export declare const UploadTarHeaderSchema: GenMessage<UploadTarHeader>;
/**
 * Result of an extraction.
 *
 * @generated from message sandboxd.v1.UploadTarResponse
 */
export type UploadTarResponse = Message<"sandboxd.v1.UploadTarResponse"> & {
    /**
     * Number of extracted files, directories and links.
     *
     * @generated from field: uint64 extracted = 1;
     */
    extracted: bigint;
    /**
     * Total size of the extracted files in bytes.
     *
     * @generated from field: uint64 extracted_bytes = 2;
     */
    extractedBytes: bigint;
    /**
     * Members that were refused, at most the first 1000.
     *
     * @generated from field: repeated sandboxd.v1.RefusedMember refused = 3;
     */
    refused: RefusedMember[];
    /**
     * Number of all refused members.
     *
     * @generated from field: uint64 refused_count = 4;
     */
    refusedCount: bigint;
};
/**
 * Describes the message sandboxd.v1.UploadTarResponse.
 * Use `create(UploadTarResponseSchema)` to create a new message.
 */
export declare const UploadTarResponseSchema: GenMessage<UploadTarResponse>;
/**
 * Request for a directory as an archive.
 *
 * @generated from message sandboxd.v1.DownloadTarRequest
 */
export type DownloadTarRequest = Message<"sandboxd.v1.DownloadTarRequest"> & {
    /**
     * Required. The session.
     *
     * @generated from field: string session_id = 1;
     */
    sessionId: string;
    /**
     * Optional. The directory; empty means the workspace.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Optional. Exact path, which replaces `path`.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Optional. Compression to use; absent means none.
     *
     * @generated from field: sandboxd.v1.TarCompression compression = 4;
     */
    compression: TarCompression;
};
/**
 * Describes the message sandboxd.v1.DownloadTarRequest.
 * Use `create(DownloadTarRequestSchema)` to create a new message.
 */
export declare const DownloadTarRequestSchema: GenMessage<DownloadTarRequest>;
/**
 * A part of an archive.
 *
 * @generated from message sandboxd.v1.DownloadTarResponse
 */
export type DownloadTarResponse = Message<"sandboxd.v1.DownloadTarResponse"> & {
    /**
     * Chunks, then the end.
     *
     * @generated from oneof sandboxd.v1.DownloadTarResponse.part
     */
    part: {
        /**
         * Next bytes.
         *
         * @generated from field: bytes chunk = 1;
         */
        value: Uint8Array;
        case: "chunk";
    } | {
        /**
         * Everything has been sent.
         *
         * @generated from field: sandboxd.v1.DownloadTarEnd end = 2;
         */
        value: DownloadTarEnd;
        case: "end";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.DownloadTarResponse.
 * Use `create(DownloadTarResponseSchema)` to create a new message.
 */
export declare const DownloadTarResponseSchema: GenMessage<DownloadTarResponse>;
/**
 * The end of an archive.
 *
 * @generated from message sandboxd.v1.DownloadTarEnd
 */
export type DownloadTarEnd = Message<"sandboxd.v1.DownloadTarEnd"> & {
    /**
     * Number of members in the archive.
     *
     * @generated from field: uint64 members = 1;
     */
    members: bigint;
    /**
     * Entries that were left out: sockets, devices, files that could not be read or that changed while they were read; at most the first 1000.
     *
     * @generated from field: repeated sandboxd.v1.RefusedMember skipped = 2;
     */
    skipped: RefusedMember[];
    /**
     * Number of all entries that were left out.
     *
     * @generated from field: uint64 skipped_count = 3;
     */
    skippedCount: bigint;
};
/**
 * Describes the message sandboxd.v1.DownloadTarEnd.
 * Use `create(DownloadTarEndSchema)` to create a new message.
 */
export declare const DownloadTarEndSchema: GenMessage<DownloadTarEnd>;
/**
 * What to do if something exists at the path of an upload.
 *
 * @generated from enum sandboxd.v1.OverwritePolicy
 */
export declare enum OverwritePolicy {
    /**
     * Same as REPLACE.
     *
     * @generated from enum value: OVERWRITE_POLICY_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * Replace a regular file; other names of the same file keep the old content. A link is followed and stays.
     *
     * @generated from enum value: OVERWRITE_POLICY_REPLACE = 1;
     */
    REPLACE = 1,
    /**
     * Fail with FILE_EXISTS, also if it is a link.
     *
     * @generated from enum value: OVERWRITE_POLICY_FAIL = 2;
     */
    FAIL = 2
}
/**
 * Describes the enum sandboxd.v1.OverwritePolicy.
 */
export declare const OverwritePolicySchema: GenEnum<OverwritePolicy>;
/**
 * Kind of change to an entry.
 *
 * @generated from enum sandboxd.v1.FileChangeKind
 */
export declare enum FileChangeKind {
    /**
     * Never sent.
     *
     * @generated from enum value: FILE_CHANGE_KIND_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The entry is new, or was moved here from elsewhere.
     *
     * @generated from enum value: FILE_CHANGE_KIND_CREATED = 1;
     */
    CREATED = 1,
    /**
     * Content or permissions of the entry changed.
     *
     * @generated from enum value: FILE_CHANGE_KIND_MODIFIED = 2;
     */
    MODIFIED = 2,
    /**
     * The entry was removed, or moved elsewhere.
     *
     * @generated from enum value: FILE_CHANGE_KIND_REMOVED = 3;
     */
    REMOVED = 3,
    /**
     * The entry was moved within the watched directory.
     *
     * @generated from enum value: FILE_CHANGE_KIND_MOVED = 4;
     */
    MOVED = 4
}
/**
 * Describes the enum sandboxd.v1.FileChangeKind.
 */
export declare const FileChangeKindSchema: GenEnum<FileChangeKind>;
/**
 * Transfers, changes and inspects files of sessions. Everything happens inside the sandbox, with the rights of its commands: the daemon
 * opens no path that a command can redirect.
 *
 * Paths are relative to the workspace or absolute (`data.json` and `/workspace/data.json` are the same file), at most 4095 bytes, without
 * `..`. A request has `path` as text; `path_bytes`, for names that are not UTF-8, replaces it. Symbolic links in a path of the workspace
 * are followed as long as they stay in the workspace (OUTSIDE_WORKSPACE).
 * These calls can change `project_files/`; commands can only read it. In a session with a project it belongs to the project, and these
 * calls cannot change it either: PROTECTED_PATH.
 *
 * Absolute paths outside of the workspace lead wherever commands can look: `/tmp` and `/var/tmp` can be written, the rest is read-only
 * (PROTECTED_PATH). Only regular files are read, and what the kernel makes up in `/proc` and `/sys` up to 4 MiB. The processes and files of
 * sandboxd itself are refused (PROTECTED_PATH). Walks from above leave out `/proc`, `/sys` and `/dev`. The limit of file sizes holds there
 * too. Entries then have absolute paths.
 *
 * Every call counts as use of the session. It fails with SESSION_NOT_FOUND, SESSION_EXPIRED, SESSION_CLOSED or SANDBOX_LOST if the session
 * is not active, with INVALID_REQUEST if a path is malformed, and with FILE_BUSY if too many file operations of the session run at the same
 * time.
 *
 * @generated from service sandboxd.v1.FileService
 */
export declare const FileService: GenService<{
    /**
     * Writes a file. First message: the header; then the bytes in chunks. The complete file appears under its name when the stream has ended
     * successfully; otherwise nothing appears. Where possible, an upload is refused before its bytes are sent. A link at the path is followed:
     * its target is written. A file that commands are not permitted to write is not replaced (FILE_NOT_PERMITTED).
     * Reasons: FILE_EXISTS, NOT_A_FILE, FILE_NOT_FOUND (of a parent), FILE_TOO_LARGE, WORKSPACE_FULL, CHECKSUM_MISMATCH.
     *
     * @generated from rpc sandboxd.v1.FileService.UploadFile
     */
    uploadFile: {
        methodKind: "client_streaming";
        input: typeof UploadFileRequestSchema;
        output: typeof UploadFileResponseSchema;
    };
    /**
     * Reads a file. First response: the entry; then the bytes in chunks; last response: the checksum of the sent bytes.
     * Only regular files; anything else is refused at once. A file that grows during the download is sent up to its initial size.
     * Reasons: FILE_NOT_FOUND, NOT_A_FILE, FILE_CHANGED (it became shorter).
     *
     * @generated from rpc sandboxd.v1.FileService.DownloadFile
     */
    downloadFile: {
        methodKind: "server_streaming";
        input: typeof DownloadFileRequestSchema;
        output: typeof DownloadFileResponseSchema;
    };
    /**
     * Lists a directory, sorted by the bytes of the path, in pages. Reasons: FILE_NOT_FOUND, NOT_A_DIRECTORY.
     *
     * @generated from rpc sandboxd.v1.FileService.ListFiles
     */
    listFiles: {
        methodKind: "unary";
        input: typeof ListFilesRequestSchema;
        output: typeof ListFilesResponseSchema;
    };
    /**
     * Describes one entry. Reasons: FILE_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.FileService.StatFile
     */
    statFile: {
        methodKind: "unary";
        input: typeof StatFileRequestSchema;
        output: typeof StatFileResponseSchema;
    };
    /**
     * Creates a directory; an existing one is not an error. Reasons: FILE_EXISTS (it is not a directory), FILE_NOT_FOUND, WORKSPACE_FULL.
     *
     * @generated from rpc sandboxd.v1.FileService.MakeDirectory
     */
    makeDirectory: {
        methodKind: "unary";
        input: typeof MakeDirectoryRequestSchema;
        output: typeof MakeDirectoryResponseSchema;
    };
    /**
     * Moves or renames an entry, in one step. Reasons: FILE_NOT_FOUND (of the entry, or of a parent of the new path), FILE_EXISTS,
     * NOT_A_DIRECTORY, PROTECTED_PATH (also for a move between project_files/ and the rest, or to another filesystem).
     *
     * @generated from rpc sandboxd.v1.FileService.MoveFile
     */
    moveFile: {
        methodKind: "unary";
        input: typeof MoveFileRequestSchema;
        output: typeof MoveFileResponseSchema;
    };
    /**
     * Removes an entry. A link is removed, not its target. Reasons: FILE_NOT_FOUND, DIRECTORY_NOT_EMPTY, PROTECTED_PATH.
     *
     * @generated from rpc sandboxd.v1.FileService.RemoveFile
     */
    removeFile: {
        methodKind: "unary";
        input: typeof RemoveFileRequestSchema;
        output: typeof RemoveFileResponseSchema;
    };
    /**
     * Reads lines of a text file. Reasons: FILE_NOT_FOUND, NOT_A_FILE.
     *
     * @generated from rpc sandboxd.v1.FileService.ReadText
     */
    readText: {
        methodKind: "unary";
        input: typeof ReadTextRequestSchema;
        output: typeof ReadTextResponseSchema;
    };
    /**
     * Writes a text file, or some of its lines, atomically as UploadFile does. Reasons as for UploadFile.
     *
     * @generated from rpc sandboxd.v1.FileService.WriteText
     */
    writeText: {
        methodKind: "unary";
        input: typeof WriteTextRequestSchema;
        output: typeof WriteTextResponseSchema;
    };
    /**
     * Replaces an exact piece of text, atomically. Reasons: FILE_NOT_FOUND, NOT_A_FILE, TEXT_NOT_FOUND (also if it does not occur as often
     * as expected), FILE_TOO_LARGE.
     *
     * @generated from rpc sandboxd.v1.FileService.EditText
     */
    editText: {
        methodKind: "unary";
        input: typeof EditTextRequestSchema;
        output: typeof EditTextResponseSchema;
    };
    /**
     * Finds lines in files. The work is bounded: `complete` says whether everything was searched. Reasons: FILE_NOT_FOUND.
     *
     * @generated from rpc sandboxd.v1.FileService.GrepFiles
     */
    grepFiles: {
        methodKind: "unary";
        input: typeof GrepFilesRequestSchema;
        output: typeof GrepFilesResponseSchema;
    };
    /**
     * Finds entries by pattern. The work is bounded: `complete` says whether everything was searched. Reasons: FILE_NOT_FOUND, NOT_A_DIRECTORY.
     *
     * @generated from rpc sandboxd.v1.FileService.GlobFiles
     */
    globFiles: {
        methodKind: "unary";
        input: typeof GlobFilesRequestSchema;
        output: typeof GlobFilesResponseSchema;
    };
    /**
     * Reports changes below a directory as they happen, until the caller disconnects. First response: `watching`; from then on no change is
     * missed without an `overflow`. Rapid changes of one file are reported as one. Reasons: FILE_NOT_FOUND, NOT_A_DIRECTORY.
     *
     * @generated from rpc sandboxd.v1.FileService.WatchFiles
     */
    watchFiles: {
        methodKind: "server_streaming";
        input: typeof WatchFilesRequestSchema;
        output: typeof WatchFilesResponseSchema;
    };
    /**
     * Extracts an archive into a directory. First message: the header; then its bytes. It is extracted inside the sandbox, member by
     * member. Members that would leave the directory, devices and pipes are refused and reported. Extracted members stay even if the
     * stream breaks off. Reasons: FILE_NOT_FOUND, NOT_A_DIRECTORY, INVALID_ARCHIVE, FILE_TOO_LARGE, WORKSPACE_FULL.
     *
     * @generated from rpc sandboxd.v1.FileService.UploadTar
     */
    uploadTar: {
        methodKind: "client_streaming";
        input: typeof UploadTarRequestSchema;
        output: typeof UploadTarResponseSchema;
    };
    /**
     * Streams a directory as an archive that preserves names, modes, times and links. Reasons: FILE_NOT_FOUND, NOT_A_DIRECTORY.
     *
     * @generated from rpc sandboxd.v1.FileService.DownloadTar
     */
    downloadTar: {
        methodKind: "server_streaming";
        input: typeof DownloadTarRequestSchema;
        output: typeof DownloadTarResponseSchema;
    };
}>;
