"""What complaints of uv and npm mean."""

from __future__ import annotations

import re

from sandboxd.environments.environment import PackageKind
from sandboxd.errors import (
    PackageIndexUnreachable,
    PackagesBuildFailed,
    PackagesNotResolved,
    PackagesTooLarge,
    SandboxdError,
)

INDEX_SETTINGS = {
    PackageKind.PYTHON: "SANDBOXD_PACKAGES_INDEX",
    PackageKind.NPM: "SANDBOXD_NPM_REGISTRY",
}
"""The settings that name where packages come from."""
_MAX_WHY = 500
_FULL = re.compile(
    r"No space left on device|File too large|os error (28|27)\b|SIGXFSZ|ENOSPC|EFBIG"
)
_UNREACHABLE = re.compile(
    r"[Ff]ailed to (fetch|download)|error sending request|dns error|[Cc]onnection (refused|reset)"
    r"|operation timed out|Could not connect"
    r"|code (E(NOTFOUND|CONN\w+|TIMEDOUT|AI_AGAIN|NETUNREACH|HOSTUNREACH|PIPE|PROTO|401|403|429"
    r"|5\d\d)|ERR_SOCKET\w*|SELF_SIGNED\w*|UNABLE_TO\w*|CERT_\w+|DEPTH_ZERO\w*)\b"
)
_UNRESOLVED = re.compile(
    r"No solution found|Failed to resolve|not found in the package registry"
    r"|code E(404|TARGET|RESOLVE|NOVERSIONS|ALLOW\w+|UNSUPPORTEDPROTOCOL|BADPLATFORM"
    r"|INVALIDPACKAGENAME|INVALIDTAGNAME|NOENT)\b"
)
_ADDRESS = re.compile(
    r"\b[a-z+]+://\S+|\b\d{1,3}(\.\d{1,3}){3}(:\d+)?\b|(?<=getaddrinfo E)[A-Z_]+ \S+"
)
_NOISE = re.compile(
    r"npm (warn|notice) [^\n]*|npm error( (A complete log|Log files| +at |  [a-z]+:)[^\n]*)?"
    r"|^\s*error:|[^ -~]",
    re.MULTILINE,
)


def explain(kind: PackageKind, complaint: str, *, max_bytes: int) -> SandboxdError:
    """The error that a complaint stands for."""
    if _FULL.search(complaint):
        return PackagesTooLarge("unpacked", f"{max_bytes >> 20} MiB")
    why = _shortened(complaint)
    if _UNRESOLVED.search(complaint):
        return PackagesNotResolved(why)
    if _UNREACHABLE.search(complaint):
        return PackageIndexUnreachable(why, setting=INDEX_SETTINGS[kind])
    return PackagesBuildFailed(why)


def _shortened(complaint: str) -> str:
    """One line without addresses, which may contain credentials, and without drawings."""
    words = " ".join(_NOISE.sub(" ", _ADDRESS.sub("(address)", complaint)).split())
    return words if len(words) <= _MAX_WHY else words[:_MAX_WHY] + "..."
