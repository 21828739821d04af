import type { GenEnum, GenFile, GenMessage } from "@bufbuild/protobuf/codegenv2";
import type { Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/files.proto.
 */
export declare const file_sandboxd_proto_v1_files: GenFile;
/**
 * A file, a directory or another named entry. Linux names are bytes. `path` shows them as text: bytes that are not UTF-8
 * and characters that are not printable are shown as `\xNN`, and `path_bytes` then has the exact bytes.
 *
 * @generated from message sandboxd.v1.FileEntry
 */
export type FileEntry = Message<"sandboxd.v1.FileEntry"> & {
    /**
     * Output only. The last part of the path, as text.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Output only. Path relative to the workspace, or absolute if the request named a path outside of it, as text; empty for the workspace
     * itself.
     *
     * @generated from field: string path = 2;
     */
    path: string;
    /**
     * Output only. Exact path if `path` is not exact; otherwise empty.
     *
     * @generated from field: bytes path_bytes = 3;
     */
    pathBytes: Uint8Array;
    /**
     * Output only. Type of the entry. Listings do not follow links.
     *
     * @generated from field: sandboxd.v1.FileType type = 4;
     */
    type: FileType;
    /**
     * Output only. Size of a regular file, or length of a link's target.
     *
     * @generated from field: uint64 size_bytes = 5;
     */
    sizeBytes: bigint;
    /**
     * Output only. When the content last changed.
     *
     * @generated from field: google.protobuf.Timestamp modify_time = 6;
     */
    modifyTime?: Timestamp | undefined;
    /**
     * Output only. `modify_time` as ISO 8601 text in UTC, for example `2026-03-01T12:00:00.250000Z`.
     *
     * @generated from field: string modified = 7;
     */
    modified: string;
    /**
     * Output only. Permission bits, for example 0644.
     *
     * @generated from field: uint32 mode = 8;
     */
    mode: number;
    /**
     * Output only. `mode` as `ls -l` shows it, for example `-rw-r--r--`.
     *
     * @generated from field: string permissions = 9;
     */
    permissions: string;
    /**
     * Output only. Target of a symbolic link exactly as stored in it, as text.
     *
     * @generated from field: string link_target = 10;
     */
    linkTarget: string;
    /**
     * Output only. Exact target if `link_target` is not exact; otherwise empty.
     *
     * @generated from field: bytes link_target_bytes = 11;
     */
    linkTargetBytes: Uint8Array;
};
/**
 * Describes the message sandboxd.v1.FileEntry.
 * Use `create(FileEntrySchema)` to create a new message.
 */
export declare const FileEntrySchema: GenMessage<FileEntry>;
/**
 * Limits of a workspace and how much of them is used.
 *
 * @generated from message sandboxd.v1.WorkspaceUsage
 */
export type WorkspaceUsage = Message<"sandboxd.v1.WorkspaceUsage"> & {
    /**
     * Output only. Bytes in use.
     *
     * @generated from field: uint64 used_bytes = 1;
     */
    usedBytes: bigint;
    /**
     * Output only. Bytes that the workspace can hold; the kernel enforces it.
     *
     * @generated from field: uint64 max_bytes = 2;
     */
    maxBytes: bigint;
    /**
     * Output only. Number of files and directories.
     *
     * @generated from field: uint64 used_files = 3;
     */
    usedFiles: bigint;
    /**
     * Output only. Files and directories that the workspace can hold; the kernel enforces it.
     *
     * @generated from field: uint64 max_files = 4;
     */
    maxFiles: bigint;
    /**
     * Output only. Most bytes of a single file; the kernel enforces it.
     *
     * @generated from field: uint64 max_file_bytes = 5;
     */
    maxFileBytes: bigint;
};
/**
 * Describes the message sandboxd.v1.WorkspaceUsage.
 * Use `create(WorkspaceUsageSchema)` to create a new message.
 */
export declare const WorkspaceUsageSchema: GenMessage<WorkspaceUsage>;
/**
 * A line that a search found.
 *
 * @generated from message sandboxd.v1.GrepMatch
 */
export type GrepMatch = Message<"sandboxd.v1.GrepMatch"> & {
    /**
     * Output only. Path of the file relative to the workspace, or absolute outside of it, as text.
     *
     * @generated from field: string path = 1;
     */
    path: string;
    /**
     * Output only. Exact path if `path` is not exact; otherwise empty.
     *
     * @generated from field: bytes path_bytes = 2;
     */
    pathBytes: Uint8Array;
    /**
     * Output only. Number of the line, counted from 1.
     *
     * @generated from field: uint64 line_number = 3;
     */
    lineNumber: bigint;
    /**
     * Output only. The line without its newline, at most 4 KiB of it around the match, invalid UTF-8 replaced.
     *
     * @generated from field: string line = 4;
     */
    line: string;
};
/**
 * Describes the message sandboxd.v1.GrepMatch.
 * Use `create(GrepMatchSchema)` to create a new message.
 */
export declare const GrepMatchSchema: GenMessage<GrepMatch>;
/**
 * A member of an archive that was left out.
 *
 * @generated from message sandboxd.v1.RefusedMember
 */
export type RefusedMember = Message<"sandboxd.v1.RefusedMember"> & {
    /**
     * Output only. Name of the member in the archive, as text.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Output only. Why it was left out, as a sentence.
     *
     * @generated from field: string why = 2;
     */
    why: string;
};
/**
 * Describes the message sandboxd.v1.RefusedMember.
 * Use `create(RefusedMemberSchema)` to create a new message.
 */
export declare const RefusedMemberSchema: GenMessage<RefusedMember>;
/**
 * Type of an entry.
 *
 * @generated from enum sandboxd.v1.FileType
 */
export declare enum FileType {
    /**
     * Never sent. In a filter: any type.
     *
     * @generated from enum value: FILE_TYPE_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * A regular file.
     *
     * @generated from enum value: FILE_TYPE_FILE = 1;
     */
    FILE = 1,
    /**
     * A directory.
     *
     * @generated from enum value: FILE_TYPE_DIRECTORY = 2;
     */
    DIRECTORY = 2,
    /**
     * A symbolic link.
     *
     * @generated from enum value: FILE_TYPE_SYMLINK = 3;
     */
    SYMLINK = 3,
    /**
     * A named pipe.
     *
     * @generated from enum value: FILE_TYPE_FIFO = 4;
     */
    FIFO = 4,
    /**
     * A unix socket.
     *
     * @generated from enum value: FILE_TYPE_SOCKET = 5;
     */
    SOCKET = 5,
    /**
     * A device, or anything else.
     *
     * @generated from enum value: FILE_TYPE_OTHER = 6;
     */
    OTHER = 6
}
/**
 * Describes the enum sandboxd.v1.FileType.
 */
export declare const FileTypeSchema: GenEnum<FileType>;
/**
 * Compression of an archive.
 *
 * @generated from enum sandboxd.v1.TarCompression
 */
export declare enum TarCompression {
    /**
     * Same as NONE.
     *
     * @generated from enum value: TAR_COMPRESSION_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * Plain tar.
     *
     * @generated from enum value: TAR_COMPRESSION_NONE = 1;
     */
    NONE = 1,
    /**
     * gzip.
     *
     * @generated from enum value: TAR_COMPRESSION_GZIP = 2;
     */
    GZIP = 2,
    /**
     * Zstandard.
     *
     * @generated from enum value: TAR_COMPRESSION_ZSTD = 3;
     */
    ZSTD = 3
}
/**
 * Describes the enum sandboxd.v1.TarCompression.
 */
export declare const TarCompressionSchema: GenEnum<TarCompression>;
