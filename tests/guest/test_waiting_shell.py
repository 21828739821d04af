"""The shell that waits for its command: it is there for the first one and for those that follow."""

from __future__ import annotations

from pathlib import Path

from sandboxd.guest.frames import Kind

from .guest_rig import Rig, guest, wait_until

TITLE = "tr '\\0' '|' </proc/$$/cmdline"
IN_A_ROW = 40


def waited(rig: Rig) -> bool:
    """Run a command in whatever shell it gets; whether that one was there before it.

    Such a shell shows the command as a title, all others as arguments of their own.
    """
    shown = rig.run(TITLE).stdout
    assert shown.startswith((b"bash -c tr ", b"bash|-c|tr ")), shown
    return shown.startswith(b"bash -c ")


def test_the_first_command_finds_a_shell(tmp_path: Path) -> None:
    """It is started before there is anything to run, and made ready meanwhile."""
    with guest(tmp_path) as rig:
        assert waited(rig)


def test_commands_in_a_row_find_a_shell(tmp_path: Path) -> None:
    """Each is sent as soon as the last one has ended. Their shells are started ahead all the same,
    and one that is not ready yet is waited for: on a busy machine not every one is there in time.
    """
    with guest(tmp_path) as rig:
        found = [waited(rig) for _ in range(IN_A_ROW)]

    assert found.count(True) >= IN_A_ROW // 4


def test_a_moved_workspace_is_where_commands_start(tmp_path: Path) -> None:
    """The shell that waits is replaced, so that nothing stays in the directory that was there."""
    with guest(tmp_path) as rig:
        workspace = rig.workspace
        old = workspace.rename(workspace.with_name("moved"))
        workspace.mkdir()
        (workspace / "here").touch()
        rig.say(Kind.MOVED, 0)

        wait_until(lambda: not any(is_in(process, old) for process in Path("/proc").glob("[0-9]*")))
        assert rig.run("ls; pwd -P").stdout.decode() == f"here\n{workspace}\n"


def is_in(process: Path, directory: Path) -> bool:
    try:
        return (process / "cwd").readlink() == directory
    except OSError:  # it has ended
        return False
