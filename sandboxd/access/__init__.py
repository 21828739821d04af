"""Who calls, and what they may do."""

from sandboxd.access.caller import HOST, UNKNOWN, Caller, Scope, act_as, current_caller
from sandboxd.access.rate import RateLimit
from sandboxd.access.token_file import Access, TokensInvalid

__all__ = [
    "HOST",
    "UNKNOWN",
    "Access",
    "Caller",
    "RateLimit",
    "Scope",
    "TokensInvalid",
    "act_as",
    "current_caller",
]
