"""The request that a worker serves."""

from collections.abc import Mapping

from .area import ROOT


class Request:
    """Fields that the daemon has checked; an absent one is zero, empty or False."""

    def __init__(self, fields: Mapping[str, object]) -> None:
        self._fields = fields

    @property
    def operation(self) -> str:
        return self.text("operation")

    def text(self, name: str) -> str:
        value = self._fields.get(name, "")
        assert isinstance(value, str)
        return value

    def number(self, name: str) -> int:
        value = self._fields.get(name) or 0
        assert isinstance(value, int)
        return value

    def seconds(self, name: str) -> float:
        value = self._fields.get(name) or 0.0
        assert isinstance(value, int | float)
        return float(value)

    def flag(self, name: str) -> bool:
        return self._fields.get(name) is True

    def raw(self, name: str) -> bytes:
        return self.text(name).encode(errors="surrogateescape")

    @property
    def shown(self) -> bytes:
        """The path as the caller named it."""
        return self.raw("shown")

    def path(self, name: str = "path") -> list[bytes]:
        """The parts of a path; the first is ROOT if it is outside of the workspace."""
        raw = self.raw(name)
        parts = [part for part in raw.split(b"/") if part]
        return [ROOT, *parts] if raw.startswith(ROOT) else parts

    @property
    def is_outside(self) -> bool:
        return self.raw("path").startswith(ROOT)

    def texts(self, name: str) -> list[str]:
        value = self._fields.get(name) or []
        assert isinstance(value, list)
        return [str(text) for text in value]

    def numbers(self, name: str) -> list[int]:
        value = self._fields.get(name) or []
        assert isinstance(value, list)
        return [int(number) for number in value]

    def words(self, name: str) -> list[bytes]:
        return [text.encode(errors="surrogateescape") for text in self.texts(name)]
