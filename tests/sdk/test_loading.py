"""What a program loads: the public names when they are used, and no more than it needs."""

from __future__ import annotations

import subprocess
import sys

import sandboxd_client
from sandboxd_client import errors, public_names

HEAVY = [
    "asyncio",
    "dataclasses",
    "google.protobuf",
    "grpc",
    "inspect",
    "sandboxd_client.errors",
    "sandboxd_client.sync",
    "sandboxd_proto.v1.session_pb2",
]
"""Not loaded by the package itself."""
OF_OTHER_CALLS = [
    "_decimal",
    "hashlib",
    "json",
    "random",
    "sandboxd_client.code",
    "sandboxd_client.commands",
    "sandboxd_client.data",
    "sandboxd_client.files",
    "sandboxd_client.local",
    "sandboxd_client.projects",
    "sandboxd_proto.v1.code_service_pb2",
    "sandboxd_proto.v1.data_service_pb2",
    "sandboxd_proto.v1.exec_service_pb2",
    "sandboxd_proto.v1.file_service_pb2",
    "sandboxd_proto.v1.project_service_pb2",
    "sandboxd_proto.v1.snapshot_service_pb2",
    "secrets",
    "tarfile",
    "tempfile",
    "uuid",
]
"""Not loaded by a program that opens a session."""


def in_new_process(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(program: str) -> set[str]:
    return set(in_new_process(f"{program}\nimport sys\nprint(*sys.modules)").split())


def test_the_package_itself_loads_next_to_nothing() -> None:
    """A program that imports it for later, or for one error, does not pay for gRPC."""
    assert not loaded_by("import sandboxd_client").intersection(HEAVY)
    assert "grpc" not in loaded_by("from sandboxd_client import SandboxError, CommandResult")


def test_an_open_loads_only_its_own_messages() -> None:
    """Modules and messages of other calls come with the first of these."""
    tried = """
from sandboxd_client import ConnectionLostError, Sandbox
try:
    Sandbox.open("ada", "42", server_url="unix:/nowhere/sandboxd.sock")
except ConnectionLostError:
    pass
else:
    raise AssertionError("there is no daemon")
"""
    loaded = loaded_by(tried)

    assert "grpc" in loaded
    assert not loaded.intersection(OF_OTHER_CALLS)


def test_every_public_name_is_there() -> None:
    """By attribute, by import, with a star, and in the listing; and nothing else is public."""
    program = """
import sandboxd_client
listed = dir(sandboxd_client)
assert sandboxd_client.__version__
assert not hasattr(sandboxd_client, "NoSuchName")
for name in sandboxd_client.__all__:
    assert name in listed, name
    assert getattr(sandboxd_client, name).__name__ == name
from sandboxd_client import *
print(*(name for name in sandboxd_client.__all__ if globals()[name].__name__ == name))
"""
    assert in_new_process(program).split() == sandboxd_client.__all__


def test_type_checkers_see_the_same_names() -> None:
    """The table of names comes from the imports that they read, and has all that is public."""
    assert sorted([*public_names.HOMES, *errors.__all__]) == sorted(sandboxd_client.__all__)
    assert errors.__all__ == public_names.ERRORS


def test_modules_of_public_names_are_attributes() -> None:
    """As they were when the package loaded all of them."""
    program = """
import sandboxd_client
print(sandboxd_client.errors.SandboxError.__name__, sandboxd_client.results.FileInfo.__name__)
"""
    assert in_new_process(program).split() == ["SandboxError", "FileInfo"]


def test_annotations_of_methods_can_be_read_before_anything_is_used() -> None:
    """Frameworks make tools out of methods by their type hints."""
    program = """
import inspect, typing, sandboxd_client
names = sorted(sandboxd_client.__all__, key=lambda name: "Sandbox" not in name)
for name in names:
    kind = getattr(sandboxd_client, name)
    # A shell is a part of a sandbox as its files are, whose modules come with their first use.
    for method in vars(kind).values() if inspect.isclass(kind) else ():
        if inspect.isfunction(method) and method.__name__ not in ("__init__", "shell", "message"):
            typing.get_type_hints(method)
            print(method.__qualname__)
"""
    read = in_new_process(program).split()

    assert {"Sandbox.run_code", "SandboxClient.server_status", "AsyncCommands.run"} <= set(read)
