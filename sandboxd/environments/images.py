"""Images of environments, and what is known of them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from sandboxd.engine.contract import ImageId, ImageInfo
from sandboxd.environments.parts import Package

DETAILS_LABEL = "sandboxd.environment"
"""Label of an image with what is known of its build, for other daemons on the same engine."""
MADE_HERE = {"sandboxd.image": "built"}
"""Labels of what was built here. Those that lost their name to a newer one are removed."""
_FIELD = re.compile(r"([A-Z][A-Za-z-]*): (.*)")


@dataclass(frozen=True, kw_only=True)
class BuiltImage:
    """An image that was built for an environment, or that is used as it is."""

    image_id: ImageId
    tag: str = ""
    """Name that keeps the engine from deleting it; empty if it is not ours."""
    size_bytes: int = 0
    built_at: float = 0.0
    """Seconds since the epoch."""
    seconds: float = 0.0
    """How long the build took; 0 if there was none."""
    source: str = ""
    """Where its base came from."""
    skipped: Sequence[str] = ()
    """Why sources that would have been preferred were not used."""
    packages: Sequence[Package] = ()
    is_listed: bool = False
    """Whether these are all packages, and not only those that the build added."""


def described(info: ImageInfo, *, source: str) -> BuiltImage:
    """An image with what its label says of its build; without a label it is from this source."""
    plain = BuiltImage(
        image_id=info.id, size_bytes=info.size_bytes, built_at=info.created_at, source=source
    )
    try:
        fields = json.loads(info.labels[DETAILS_LABEL])
        return replace(
            plain,
            source=str(fields["source"]),
            skipped=tuple(map(str, fields["skipped"])),
            packages=tuple(Package(*map(str, package)) for package in fields["packages"]),
        )
    except (KeyError, TypeError, ValueError):
        return plain


def details_label(
    source: str, skipped: Sequence[str], packages: Sequence[Package]
) -> Mapping[str, str]:
    """The label that `described` reads."""
    details = {"source": source, "skipped": list(skipped), "packages": list(packages)}
    return {DETAILS_LABEL: json.dumps(details)}


def debian_packages(status: str) -> Iterator[Package]:
    """What dpkg's own list says is installed."""
    for paragraph in status.split("\n\n"):
        lines = map(_FIELD.fullmatch, paragraph.splitlines())
        fields = {match[1]: match[2] for match in lines if match}
        if fields.get("Status", "").endswith(" installed"):
            yield Package("debian", fields.get("Package", ""), fields.get("Version", ""))
