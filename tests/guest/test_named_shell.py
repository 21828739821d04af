"""Named shells: what one command leaves for the next."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from sandboxd.guest.commands import named_shell
from sandboxd.guest.commands.named_shell import State
from sandboxd.guest.frames import Ending, Kind

from .guest_rig import Channel, Rig, guest

INHERITED = {"PATH": os.environ["PATH"], "HOME": "/root", "INHERITED": "yes", "LANG": "C.UTF-8"}


class Shell:
    """A named shell on the host's bash, without a guest."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state: State | None = None
        self.saved = b""

    def run(
        self, line: str, *, env: dict[str, str] | None = None, cwd: str | None = None
    ) -> subprocess.CompletedProcess[bytes]:
        given = env or {}
        lines = named_shell.set_up(self.state, given=given, cwd=cwd)
        lines += named_shell.last_lines(self.state, "bash")
        set_up = self.directory.parent / "set-up"
        set_up.write_bytes(b"unset BASH_ENV\n" + lines)
        saved = self.directory.parent / "saved"
        launch = f'BASH_ENV=$1 exec bash -c "$2" {named_shell.STATE}>"$0"'
        done = subprocess.run(
            ["bash", "-c", launch, str(saved), str(set_up), line],
            env={**INHERITED, **given},
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
            check=False,
        )
        self.saved = saved.read_bytes()
        state = named_shell.parse(self.saved)
        if state is not None:
            self.state = named_shell.merge(self.state, state, given=given, inherited=INHERITED)
        return done

    def out(self, line: str, **more: object) -> str:
        done = self.run(line, **more)  # type: ignore[arg-type]
        assert done.stderr == b"", done.stderr
        return done.stdout.decode(errors="surrogateescape")


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    directory = tmp_path / "workspace"
    directory.mkdir()
    return Shell(directory)


@pytest.mark.parametrize(
    ("first", "then", "seen"),
    [
        ("cd /usr/lib", "pwd; echo $OLDPWD", "/usr/lib\nWORKSPACE\n"),
        ("cd /usr; cd /etc", "cd -", "/usr\n"),
        ("true", "declare -p OLDPWD", "declare -x OLDPWD\n"),
        ("mkdir 'a b'$'\\n'\\'; cd 'a b'$'\\n'\\'", "pwd", "WORKSPACE/a b\n'\n"),
        ("mkdir real; ln -s real link; cd link", "pwd; pwd -P", "WORKSPACE/link\nWORKSPACE/real\n"),
        ("export A=1", "echo $A; env | grep ^A=", "1\nA=1\n"),
        ("A=1", "echo ${A-none}", "none\n"),
        ("export A=$'x\\n\"y\\' $z `w` \\\\ !'", 'printf %s "$A"', "x\n\"y' $z `w` \\ !"),
        ("export A=ü€ B=$'\\377'", 'printf %s "$A$B"', "ü€\udcff"),
        ("export A=", 'echo "[${A-none}]"', "[]\n"),
        ("export A", 'echo "[${A-none}]"; A=2; env | grep ^A=', "[none]\nA=2\n"),
        ("unset INHERITED", "echo ${INHERITED-none}", "none\n"),
        ("export INHERITED=other", "env | grep INHERITED", "INHERITED=other\n"),
        ("export -n INHERITED", "env | grep -c INHERITED", "0\n"),
        ("export PATH=/nowhere:$PATH", "echo ${PATH%%:*}", "/nowhere\n"),
        ("readonly A=1; export A", "echo $A; (A=2) 2>/dev/null || echo ro", "1\nro\n"),
        ("declare -ix N=3", "N=N+4; echo $N", "7\n"),
        ("export -a L=(1 2); export S=s", 'echo "${L-none} $S"', "none s\n"),
        ('f() { echo f "$@"; }', "f 1 2", "f 1 2\n"),
        ("f() { cat <<E\na $1 \\$b\n'q' \"r\"\nE\n}", "f x", "a x $b\n'q' \"r\"\n"),
        ("f() { cat <<'E'\n$1\nE\n}; g() { f; echo g; }", "g", "$1\ng\n"),
        ("f() { echo f; }; export -f f", "bash -c f", "f\n"),
        ("f() { :; }; unset -f f", "type -t f || echo gone", "gone\n"),
        ("shopt -s extglob\nf() { echo ${1//+(a)/x}; }", "f baaab", "bxb\n"),
        ("shopt -s extglob nullglob", "echo a*b; shopt -q extglob && echo on", "\non\n"),
        ("shopt -s extglob; shopt -u extglob", "shopt extglob | cut -f2", "off\n"),
        ("shopt -u sourcepath", "shopt sourcepath | cut -f2", "off\n"),
        ("set -o pipefail", "false | true; echo $?", "1\n"),
        ("set -f", "echo *", "*\n"),
        ("set -C; echo 1 >file", "echo 2 >file; cat file", None),
        ("set -a", "B=1; env | grep ^B=", "B=1\n"),
        ("shopt -s expand_aliases; alias hi='echo \"a  b\"'", "hi", "a  b\n"),
        ("alias hi='echo hi'", "alias hi", "alias hi='echo hi'\n"),
        ("IFS=:; export IFS", "a=1:2; echo $a", "1 2\n"),
        ("export __A=1; printf() { :; }; declare() { :; }", "echo $__A", "1\n"),
        ("umask 077; true", "echo on", "on\n"),
        ("exec 5>file", "echo on", "on\n"),
    ],
)
def test_what_stays(shell: Shell, first: str, then: str, seen: str | None) -> None:
    """The state of a shell is there for its next command."""
    shell.run(first)
    assert shell.state is not None
    done = shell.run(then)
    if seen is None:
        assert b"cannot overwrite" in done.stderr
    else:
        expected = seen.replace("WORKSPACE", str(shell.directory))
        assert done.stdout.decode(errors="surrogateescape") == expected
        assert done.stderr == b""


