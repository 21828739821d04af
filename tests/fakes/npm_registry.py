"""A registry of npm packages on a port of this machine, with whatever packages a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.fakes.index_server import Answer, IndexServer
from tests.fakes.npm_archives import NpmArchive

PUBLISHED = "2020-01-01T00:00:00.000Z"


class NpmRegistry(IndexServer):
    """Serves documents of packages and their archives. `on_missing` may make a package when it is
    asked for; `published` has the times of versions that are not old."""

    def __init__(self, credentials: str = "") -> None:
        super().__init__(credentials)
        self._packages: dict[str, dict[str, NpmArchive]] = {}
        self.on_missing: Callable[[str], NpmArchive | None] = lambda _: None
        self.published: dict[tuple[str, str], str] = {}

    @property
    def url(self) -> str:
        return f"{self.root}/"

    def add(self, *archives: NpmArchive) -> None:
        for archive in archives:
            self._packages.setdefault(archive.name, {})[archive.version] = archive

    def answer(self, path: str) -> Answer | None:
        name, is_file, file_name = path.strip("/").partition("/-/")
        if not is_file:
            document = self._document(name)
            return Answer(document, "application/json") if document else None
        archives = self._packages.get(name, {}).values()
        found = [archive.data for archive in archives if archive.file_name == file_name]
        return Answer(found[0], "application/octet-stream") if found else None

    def _document(self, name: str) -> bytes | None:
        if name not in self._packages and (made := self.on_missing(name)) is not None:
            self.add(made)
        if name not in self._packages:
            return None
        archives = self._packages[name].values()
        times = {
            one.version: self.published.get((name, one.version), PUBLISHED) for one in archives
        }
        plain = f"http://{self.root.rpartition('@')[2].removeprefix('http://')}"
        document = {
            "name": name,
            "dist-tags": {"latest": list(times)[-1]},
            "time": {"created": PUBLISHED, "modified": PUBLISHED, **times},
            "versions": {
                one.version: {
                    **one.manifest,
                    "dist": {
                        "tarball": one.tarball or f"{plain}/{name}/-/{one.file_name}",
                        "integrity": one.integrity,
                    },
                }
                for one in archives
            },
        }
        return json.dumps(document).encode()
