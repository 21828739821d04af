"""Projects: files that users keep beyond sessions."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO

from sandboxd_client.arguments import checked
from sandboxd_client.cancellation import run_or_undo
from sandboxd_client.connection import Connection
from sandboxd_client.errors import ChecksumMismatchError
from sandboxd_client.files import closed, local_target, removed, unfinished_beside
from sandboxd_client.methods.projects import (
    CREATE_PROJECT,
    DELETE_PROJECT,
    DELETE_PROJECT_FILE,
    DOWNLOAD_PROJECT_FILE,
    GET_PROJECT,
    LIST_PROJECT_FILES,
    LIST_PROJECTS,
    UPLOAD_PROJECT_FILE,
)
from sandboxd_client.results import (
    OnConflict,
    ProgressCallback,
    ProjectFileInfo,
    ProjectInfo,
    ProjectUsage,
)
from sandboxd_client.transfers import Progress, Tries, send_content, until_through
from sandboxd_proto.v1 import project_service_pb2 as pb

_ON_CONFLICT = {
    "rename": pb.ON_CONFLICT_RENAME,
    "replace": pb.ON_CONFLICT_REPLACE,
    "fail": pb.ON_CONFLICT_FAIL,
}


@checked
class AsyncProjects:
    """Projects of users. A sandbox that is opened with one sees its files in project_files/.

    A project has files without directories. If a name is taken by other content, `on_conflict`
    decides: `rename` numbers the new file (`report (1).pdf`), `replace` replaces the old one,
    `fail` raises FileExistsInSandboxError. Names that differ only in case are the same.

    Example:
        await client.projects.create("ada", "book")
        await client.projects.write("ada", "book", "numbers.csv", "a,b\\n1,2\\n")
        await client.get_or_create_session("ada", "conversation-43", project="book")
        print((await client.execute("cat project_files/numbers.csv")).stdout)
    """

    def __init__(self, connect: Callable[[], Awaitable[Connection]]) -> None:
        self._connect = connect

    async def create(self, user_id: str, project_id: str) -> ProjectInfo:
        """Create a project; one that exists is returned as it is.

        Example:
            print((await client.projects.create("ada", "book")).files)
        """
        request = pb.CreateProjectRequest(user_id=user_id, project_id=project_id)
        connection = await self._connect()
        return ProjectInfo.of((await connection.call(CREATE_PROJECT, request)).project)

    async def get(self, user_id: str, project_id: str) -> ProjectInfo:
        """A project as it is now.

        Example:
            await client.projects.create("ada", "book")
            print((await client.projects.get("ada", "book")).size_bytes)
        """
        request = pb.GetProjectRequest(user_id=user_id, project_id=project_id)
        connection = await self._connect()
        return ProjectInfo.of((await connection.call(GET_PROJECT, request)).project)

    async def list(self, user_id: str) -> Sequence[ProjectInfo]:
        """Projects of a user, sorted by id.

        Example:
            for project in await client.projects.list("ada"):
                print(project.project_id, project.files)
        """
        request = pb.ListProjectsRequest(user_id=user_id)
        connection = await self._connect()
        found: list[ProjectInfo] = []
        while True:
            page = await connection.call(LIST_PROJECTS, request)
            found += map(ProjectInfo.of, page.projects)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def usage(self, user_id: str) -> ProjectUsage:
        """What all projects of a user hold, and the limits on that.

        Example:
            usage = await client.projects.usage("ada")
            print(usage.size_bytes, usage.max_size_bytes)
        """
        request = pb.ListProjectsRequest(user_id=user_id, page_size=1)
        connection = await self._connect()
        usage = (await connection.call(LIST_PROJECTS, request)).usage
        return ProjectUsage(
            projects=usage.projects,
            files=usage.files,
            size_bytes=usage.size_bytes,
            stored_bytes=usage.stored_bytes,
            max_projects=usage.max_projects,
            max_size_bytes=usage.max_size_bytes,
            max_project_files=usage.max_project_files,
            max_project_bytes=usage.max_project_bytes,
            max_file_bytes=usage.max_file_bytes,
        )

    async def delete(self, user_id: str, project_id: str) -> ProjectInfo:
        """Delete a project with its files. Open sessions on it see an empty directory.

        Example:
            await client.projects.create("ada", "old")
            await client.projects.delete("ada", "old")
        """
        request = pb.DeleteProjectRequest(user_id=user_id, project_id=project_id)
        connection = await self._connect()
        return ProjectInfo.of((await connection.call(DELETE_PROJECT, request)).project)

    async def upload(
        self,
        user_id: str,
        project_id: str,
        local_path: str | os.PathLike[str],
        name: str | None = None,
        *,
        on_conflict: OnConflict = "rename",
        on_progress: ProgressCallback | None = None,
    ) -> ProjectFileInfo:
        """Store a local file in a project; `name` defaults to its own name.

        If the connection is lost, the file is sent again: the same file twice is stored once.

        Example:
            await client.projects.create("ada", "book")
            stored = await client.projects.upload("ada", "book", "report.csv")
            print(stored.name, stored.mime_type)
        """
        opening = asyncio.to_thread(open, local_path, "rb")
        with await run_or_undo(opening, closed) as source:
            header = pb.ProjectFileHeader(
                user_id=user_id,
                project_id=project_id,
                name=name or Path(local_path).name,
                on_conflict=_ON_CONFLICT[on_conflict],
                size_bytes=os.fstat(source.fileno()).st_size,
            )
            return await self._send(header, source, Progress(on_progress))

    async def write(
        self,
        user_id: str,
        project_id: str,
        name: str,
        data: str | bytes,
        *,
        on_conflict: OnConflict = "rename",
    ) -> ProjectFileInfo:
        """Store text or bytes as a file of a project.

        Example:
            await client.projects.create("ada", "book")
            await client.projects.write("ada", "book", "notes.md", "# Notes")
        """
        content = data.encode() if isinstance(data, str) else data
        header = pb.ProjectFileHeader(
            user_id=user_id,
            project_id=project_id,
            name=name,
            on_conflict=_ON_CONFLICT[on_conflict],
            size_bytes=len(content),
        )
        return await self._send(header, io.BytesIO(content), Progress(None))

    async def _send(
        self, header: pb.ProjectFileHeader, source: IO[bytes], progress: Progress
    ) -> ProjectFileInfo:
        stored = await send_content(
            await self._connect(),
            UPLOAD_PROJECT_FILE,
            pb.UploadProjectFileRequest(header=header),
            source,
            progress,
            sha256_of=lambda answer: answer.file.sha256,
        )
        outcome = pb.UploadOutcome.Name(stored.outcome).removeprefix("UPLOAD_OUTCOME_").lower()
        return ProjectFileInfo.of(stored.file, status=outcome)

    async def list_files(self, user_id: str, project_id: str) -> Sequence[ProjectFileInfo]:
        """Files of a project, sorted by name.

        Example:
            await client.projects.create("ada", "book")
            for file in await client.projects.list_files("ada", "book"):
                print(file.name, file.size_bytes, file.mime_type)
        """
        request = pb.ListProjectFilesRequest(user_id=user_id, project_id=project_id, page_size=1000)
        connection = await self._connect()
        found: list[ProjectFileInfo] = []
        while True:
            page = await connection.call(LIST_PROJECT_FILES, request)
            found += map(ProjectFileInfo.of, page.files)
            request.page_token = page.next_page_token
            if not request.page_token:
                return found

    async def read(self, user_id: str, project_id: str, name: str) -> bytes:
        """The content of a file of a project.

        Example:
            await client.projects.create("ada", "book")
            await client.projects.write("ada", "book", "a.txt", "hello", on_conflict="replace")
            print(await client.projects.read("ada", "book", "a.txt"))
        """
        content = io.BytesIO()
        await self._fetch(user_id, project_id, name, content, Progress(None))
        return content.getvalue()

    async def download(
        self,
        user_id: str,
        project_id: str,
        name: str,
        local_path: str | os.PathLike[str] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
    ) -> str:
        """Download a file of a project atomically; `local_path` defaults to the current directory.

        Example:
            await client.projects.create("ada", "book")
            await client.projects.write("ada", "book", "a.txt", "hello", on_conflict="replace")
            print(await client.projects.download("ada", "book", "a.txt", "a.txt"))
        """
        target = await asyncio.to_thread(local_target, name, local_path)
        making = asyncio.to_thread(unfinished_beside, target)
        with await run_or_undo(making, removed) as content:
            try:
                await self._fetch(user_id, project_id, name, content, Progress(on_progress))
                content.flush()
                os.replace(content.name, target)
            except BaseException:
                os.unlink(content.name)
                raise
        return target

    async def _fetch(
        self, user_id: str, project_id: str, name: str, target: IO[bytes], progress: Progress
    ) -> None:
        """Read a file; each attempt starts anew, since the file may have been replaced."""
        connection = await self._connect()
        request = pb.DownloadProjectFileRequest(user_id=user_id, project_id=project_id, name=name)

        async def once(tries: Tries) -> None:
            target.seek(0)
            target.truncate()
            digest, expected, received = hashlib.sha256(), b"", 0
            responses = connection.stream(
                DOWNLOAD_PROJECT_FILE,
                request,
                timeout=tries.seconds_left,
                earlier_tries=tries.before,
            )
            async with aclosing(responses):
                async for response in responses:
                    if response.HasField("file"):
                        expected = response.file.sha256
                        continue
                    digest.update(response.chunk)
                    target.write(response.chunk)
                    received += len(response.chunk)
                    await progress.reached(received)
            if digest.digest() != expected:
                raise ChecksumMismatchError(
                    f"{name} was not received correctly; download it again."
                )

        await until_through(connection, once)

    async def delete_file(self, user_id: str, project_id: str, name: str) -> ProjectFileInfo:
        """Delete a file of a project.

        Example:
            await client.projects.create("ada", "book")
            await client.projects.write("ada", "book", "old.txt", "...", on_conflict="replace")
            await client.projects.delete_file("ada", "book", "old.txt")
        """
        request = pb.DeleteProjectFileRequest(user_id=user_id, project_id=project_id, name=name)
        connection = await self._connect()
        done = await connection.call(DELETE_PROJECT_FILE, request)
        return ProjectFileInfo.of(done.file)
