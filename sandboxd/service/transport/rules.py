"""Scopes that may call each method. The daemon does not start if a method is missing here.

Independently of these rules, a caller sees only the sessions and projects of its user.
"""

from __future__ import annotations

from collections.abc import Mapping, Set

from sandboxd.access import Scope

LOOK: Set[Scope] = frozenset({Scope.USER, Scope.READ_ONLY, Scope.ADMIN})
USE: Set[Scope] = frozenset({Scope.USER, Scope.ADMIN})
OVERSEE: Set[Scope] = frozenset({Scope.READ_ONLY, Scope.ADMIN})
MANAGE: Set[Scope] = frozenset({Scope.ADMIN})

RULES: Mapping[str, Set[Scope]] = {
    "sandboxd.v1.SessionService.OpenSession": USE,
    "sandboxd.v1.SessionService.GetSession": LOOK,
    "sandboxd.v1.SessionService.ListSessions": LOOK,
    "sandboxd.v1.SessionService.TouchSession": USE,
    "sandboxd.v1.SessionService.UpdateSession": USE,
    "sandboxd.v1.SessionService.CloseSession": USE,
    "sandboxd.v1.SessionService.ResetSession": USE,
    "sandboxd.v1.SessionService.WhoAmI": LOOK,
    "sandboxd.v1.SessionService.CreateConsoleLink": LOOK,
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
    "sandboxd.v1.CodeService.RunCode": USE,
    "sandboxd.v1.CodeService.StreamCode": USE,
    "sandboxd.v1.CodeService.StartCode": USE,
    "sandboxd.v1.CodeService.GetCodeRun": USE,
    "sandboxd.v1.CodeService.StepThrough": USE,
    "sandboxd.v1.CodeService.DebugCode": USE,
    "sandboxd.v1.CodeService.CreateContext": USE,
    "sandboxd.v1.CodeService.ListContexts": USE,
    "sandboxd.v1.CodeService.GetContextState": USE,
    "sandboxd.v1.CodeService.InterruptContext": USE,
    "sandboxd.v1.CodeService.RestartContext": USE,
    "sandboxd.v1.CodeService.DeleteContext": USE,
    "sandboxd.v1.CodeService.QuickExecute": USE,
    "sandboxd.v1.CodeService.CheckCode": USE,
    "sandboxd.v1.CodeService.ListFunctions": USE,
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
    "sandboxd.v1.SnapshotService.CreateSnapshot": USE,
    "sandboxd.v1.SnapshotService.ListSnapshots": LOOK,
    "sandboxd.v1.SnapshotService.GetSnapshot": LOOK,
    "sandboxd.v1.SnapshotService.DiffSnapshots": USE,
    "sandboxd.v1.SnapshotService.ReadSnapshotFile": USE,
    "sandboxd.v1.SnapshotService.RestoreSession": USE,
    "sandboxd.v1.SnapshotService.ForkSession": USE,
    "sandboxd.v1.SnapshotService.ParkSession": USE,
    "sandboxd.v1.SnapshotService.DeleteSnapshot": USE,
    "sandboxd.v1.SnapshotService.ExportSnapshot": USE,
    "sandboxd.v1.SnapshotService.ImportSnapshot": USE,
    "sandboxd.v1.SnapshotService.VerifySnapshots": MANAGE,
    "sandboxd.v1.EnvironmentService.ListEnvironments": LOOK,
    "sandboxd.v1.EnvironmentService.GetEnvironment": LOOK,
    "sandboxd.v1.EnvironmentService.BuildEnvironment": MANAGE,
    "sandboxd.v1.EnvironmentService.DeleteEnvironment": MANAGE,
    "sandboxd.v1.EnvironmentService.EnsurePackages": USE,
    "sandboxd.v1.DataService.ListDataSources": LOOK,
    "sandboxd.v1.DataService.Query": USE,
    "sandboxd.v1.DataService.GetSchema": USE,
    "sandboxd.v1.DataService.ListQueries": LOOK,
    "sandboxd.v1.DoorService.GetEgress": LOOK,
    "sandboxd.v1.DoorService.SetEgress": USE,
    "sandboxd.v1.DoorService.ListDoors": LOOK,
    "sandboxd.v1.PortService.ListPorts": USE,
    "sandboxd.v1.PortService.ForwardPort": USE,
    "sandboxd.v1.PortService.CreatePreview": USE,
    "sandboxd.v1.PortService.DeletePreviews": USE,
    "sandboxd.v1.ClusterService.ListWorkers": OVERSEE,
    "sandboxd.v1.ClusterService.FindSession": OVERSEE,
    "sandboxd.v1.ClusterService.DrainWorker": MANAGE,
    "sandboxd.v1.AdminService.GetStatus": OVERSEE,
    "sandboxd.v1.AdminService.GetStatistics": OVERSEE,
    "sandboxd.v1.AdminService.WatchFigures": OVERSEE,
    "sandboxd.v1.AdminService.ListAudit": MANAGE,
    "sandboxd.v1.AdminService.VerifyAudit": MANAGE,
}
"""Allowed scopes by full name of the method."""

PASSIVE_METHODS: Set[str] = frozenset(
    {
        *("DownloadFile", "ListFiles", "StatFile", "ReadText", "GrepFiles", "GlobFiles"),
        *("WatchFiles", "DownloadTar"),
    }
)
"""Methods that only read: a call of them that is marked as passive is not use of its session."""
