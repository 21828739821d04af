"""Which image each environment uses, in the daemon's state directory."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import structlog

from sandboxd.environments.images import BuiltImage
from sandboxd.environments.parts import Package

log = structlog.get_logger()

MAX_FILE = 4 << 20


class BuildRecords:
    """A file for each environment that has an image. The image is pinned by its id, so that a new
    tag changes nothing; it counts as long as the environment is made from the same."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)

    def load(self, made_from: Mapping[str, str]) -> Mapping[str, BuiltImage]:
        """The images of these environments, by name; with what each is made from now."""
        found = {name: _read(self._path(name), origin) for name, origin in made_from.items()}
        return {name: built for name, built in found.items() if built is not None}

    def save(self, name: str, built: BuiltImage, *, made_from: str) -> None:
        path = self._path(name)
        new = path.with_suffix(".new")
        new.write_text(json.dumps({"made_from": made_from, "built": asdict(built)}))
        new.rename(path)

    def delete(self, name: str) -> None:
        self._path(name).unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        # A name of the configuration has no slash; `python3.12` keeps its dot.
        return self._directory / f"{name}.json"


def _read(path: Path, made_from: str) -> BuiltImage | None:
    try:
        with path.open() as file:
            document = json.loads(file.read(MAX_FILE))
        if document["made_from"] != made_from:
            return None  # the configuration has changed
        fields = document["built"]
        fields["packages"] = tuple(Package(*package) for package in fields["packages"])
        fields["skipped"] = tuple(fields["skipped"])
        return BuiltImage(**fields)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        log.warning("environment.record_unreadable", file=path.name, error=str(error))
        return None
