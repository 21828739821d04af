"""Who calls, what they may do, and how much of it."""

from sandboxd.access.caller import (
    HOST,
    UNKNOWN,
    Caller,
    Scope,
    act_as,
    current_caller,
    is_passive,
    only_look,
)
from sandboxd.access.logins import Logins
from sandboxd.access.places import CallPlaces
from sandboxd.access.quotas import Quotas, UserLimits
from sandboxd.access.rate import RateLimit
from sandboxd.access.token_file import Access, TokensInvalid

__all__ = [
    "HOST",
    "UNKNOWN",
    "Access",
    "CallPlaces",
    "Caller",
    "Logins",
    "Quotas",
    "RateLimit",
    "Scope",
    "TokensInvalid",
    "UserLimits",
    "act_as",
    "current_caller",
    "is_passive",
    "only_look",
]