def test_it_stays_for_long(shell: Shell) -> None:
    """A state that goes through many commands does not change."""
    shell.run(
        "f() { cat <<E\nx\nE\n}; export A=$'a\\nb'; cd /usr; set -u; shopt -s dotglob; alias x=y"
    )
    before = shell.state
    for _ in range(5):
        shell.run("true")

    assert shell.state == before


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("export A=2; exit 3", 3),
        ("export A=2; set -e; false; export A=3", 1),
        ("export A=2; set -u; echo $nothing", 127),
        ("export A=2; kill -TERM $$", -15),
        ("f() { export A=2; exit 4; }; f", 4),
        ("export A=2; ${nothing?wrong}", 127),
        ("export A=2; (exit 5)", 5),
        ("export A=2\nif", 2),
    ],
)
def test_any_end_saves(shell: Shell, line: str, code: int) -> None:
    """However a command ends by itself, its state is saved and its exit code is its own."""
    shell.run("export A=1")
    done = shell.run(line)
    shell.run("set +eu")

    assert done.returncode == code
    assert shell.out("echo $A") == "2\n"


@pytest.mark.parametrize(
    "line", ["export A=2; kill -KILL $$", "export A=2; exec true", "export A=2; set -n"]
)
def test_what_leaves_no_time_to_save(shell: Shell, line: str) -> None:
    """After a hard end, or when another program took the shell's place, the last state stays."""
    shell.run("export A=1")
    shell.run(line)

    assert shell.out("echo $A") == "1\n"


def test_only_a_complete_state_counts(shell: Shell) -> None:
    """No part of a saved state passes for the whole."""
    shell.run("export A=1; f() { :; }")

    assert named_shell.parse(shell.saved) is not None
    assert all(named_shell.parse(shell.saved[:end]) is None for end in range(len(shell.saved)))


@pytest.mark.parametrize(
    ("line", "seen", "code"),
    [
        ("trap 'echo bye $?' EXIT; exit 3", "bye 3\n", 3),
        ("trap 'echo bye; exit 7' EXIT; exit 3", "bye\n", 7),
        ("trap 'echo one' EXIT; trap 'echo \"it'\\''s two\"' 0", "it's two\n", 0),
        ("trap 'echo bye' EXIT; trap - EXIT", "", 0),
        (
            "trap 'echo bye' EXIT INT; trap -p",
            "trap -- 'echo bye' EXIT\ntrap -- 'echo bye' SIGINT\nbye\n",
            0,
        ),
        ("trap 'echo a\necho b' EXIT; trap -p EXIT", "trap -- 'echo a\necho b' EXIT\na\nb\n", 0),
        ("trap; trap -p", "", 0),
        ("(trap 'echo sub' EXIT); echo main", "sub\nmain\n", 0),
        ("x=$(trap 'echo sub' EXIT); echo $x", "sub\n", 0),
        ("set -e; trap 'echo bye $?' EXIT; false", "bye 1\n", 1),
        ("trap 'echo err' ERR; false; true", "err\n", 0),
        ("trap 'echo err' ERR; exit 3", "", 3),
        ("set -u; trap 'echo bye' EXIT", "bye\n", 0),
        ("trap 'echo t' USR1; kill -USR1 $$", "t\n", 0),
        ("trap nonsense NOSUCH 2>/dev/null || echo refused", "refused\n", 0),
        ("f() { trap 'echo f' EXIT; }; f; echo on", "on\nf\n", 0),
    ],
)
def test_traps_of_the_command(shell: Shell, line: str, seen: str, code: int) -> None:
    """A command's own traps work as ever, and the state is saved nevertheless."""
    plain = subprocess.run(["bash", "-c", line], capture_output=True, check=False)
    done = shell.run("export A=saved\n" + line)

    assert (done.stdout.decode(), done.returncode, done.stderr) == (seen, code, b"")
    assert (plain.stdout.decode(), plain.returncode) == (seen, code)
    shell.run("set +eu")
    assert shell.out("echo $A") == "saved\n"


