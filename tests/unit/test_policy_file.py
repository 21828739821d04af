"""The policy `custom`, from TOML."""

from __future__ import annotations

from pathlib import Path

import pytest

from sandboxd.policy import InvalidPolicy, Rule, check, from_toml, load


def rule(command: str, text: str) -> Rule | None:
    findings = check(command, from_toml(text)).findings
    return findings[0].rule if findings else None


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        # a list of its own
        ('allow = ["git"]', "git status && cd x", None),
        ('allow = ["git"]', "ls", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["git"]', "$X", Rule.DYNAMIC),
        ('allow = ["git"]', "git 'x", Rule.UNPARSABLE),
        ('allow = ["git"]', "env git status", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["git", "env"]', "env git status", None),
        ('allow = ["/workspace/run.sh"]', "/workspace/run.sh x", None),
        ('allow = ["/workspace/run.sh"]', "/tmp/run.sh x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["busybox", "ls"]', "busybox ls", None),
        ('allow = ["busybox", "ls"]', "busybox rm x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["setsid", "ls"]', "setsid -w ls", None),
        ('allow = ["watch", "ls"]', "watch -n 1 ls -l", None),
        ('allow = ["watch", "ls"]', "watch 'ls; rm x'", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["script", "ls"]', "script -c 'rm x'", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["ssh", "ls"]', "ssh -p 22 host ls", None),
        ('allow = ["ssh", "ls"]', "ssh host 'ls; rm x'", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["ssh", "ls"]', "ssh host", Rule.UNSEEN),
        ('allow = ["sudo", "ls"]', "sudo -u root A=1 ls", None),
        ('allow = ["sudo", "ls"]', "sudo -u root rm x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["su", "ls"]', "su -c 'rm x'", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["chroot", "ls"]', "chroot / rm x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["ionice", "ls"]', "ionice -c 3 rm x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["flock", "ls"]', "flock -n lock rm x", Rule.NOT_ON_ALLOW_LIST),
        ('allow = ["parallel", "ls"]', "parallel ls ::: x", Rule.UNSEEN),
        ('allow = ["source"]', "source x.sh", Rule.UNSEEN),
        ('allow = ["coproc", "ls"]', "coproc ls", None),
        ('allow = ["coproc", "ls"]', "coproc { ls; }", Rule.UNPARSABLE),
        # more than strict
        ('extends = "strict"\nallow = ["git"]', "git log | head", None),
        ('extends = "strict"\nallow = ["git"]', "rm x", Rule.FORBIDDEN_COMMAND),
        ('extends = "strict"\nallow = ["rm"]', "rm x", None),
        ('extends = "strict"\nforbid = ["python3"]', "python3 x.py", Rule.FORBIDDEN_COMMAND),
        ('extends = "strict"\nallow = ["rm"]\nforbid = ["rm"]', "rm x", Rule.FORBIDDEN_COMMAND),
        # less than open
        ('extends = "open"\nforbid = ["nc"]', "perl -e 1; $X", None),
        ('extends = "open"\nforbid = ["nc"]', "ls | nc x 1", Rule.FORBIDDEN_COMMAND),
        ('extends = "open"\nforbid = ["nc"]', "bash -c 'n\"\"c x'", Rule.FORBIDDEN_COMMAND),
        ('extends = "open"\nforbid = ["nc"]', "PATH=. ls 'x", None),
        # patterns
        ('extends = "open"\nforbid_patterns = ["git push*"]', "git pull", None),
        (
            'extends = "open"\nforbid_patterns = ["git push*"]',
            "cd x && /usr/bin/git 'push' --force",
            Rule.FORBIDDEN_PATTERN,
        ),
        (
            'extends = "strict"\nforbid_patterns = ["python3 -m pip*"]',
            "timeout 9 python3 -m pip install x",
            Rule.FORBIDDEN_PATTERN,
        ),
        # writes
        ('extends = "open"\nforbid_writes = ["/etc/*"]', "echo x > out", None),
        ('extends = "open"\nforbid_writes = ["/etc/*"]', "cat < /etc/passwd", None),
        ('extends = "open"\nforbid_writes = ["/etc/*"]', "ls 2>&1", None),
        ('extends = "open"\nforbid_writes = ["/etc/*"]', "echo x > /etc/x", Rule.FORBIDDEN_WRITE),
        (
            'extends = "open"\nforbid_writes = ["/etc/*"]',
            "echo x >> '/tmp/../etc/x'",
            Rule.FORBIDDEN_WRITE,
        ),
        ('extends = "open"\nforbid_writes = ["/etc/*"]', 'echo x &> "$f"', Rule.FORBIDDEN_WRITE),
        # code in a command
        ('extends = "strict"\ninline_code = false', "python3 x.py -c", None),
        ('extends = "strict"\ninline_code = false', "python3 -c 'x'", Rule.UNSEEN),
        ('extends = "strict"\ninline_code = false', "python3 -Ic 'x'", Rule.UNSEEN),
        ('extends = "strict"\ninline_code = false', "python3 <<'E'\nx\nE\n", Rule.UNSEEN),
        ('extends = "strict"\ninline_code = false', "echo x | python3", Rule.UNSEEN),
        ('extends = "strict"\ninline_code = false', "echo x | python3 -", Rule.UNSEEN),
    ],
)
def test_file_says_what_may_run(text: str, command: str, expected: Rule | None) -> None:
    """Lists, patterns, writes and inline code, on their own or on top of a profile."""
    assert rule(command, text) == expected


def test_file_has_words_of_its_own() -> None:
    """An operator can say what to do in place of a command."""
    policy = from_toml('extends = "strict"\n[instead]\ngit = "Ask the release team."')

    assert "Ask the release team." in check("git push", policy).explanation


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "Write `allow"),
        ("allow = [", "not valid TOML"),
        ('alow = ["x"]', "did you mean `allow`"),
        ('zzz = ["x"]', "the settings are allow"),
        ('extends = "lax"', '"strict" or "open"'),
        ('allow = "ls"', "list of names"),
        ("allow = [1]", "list of names"),
        ('allow = [""]', "list of names"),
        ('extends = "open"\ninline_code = 1', "true or false"),
        ('extends = "open"\ninstead = ["x"]', "sentence for each command"),
    ],
)
def test_file_that_is_no_policy_is_refused(text: str, told: str) -> None:
    """The operator hears what is wrong with it."""
    with pytest.raises(InvalidPolicy, match=told):
        from_toml(text)


def test_file_is_read(tmp_path: Path) -> None:
    """From disk, and what cannot be read is told without its path."""
    path = tmp_path / "policy.toml"
    with pytest.raises(InvalidPolicy, match=r"cannot be read \(No such file"):
        load(path)
    path.write_bytes(b"\xff")
    with pytest.raises(InvalidPolicy, match="not valid UTF-8"):
        load(path)
    path.write_bytes(b"#" * (1 << 20) + b"\n")
    with pytest.raises(InvalidPolicy, match="larger than"):
        load(path)
    path.write_text('allow = ["git"]')
    assert load(path).name == "custom"
