"""Scopes that may call each method. The daemon does not start if a method is missing here.

Independently of these rules, a caller sees only the sessions and projects of its user.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from sandboxd.access import Scope

LOOK: Set[Scope] = frozenset({Scope.USER, Scope.READ_ONLY, Scope.ADMIN})
USE: Set[Scope] = frozenset({Scope.USER, Scope.ADMIN})
OVERSEE: Set[Scope] = frozenset({Scope.READ_ONLY, Scope.ADMIN})

RULES: Mapping[str, Set[Scope]] = {
    "sandboxd.v1.SessionService.OpenSession": USE,
    "sandboxd.v1.SessionService.GetSession": LOOK,
    "sandboxd.v1.SessionService.ListSessions": LOOK,
    "sandboxd.v1.SessionService.TouchSession": USE,
    "sandboxd.v1.SessionService.UpdateSession": USE,
    "sandboxd.v1.SessionService.CloseSession": USE,
    "sandboxd.v1.SessionService.ResetSession": USE,
    "sandboxd.v1.ExecService.Exec": USE,
    "sandboxd.v1.ExecService.Run": USE,
    "sandboxd.v1.ExecService.StartExec": USE,
    "sandboxd.v1.ExecService.AttachExec": USE,
    "sandboxd.v1.ExecService.WaitExec": USE,
    "sandboxd.v1.ExecService.ListExecs": LOOK,
    "sandboxd.v1.ExecService.ListExecutions": LOOK,
    "sandboxd.v1.ExecService.SignalExec": USE,
    "sandboxd.v1.ExecService.WriteStdin": USE,
    "sandboxd.v1.ExecService.ResizeExec": USE,
    "sandboxd.v1.ExecService.ReadOutput": USE,
    "sandboxd.v1.ExecService.SearchOutput": USE,
    "sandboxd.v1.ExecService.PreviewOutput": USE,
    "sandboxd.v1.FileService.UploadFile": USE,
    "sandboxd.v1.FileService.DownloadFile": USE,
    "sandboxd.v1.FileService.ListFiles": USE,
    "sandboxd.v1.FileService.StatFile": USE,
    "sandboxd.v1.FileService.MakeDirectory": USE,
    "sandboxd.v1.FileService.MoveFile": USE,
    "sandboxd.v1.FileService.RemoveFile": USE,
    "sandboxd.v1.FileService.ReadText": USE,
    "sandboxd.v1.FileService.WriteText": USE,
    "sandboxd.v1.FileService.EditText": USE,
    "sandboxd.v1.FileService.GrepFiles": USE,
    "sandboxd.v1.FileService.GlobFiles": USE,
    "sandboxd.v1.FileService.WatchFiles": USE,
    "sandboxd.v1.FileService.UploadTar": USE,
    "sandboxd.v1.FileService.DownloadTar": USE,
    "sandboxd.v1.ProjectService.CreateProject": USE,
    "sandboxd.v1.ProjectService.GetProject": LOOK,
    "sandboxd.v1.ProjectService.ListProjects": LOOK,
    "sandboxd.v1.ProjectService.DeleteProject": USE,
    "sandboxd.v1.ProjectService.UploadProjectFile": USE,
    "sandboxd.v1.ProjectService.ListProjectFiles": USE,
    "sandboxd.v1.ProjectService.DownloadProjectFile": USE,
    "sandboxd.v1.ProjectService.DeleteProjectFile": USE,
    "sandboxd.v1.AdminService.GetStatus": OVERSEE,
    "sandboxd.v1.AdminService.GetStatistics": OVERSEE,
}
"""Allowed scopes by full name of the method."""