@pytest.mark.parametrize(
    "line",
    [
        'echo $0 $- "$_" $# $LINENO $SHLVL',
        "nonsense",
        "if",
        "echo ${x?gone}",
        "set -x; echo traced; exit 3",
        "exit 300",
        "echo $BASH_SUBSHELL",
        "cd /nowhere",
    ],
)
def test_it_is_like_any_bash(shell: Shell, line: str) -> None:
    """Output, messages and exit codes are those of `bash -c`, with and without a state."""
    environment = {**INHERITED}
    plain = subprocess.run(
        ["bash", "-c", line], env=environment, cwd=shell.directory, capture_output=True, check=False
    )
    for _ in range(2):
        done = shell.run(line)
        assert (done.stdout, done.returncode) == (plain.stdout, plain.returncode)
        assert done.stderr == plain.stderr
        shell.run("set +x")


def test_a_trace_shows_only_the_commands(shell: Shell) -> None:
    """With `set -x` left on, nothing of ours is traced."""
    shell.run("set -x")

    assert shell.run("echo hi").stderr == b"+ echo hi\n"


def test_a_directory_that_is_gone(shell: Shell) -> None:
    """A shell whose directory was deleted is back in the workspace and says so."""
    shell.run("mkdir gone; cd gone; rmdir ../gone")
    done = shell.run("pwd")

    assert done.stdout.decode() == f"{shell.directory}\n"
    assert done.stderr.startswith(b"sandboxd: ")
    assert b"gone is not there any more" in done.stderr
    assert shell.out("pwd") == f"{shell.directory}\n"


def test_variables_of_the_request(shell: Shell) -> None:
    """They win over the state, readonly ones too, for one command only."""
    shell.run("export A=state; readonly B=state; export B; export INHERITED=state; unset HOME")
    given = {"A": "given", "B": "given", "INHERITED": "given", "HOME": "/given", "NEW": "given"}
    show = "echo $A $B $INHERITED ${HOME-none} ${NEW-none}"

    assert shell.out(show, env=given) == "given given given /given given\n"
    assert shell.out(show) == "state state state none none\n"


def test_variables_of_the_first_request(shell: Shell) -> None:
    """An inherited variable that a request gives is as before afterwards."""
    shell.run("true", env={"INHERITED": "given"})

    assert shell.out("echo $INHERITED") == "yes\n"


def test_the_directory_of_the_request(shell: Shell) -> None:
    """It is where the command runs, and where the shell is afterwards, as after `cd`."""
    shell.run("cd /usr")

    assert shell.out("pwd; echo $OLDPWD", cwd="/etc") == "/etc\n/usr\n"
    assert shell.out("pwd; cd -") == "/etc\n/usr\n"


def test_functions_that_bash_cannot_read_again(shell: Shell) -> None:
    """A broken part of a state costs that part, not the command."""
    shell.run("export A=1")
    assert shell.state is not None
    shell.state = shell.state._replace(functions=b"f () { if }")
    done = shell.run("echo $A")

    assert done.stdout == b"1\n"
    assert b"syntax error" in done.stderr


# --- in a guest ---


def named(rig: Rig, line: str, name: str = "one", **more: object) -> Channel:
    return rig.run(line, shell_state={"name": name}, **more)


def test_shells_of_a_guest(tmp_path: Path) -> None:
    """Each name has its own state, and commands without a name have none."""
    with guest(tmp_path) as rig:
        named(rig, "cd /usr; export A=1; f() { echo f; }")
        named(rig, "cd /etc; export A=2", "two")

        assert named(rig, "pwd; echo $A; f").stdout == b"/usr\n1\nf\n"
        assert named(rig, "pwd; echo $A", "two").stdout == b"/etc\n2\n"
        assert rig.run("pwd; echo ${A-none}").stdout == f"{rig.workspace}\nnone\n".encode()


def test_the_request_in_a_guest(tmp_path: Path) -> None:
    """A request's variables and directory win; the directory stays."""
    with guest(tmp_path) as rig:
        named(rig, "cd /usr; export A=1")
        done = named(rig, "pwd; echo $A $GIVEN", cwd="/etc", env={"A": "2"})

        assert done.stdout == b"/etc\n2 by the daemon\n"
        assert named(rig, "pwd; echo $A").stdout == b"/etc\n1\n"


