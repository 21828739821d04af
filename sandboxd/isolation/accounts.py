"""The user that a sandbox's commands see themselves as.

Each sandbox has a uid of its own on the host, which no image can know; so the image's user database
is shown with one more line.
"""

from __future__ import annotations


def passwd(image: str, *, name: str, uid: int, home: str) -> str:
    """The image's /etc/passwd with the sandbox's user in it."""
    return f"{name}:x:{uid}:{uid}::{home}:/bin/bash\n" + _others(image, name, uid)


def group(image: str, *, name: str, gid: int) -> str:
    """The image's /etc/group with the sandbox's group in it."""
    return f"{name}:x:{gid}:\n" + _others(image, name, gid)


def _others(image: str, name: str, number: int) -> str:
    """Lines of the image that do not claim the same name or number."""
    lines = []
    for line in image.splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[0] != name and fields[2] != str(number):
            lines.append(line + "\n")
    return "".join(lines)
