"""The user database of a sandbox.

Each sandbox has its own uid, which no image can know in advance; so a sandbox gets the image's user
database with one more line.
"""

from __future__ import annotations


def passwd(image: str, *, name: str, uid: int, home: str) -> str:
    """The image's /etc/passwd with the sandbox's user."""
    return f"{name}:x:{uid}:{uid}::{home}:/bin/bash\n" + _others(image, name, uid)


def group(image: str, *, name: str, gid: int) -> str:
    """The image's /etc/group with the sandbox's group."""
    return f"{name}:x:{gid}:\n" + _others(image, name, gid)


def _others(image: str, name: str, number: int) -> str:
    """Lines of the image with neither this name nor this number."""
    lines = []
    for line in image.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[0] != name and fields[2] != str(number):
            lines.append(line + "\n")
    return "".join(lines)
