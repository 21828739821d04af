"""The calls of FileService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import file_service_pb2 as pb

SERVICE = "FileService"

UPLOAD_FILE = Method(SERVICE, "UploadFile", pb.UploadFileRequest, pb.UploadFileResponse)
DOWNLOAD_FILE = Method(SERVICE, "DownloadFile", pb.DownloadFileRequest, pb.DownloadFileResponse)
LIST_FILES = Method(SERVICE, "ListFiles", pb.ListFilesRequest, pb.ListFilesResponse, True)
STAT_FILE = Method(SERVICE, "StatFile", pb.StatFileRequest, pb.StatFileResponse, True)
MAKE_DIRECTORY = Method(
    SERVICE, "MakeDirectory", pb.MakeDirectoryRequest, pb.MakeDirectoryResponse, True
)
MOVE_FILE = Method(SERVICE, "MoveFile", pb.MoveFileRequest, pb.MoveFileResponse)
REMOVE_FILE = Method(SERVICE, "RemoveFile", pb.RemoveFileRequest, pb.RemoveFileResponse)
READ_TEXT = Method(SERVICE, "ReadText", pb.ReadTextRequest, pb.ReadTextResponse, True)
EDIT_TEXT = Method(SERVICE, "EditText", pb.EditTextRequest, pb.EditTextResponse)
GREP_FILES = Method(SERVICE, "GrepFiles", pb.GrepFilesRequest, pb.GrepFilesResponse, True)
GLOB_FILES = Method(SERVICE, "GlobFiles", pb.GlobFilesRequest, pb.GlobFilesResponse, True)
WATCH_FILES = Method(SERVICE, "WatchFiles", pb.WatchFilesRequest, pb.WatchFilesResponse)
UPLOAD_TAR = Method(SERVICE, "UploadTar", pb.UploadTarRequest, pb.UploadTarResponse)
DOWNLOAD_TAR = Method(SERVICE, "DownloadTar", pb.DownloadTarRequest, pb.DownloadTarResponse)
