"""Command policy: a bash grammar finds what a command would run, and lists of names decide.

It is advice, not a boundary: it cannot see what an allowed interpreter does. The kernel enforces
the limits of a sandbox. Nothing here depends on the daemon, so a client can check a command first.
"""

from sandboxd.policy.checker import CommandChecker, check
from sandboxd.policy.decision import Decision, Finding, Rule
from sandboxd.policy.profile import OPEN, STRICT, STRICT_NODE, Policy
from sandboxd.policy.profile_file import InvalidPolicy, from_table, from_toml, load

__all__ = [
    "OPEN",
    "STRICT",
    "STRICT_NODE",
    "CommandChecker",
    "Decision",
    "Finding",
    "InvalidPolicy",
    "Policy",
    "Rule",
    "check",
    "from_table",
    "from_toml",
    "load",
]
