"""One call of the API."""

from __future__ import annotations

from typing import Generic, TypeVar

from google.protobuf.message import Message

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


class Method(Generic[Request, Response]):
    """One call."""

    def __init__(
        self,
        service: str,
        name: str,
        request: type[Request],
        response: type[Response],
        is_repeatable: bool = False,
    ) -> None:
        """`is_repeatable`: calling it twice has the same effect and answer as calling it once."""
        self.service = service
        self.name = name
        self.request = request
        self.response = response
        self.is_repeatable = is_repeatable

    def __repr__(self) -> str:
        return f"<Method {self.path}>"

    @property
    def path(self) -> str:
        return f"/sandboxd.v1.{self.service}/{self.name}"
