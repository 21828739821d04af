"""Virtual file systems: what is written is read, what is missing is told, nothing leads out."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from deepagents.backends import FilesystemBackend, StoreBackend
from langgraph.store.memory import InMemoryStore
from langgraph.store.postgres import AsyncPostgresStore

from sandboxd_client.integrations import (
    BackendFiles,
    DigestedFiles,
    FilesFromFunctions,
    FilesInDirectory,
    FilesInMemory,
    StoreFiles,
    VirtualFileError,
    VirtualFiles,
)
from sandboxd_client.integrations.postgres_files import PostgresStore

pytestmark = pytest.mark.xdist_group("postgres")

KINDS = ["memory", "directory", "postgres", "store", "store in postgres", "backend", "functions"]
NAMESPACE = ("ada", "files")


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    async with AsyncExitStack() as stack:
        yield stack


@pytest.fixture
async def files(
    request: pytest.FixtureRequest, tmp_path: Path, stack: AsyncExitStack
) -> VirtualFiles:
    match request.param:
        case "memory":
            return FilesInMemory()
        case "directory":
            return FilesInDirectory(tmp_path)
        case "postgres":
            store = await postgres_store(request.getfixturevalue("postgres"), stack)
            return store.files("ada")
        case "store":
            return StoreFiles(InMemoryStore(), NAMESPACE)
        case "store in postgres":
            conninfo = request.getfixturevalue("postgres")
            kept = await stack.enter_async_context(AsyncPostgresStore.from_conn_string(conninfo))
            await kept.setup()
            return StoreFiles(kept, (uuid.uuid4().hex, "files"))
        case "backend":
            return BackendFiles(StoreBackend(store=InMemoryStore(), namespace=lambda _: NAMESPACE))
        case "functions":
            inner = FilesInMemory()
            return FilesFromFunctions(inner.read, inner.write)
    raise AssertionError(request.param)


async def postgres_store(conninfo: str, stack: AsyncExitStack) -> PostgresStore:
    store = PostgresStore(conninfo, table=f"files_{uuid.uuid4().hex}")
    await stack.enter_async_context(store)
    await store.setup()
    return store


@pytest.mark.parametrize("files", KINDS, indirect=True)
@pytest.mark.parametrize(
    "data",
    [b"", b"hello\n", "grüße\r\n".encode(), bytes(range(256)), b"a\0b", b"x" * 300_000],
    ids=["empty", "text", "umlauts", "binary", "nul", "large"],
)
async def test_what_is_written_is_read(files: VirtualFiles, data: bytes) -> None:
    """Byte by byte, whatever the bytes are, and again after it was replaced."""
    assert isinstance(files, VirtualFiles)
    await files.write("/data-exports/a.bin", b"before")
    await files.write("/data-exports/a.bin", data)

    assert await files.read("/data-exports/a.bin") == data


@pytest.mark.parametrize("files", KINDS, indirect=True)
async def test_a_file_that_is_not_there_is_not_found(files: VirtualFiles) -> None:
    """The same error from all of them, so that a tool can tell it in its own words."""
    with pytest.raises(FileNotFoundError):
        await files.read("/missing.txt")


@pytest.mark.parametrize("path", ["../secret", "/../secret", "/a/../../secret", "/out/secret"])
async def test_nothing_leads_out_of_a_directory(tmp_path: Path, path: str) -> None:
    """A path comes from a model: neither dots nor links may reach the machine's own files."""
    (tmp_path / "secret").write_text("secret")
    root = tmp_path / "root"
    root.mkdir()
    (root / "out").symlink_to(tmp_path)
    files = FilesInDirectory(root)

    with pytest.raises(VirtualFileError):
        await files.read(path)
    with pytest.raises(VirtualFileError):
        await files.write(path, b"changed")
    assert (tmp_path / "secret").read_text() == "secret"


async def test_a_database_tells_changes_without_sending_the_file(
    postgres: str, stack: AsyncExitStack
) -> None:
    """The digest is that of the content, so that an unchanged file need not be read."""
    files = (await postgres_store(postgres, stack)).files("ada")
    await files.write("/a", b"hello")

    assert isinstance(files, DigestedFiles)
    assert await files.digest("/a") == hashlib.sha256(b"hello").hexdigest()
    with pytest.raises(FileNotFoundError):
        await files.digest("/b")


async def test_owners_of_one_table_do_not_see_each_other(
    postgres: str, stack: AsyncExitStack
) -> None:
    """The same path is another file for another user."""
    store = await postgres_store(postgres, stack)
    await store.files("ada").write("/notes", b"of ada")
    await store.files("bob").write("/notes", b"of bob")
    await store.files("bob").write("/more", b"of bob")

    assert await store.files("ada").read("/notes") == b"of ada"
    assert await store.files("ada").list() == ["/notes"]
    await store.files("bob").remove("/notes")
    assert await store.files("bob").list() == ["/more"]
    assert await store.files("ada").read("/notes") == b"of ada"


async def test_a_database_that_does_not_answer_is_told_in_words(tmp_path: Path) -> None:
    """No driver's error reaches the model, and the wait is bounded."""
    async with PostgresStore(f"host={tmp_path} dbname=none", connect_timeout=0.2) as store:
        with pytest.raises(VirtualFileError, match="does not answer"):
            await store.files("ada").read("/notes")


async def test_files_that_an_agent_has_written_are_read_as_they_are(tmp_path: Path) -> None:
    """A file made by DeepAgents' own tools, in a store or on disk, is the file that is uploaded."""
    store = InMemoryStore()
    backend = StoreBackend(store=store, namespace=lambda _: NAMESPACE)
    await backend.awrite("/report.md", "# Report\n")
    on_disk = FilesystemBackend(root_dir=tmp_path, virtual_mode=True)
    await on_disk.awrite("/report.md", "# Report\n")

    assert await StoreFiles(store, NAMESPACE).read("/report.md") == b"# Report\n"
    assert await BackendFiles(on_disk).read("/report.md") == b"# Report\n"


async def test_a_file_that_was_saved_can_be_read_by_the_agent() -> None:
    """What download_sandbox_file saves, the agent's read_file shows."""
    store = InMemoryStore()
    await StoreFiles(store, NAMESPACE).write("/result.csv", b"a,b\n1,2\n")

    shown = await StoreBackend(store=store, namespace=lambda _: NAMESPACE).aread("/result.csv")

    assert shown.file_data is not None
    assert shown.file_data["content"] == "a,b\n1,2\n"


async def test_an_older_file_of_a_store_is_read_too() -> None:
    """Older versions of DeepAgents keep a list of lines."""
    store = InMemoryStore()
    await store.aput(NAMESPACE, "/old.txt", {"content": ["one", "two"]})

    assert await StoreFiles(store, NAMESPACE).read("/old.txt") == b"one\ntwo"


async def test_something_else_in_a_store_is_not_taken_for_a_file() -> None:
    """A namespace may hold other items."""
    store = InMemoryStore()
    await store.aput(NAMESPACE, "/memory", {"fact": "likes tea"})

    with pytest.raises(VirtualFileError, match="not a file"):
        await StoreFiles(store, NAMESPACE).read("/memory")


async def test_functions_may_be_plain_and_read_text() -> None:
    """An agent's read_file as it is; without a writer nothing is saved."""
    documents = {"/a.txt": "hello"}

    def read(path: str) -> str:
        return documents[path]

    files = FilesFromFunctions(read)
    assert await files.read("/a.txt") == b"hello"
    with pytest.raises(VirtualFileError):
        await files.write("/a.txt", b"")
