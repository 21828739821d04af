"""Files that the host brings to an image: packages of npm, wheels, a Python."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from sandboxd.environments import host_python, layers, npm_packages
from sandboxd.environments.definition import HostPython, NpmPackages
from sandboxd.environments.npm_client import NpmClient
from sandboxd.environments.parts import SourceUnavailable

NODE = npm_packages.node_package()
PROCESSOR = NODE.removeprefix("node-")
(OTHER,) = {"linux-x64", "linux-arm64"} - {PROCESSOR}


class Registry:
    """An npm registry on this machine."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        files = self.files

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = files.get(self.path)
                self.send_response(200 if content is not None else 404)
                self.end_headers()
                self.wfile.write(content or b"")

            def log_message(self, *_: object) -> None: ...

        self._server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def add(self, name: str, archive: bytes) -> dict[str, str]:
        """Offer a package; returns its entry in a lock file."""
        self.files[f"/{name}/-/{name.rpartition('/')[2]}-1.0.0.tgz"] = archive
        digest = base64.b64encode(hashlib.sha512(archive).digest()).decode()
        return {"version": "1.0.0", "integrity": f"sha512-{digest}"}


@pytest.fixture
def registry() -> Iterator[Registry]:
    registry = Registry()
    yield registry
    registry.close()


def packed(*members: tuple[str, bytes, int] | tarfile.TarInfo) -> bytes:
    """A package as npm has them: files with their modes, below one directory."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w:gz") as tar:
        for member in members:
            if isinstance(member, tarfile.TarInfo):
                tar.addfile(member)
                continue
            name, content, mode = member
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(content), mode
            tar.addfile(entry, io.BytesIO(content))
    return written.getvalue()


def files_below(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.is_file()}


async def filled(
    registry: Registry, directory: Path, lock: dict[str, dict[str, str]]
) -> list[tuple[str, str, str]]:
    file = directory / "lock.json"
    file.write_text(json.dumps(lock))
    target = directory / "layer"
    target.mkdir()
    found = await layers.fill(
        NpmPackages(lock=file), target, lambda *_: None, npm=NpmClient(directory, registry.url)
    )
    return [tuple(package) for package in found]


async def test_packages_are_unpacked_where_node_looks_for_them(
    registry: Registry, tmp_path: Path
) -> None:
    """Of Node.js only the program; of the others everything, with the right to run it; nothing for
    another processor."""
    lock = {
        NODE: registry.add(
            NODE, packed(("package/bin/node", b"elf", 0o755), ("package/include/x.h", b"", 0o644))
        ),
        "typescript": registry.add(
            "typescript",
            packed(("package/bin/tsc", b"#!", 0o755), ("package/lib/a.js", b"js", 0o600)),
        ),
        f"@tool/{PROCESSOR}": registry.add(
            f"@tool/{PROCESSOR}", packed(("package/bin/tool", b"elf", 0o755))
        ),
        f"@tool/{OTHER}": {"version": "1.0.0", "integrity": "sha512-x"},
    }
    found = await filled(registry, tmp_path, lock)

    root = tmp_path / "layer" / "usr" / "local"
    files = {path.relative_to(root).as_posix(): path for path in root.rglob("*") if path.is_file()}
    modules, tool = "lib/node_modules/typescript", f"lib/node_modules/@tool/{PROCESSOR}/bin/tool"
    assert sorted(files) == ["bin/node", tool, f"{modules}/bin/tsc", f"{modules}/lib/a.js"]
    assert files["bin/node"].stat().st_mode & 0o777 == 0o755
    assert files[f"{modules}/lib/a.js"].stat().st_mode & 0o777 == 0o644
    assert found == [
        ("program", "node", "1.0.0"),
        ("node", "typescript", "1.0.0"),
        ("node", f"@tool/{PROCESSOR}", "1.0.0"),
    ]


async def test_package_with_another_hash_is_refused(registry: Registry, tmp_path: Path) -> None:
    """What a registry sends is only used if it is what the lock file names."""
    lock = {NODE: registry.add(NODE, packed(("package/bin/node", b"good", 0o755)))}
    registry.add(NODE, packed(("package/bin/node", b"evil", 0o755)))
    with pytest.raises(SourceUnavailable, match="not the one of the lock file"):
        await filled(registry, tmp_path, lock)

    assert not (tmp_path / "layer" / "usr").exists()


async def test_registry_without_the_package_is_named(registry: Registry, tmp_path: Path) -> None:
    """The text says what is missing, and no address."""
    lock = {NODE: {"version": "1.0.0", "integrity": "sha512-x"}}
    with pytest.raises(SourceUnavailable) as caught:
        await filled(registry, tmp_path, lock)

    assert str(caught.value) == f"the npm registry did not give {NODE}"


@pytest.mark.parametrize(
    "name", ["package/../../../etc/cron.d/x", "package//etc/x", "package/a/../../../x"]
)
async def test_package_cannot_write_outside_its_directory(
    name: str, registry: Registry, tmp_path: Path
) -> None:
    """Even with the hash of the lock file."""
    lock = {"evil": registry.add("evil", packed((name, b"x", 0o644)))}
    with pytest.raises(SourceUnavailable, match="not a valid package"):
        await filled(registry, tmp_path, lock)

    assert files_below(tmp_path) <= {"lock.json", "evil.tgz"}


async def test_links_and_devices_of_a_package_are_left_out(
    registry: Registry, tmp_path: Path
) -> None:
    """Only regular files are unpacked."""
    link, device = tarfile.TarInfo("package/link"), tarfile.TarInfo("package/device")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device.type = tarfile.CHRTYPE
    lock = {"odd": registry.add("odd", packed(link, device, ("package/a", b"a", 0o644)))}
    await filled(registry, tmp_path, lock)

    (path,) = [path for path in (tmp_path / "layer").rglob("*") if not path.is_dir()]
    assert path.name == "a"


async def test_package_that_is_too_large_is_refused(
    registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed and unpacked sizes have limits."""
    lock = {"large": registry.add("large", packed(("package/a", b"a" * 10_000, 0o644)))}
    monkeypatch.setattr(npm_packages, "MAX_UNPACKED_BYTES", 1000)
    with pytest.raises(SourceUnavailable, match="not a valid package"):
        await filled(registry, tmp_path, lock)
    monkeypatch.setattr(npm_packages, "MAX_ARCHIVE_BYTES", 10)
    (tmp_path / "layer").rename(tmp_path / "before")
    with pytest.raises(SourceUnavailable, match="has more than"):
        await filled(registry, tmp_path, lock)