def test_it_is_called_bash(tmp_path: Path) -> None:
    """Name, last argument, command text and messages are those of `bash -c`."""
    with guest(tmp_path) as rig:
        for _ in range(2):
            done = named(rig, 'echo "$0 $_ $BASH_EXECUTION_STRING"; nonsense')
            text = 'bash bash echo "$0 $_ $BASH_EXECUTION_STRING"; nonsense\n'
            assert done.stdout.decode() == text
            assert done.stderr == b"bash: line 1: nonsense: command not found\n"
            assert done.exited is not None
            assert (done.exited.ending, done.exited.value) == (Ending.CODE, 127)


def test_a_long_command(tmp_path: Path) -> None:
    """A command that needs a bash of its own has the state too."""
    with guest(tmp_path) as rig:
        named(rig, "export A=1; cd /usr")
        done = named(rig, "echo $A; pwd; A=2 #" + "x" * 20_000)

        assert done.stdout == b"1\n/usr\n"
        assert named(rig, "echo $A").stdout == b"2\n"
        assert named(rig, "echo $A; pwd", env={"BASH_ENV": "/dev/null"}).stdout == b"2\n/usr\n"


def test_a_large_state(tmp_path: Path) -> None:
    """A state beyond what a pipe holds comes back whole."""
    with guest(tmp_path) as rig:
        line = "for i in {1..20}; do printf -v x '%010000d' $i; export V$i=$x; done"
        assert named(rig, line).stderr == b""
        done = named(rig, "echo ${#V1} ${V20: -2}; set | grep -c '^V[0-9]*='")

        assert done.stdout == b"10000 20\n20\n"


def test_a_state_over_the_limit(tmp_path: Path) -> None:
    """It is not kept, the command is told, and the state from before stays."""
    with guest(tmp_path) as rig:
        named(rig, "export A=1")
        done = named(
            rig,
            "A=2; for i in {1..40}; do printf -v x '%010000d' $i; export V$i=$x; done; exit 3",
        )

        assert done.stderr == b"sandboxd: the state of shell one is too large to be kept\n"
        assert done.exited is not None
        assert done.exited.value == 3
        assert named(rig, "echo $A ${V1-none}").stdout == b"1 none\n"


def test_a_background_process_holds_nothing(tmp_path: Path) -> None:
    """What a command leaves running neither delays its end nor spoils its state."""
    with guest(tmp_path) as rig:
        done = named(
            rig, f"sleep 1000 >/dev/null 2>&1 & yes >&{named_shell.STATE} 2>/dev/null & true"
        )

        assert done.exited is not None
        assert named(rig, "echo ok").stdout == b"ok\n"


def test_a_killed_command_saves_nothing(tmp_path: Path) -> None:
    """After a kill the state from before is in force."""
    with guest(tmp_path) as rig:
        named(rig, "export A=1")
        number = rig.start("A=2; echo on; while :; do :; done", shell_state={"name": "one"})
        rig.wait_for(number, b"on\n")
        rig.say(Kind.KILL, number)
        rig.finish(number)

        assert named(rig, "echo $A").stdout == b"1\n"


def test_a_state_across_a_broken_link(tmp_path: Path) -> None:
    """It lives as long as the guest, not as long as the daemon."""
    with guest(tmp_path, grace_seconds=15.0) as rig:
        named(rig, "export A=1; cd /usr")
        rig.reconnect()

        assert named(rig, "echo $A; pwd").stdout == b"1\n/usr\n"


def test_at_most_64_shells(tmp_path: Path) -> None:
    """One more is refused; those that are there go on."""
    with guest(tmp_path) as rig:
        for i in range(named_shell.MAX_SHELLS):
            named(rig, ":", f"s{i}")

        assert named(rig, ":", "more").refused == "there are 64 named shells already"
        assert named(rig, "echo on", "s0").stdout == b"on\n"


def test_argv_is_refused(tmp_path: Path) -> None:
    """An argument vector would replace the shell."""
    with guest(tmp_path) as rig:
        done = rig.run(None, argv=["true"], shell_state={"name": "one"})

        assert done.refused == "a named shell runs a command line, not an argument vector"


def test_an_image_without_bash(tmp_path: Path) -> None:
    """There named shells are refused, and other commands run in sh."""
    with guest(tmp_path, mode="no bash") as rig:
        assert named(rig, ":").refused == "named shells need bash"
        assert rig.run("echo $0").stdout == b"sh\n"


def test_the_descriptor_of_the_state_is_hidden(tmp_path: Path) -> None:
    """Commands without a named shell have their three descriptors and no more."""
    with guest(tmp_path) as rig:
        # The fourth is the listing's own.
        assert rig.run("exec ls /proc/self/fd").stdout == b"0\n1\n2\n3\n"
        assert rig.run("exec ls /proc/self/fd", stdin=True).stdout == b"0\n1\n2\n3\n"
        assert rig.run(None, argv=["ls", "/proc/self/fd"]).stdout == b"0\n1\n2\n3\n"
