"""An index of Python packages on a port of this machine, with whatever packages a test wants."""

from __future__ import annotations

import json
from collections.abc import Callable

from tests.fakes.index_server import Answer, IndexServer
from tests.fakes.wheels import WheelFile


class PackageIndex(IndexServer):
    """Serves the simple API in its JSON form. `on_missing` may make a package when it is asked
    for."""

    def __init__(self, credentials: str = "") -> None:
        super().__init__(credentials)
        self._files: dict[str, dict[str, WheelFile]] = {}
        self.on_missing: Callable[[str], WheelFile | None] = lambda _: None

    @property
    def url(self) -> str:
        return f"{self.root}/simple"

    def add(self, *files: WheelFile) -> None:
        for file in files:
            name = file.file_name.split("-")[0].replace("_", "-").lower()
            self._files.setdefault(name, {})[file.file_name] = file

    def answer(self, path: str) -> Answer | None:
        kind, name, *rest = path.strip("/").split("/")
        if kind == "simple":
            page = self._page(name)
            return Answer(page, "application/vnd.pypi.simple.v1+json") if page else None
        file = self._files.get(name, {}).get(rest[0].removesuffix(".metadata"))
        if file is None:
            return None
        if rest[0].endswith(".metadata"):
            return Answer(file.metadata, "text/plain")
        return Answer(file.data, "application/octet-stream")

    def _page(self, name: str) -> bytes | None:
        """What it says about a package; None if it has none of this name."""
        if name not in self._files and (made := self.on_missing(name)) is not None:
            self.add(made)
        if name not in self._files:
            return None
        files = [
            {
                "filename": file.file_name,
                "url": f"/files/{name}/{file.file_name}",
                "hashes": {"sha256": file.sha256},
                "core-metadata": bool(file.metadata),
            }
            for file in self._files[name].values()
        ]
        return json.dumps({"meta": {"api-version": "1.0"}, "name": name, "files": files}).encode()
