"""Why a command cannot be started."""

from ..frames import StartFailure


class Refusal(Exception):
    """The command cannot be started; the text says why, for the caller."""

    def __init__(self, failure: StartFailure, why: str) -> None:
        super().__init__(why)
        self.failure = failure
