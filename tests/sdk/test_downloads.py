"""Downloads without a place of their own: temporary files, and never more than a few."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sandboxd_client.downloads import KEPT, downloaded
from sandboxd_client.results import DownloadedFile

CONTENT = "a,ü\n".encode()


class Files:
    """Those of a sandbox, all with the same content."""

    async def download(self, path: object, local_path: object = None) -> str:
        return write(Path(str(local_path)), str(path))


def write(place: Path, name: str) -> str:
    target = place / name if place.is_dir() else place
    target.write_bytes(CONTENT)
    return str(target)


def download(name: str, local_path: Path | None = None) -> DownloadedFile:
    return asyncio.run(downloaded(Files(), name, local_path))


def test_download_is_a_path_and_its_content(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a `str` for what opens files; as bytes for what measures or decodes them."""
    monkeypatch.chdir(tmp_path)

    found = download("report.csv")

    assert isinstance(found, str)
    assert os.path.basename(found) == "report.csv"
    assert Path(found).read_bytes() == Path(os.fspath(found)).read_bytes() == CONTENT
    with open(found, "rb") as opened:
        assert opened.read() == CONTENT
    assert (len(found), found.decode()) == (len(CONTENT), CONTENT.decode())
    assert os.listdir() == []
    assert download("report.csv", tmp_path / "here.csv") == f"{tmp_path}/here.csv"
    assert os.listdir() == ["here.csv"]


def test_empty_file_is_something() -> None:
    """`if path:` is true of every download."""
    found = download("empty")
    Path(found).write_bytes(b"")

    assert found
    assert len(found) == 0


def test_only_the_newest_are_kept() -> None:
    """A server that downloads all day does not fill its disk."""
    paths = [download("file") for _ in range(KEPT + 2)]

    assert [path for path in paths if os.path.exists(path)] == paths[2:]


def test_nothing_is_left_at_the_end_of_the_program(tmp_path: Path) -> None:
    """A forked child that ends first leaves the files of its parent alone."""
    program = """
import os, sys
sys.path.insert(0, os.getcwd())
from tests.sdk.test_downloads import download
path = download("file")
if (child := os.fork()) == 0:
    sys.exit()
os.waitpid(child, 0)
print(len(path))
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )

    assert (done.returncode, done.stdout) == (0, f"{len(CONTENT)}\n"), done.stderr
    assert list(tmp_path.iterdir()) == []
