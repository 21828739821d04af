"""Command policy: what a command would run, found with a bash grammar, against lists of names.

It is advice, not a boundary: whatever an allowed interpreter does is beyond it. What a sandbox
cannot do is up to the kernel. Nothing here knows the daemon, so a client can ask beforehand.
"""

from sandboxd.policy.checker import CommandChecker, check
from sandboxd.policy.decision import Decision, Finding, Rule
from sandboxd.policy.profile import OPEN, STRICT, Policy
from sandboxd.policy.profile_file import InvalidPolicy, from_toml, load

__all__ = [
    "OPEN",
    "STRICT",
    "CommandChecker",
    "Decision",
    "Finding",
    "InvalidPolicy",
    "Policy",
    "Rule",
    "check",
    "from_toml",
    "load",
]