async def test_python_of_the_host_is_found_and_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its library and its modules, without tests and without packages of the host."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    monkeypatch.setattr(host_python, "_candidates", lambda _: [Path(sys.executable)])
    assert f" host {version}." in await layers.fingerprint(HostPython(version=version))
    found = await layers.fill(
        HostPython(version=version), tmp_path, lambda *_: None, npm=NpmClient(tmp_path, "")
    )

    (package,) = found
    assert package[:2] == ("program", "python")
    root = tmp_path / "usr" / "local"
    library = root / "lib" / f"python{version}"
    assert (root / "bin" / f"python{version}").stat().st_mode & 0o100
    assert (library / "json" / "__init__.py").is_file()
    left_out = [path.name for path in library.iterdir() if path.name in host_python._LEFT_OUT]
    assert left_out == []


async def test_program_that_only_looks_like_python_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of another version, one that fails and one that answers nonsense."""
    other, failing, nonsense = (tmp_path / name for name in ("other", "failing", "nonsense"))
    other.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    failing.write_text("#!/bin/sh\nexit 1\n")
    nonsense.write_text("#!/bin/sh\necho '{}'\n")
    for program in (other, failing, nonsense):
        program.chmod(0o755)
    monkeypatch.setattr(host_python, "_candidates", lambda _: [other, failing, nonsense])
    with pytest.raises(SourceUnavailable, match=r"no Python 3\.99"):
        await host_python.find_python("3.99")
