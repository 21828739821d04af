"""Values in the representations that they offer: text, HTML, images. Bounded in number and size."""

from __future__ import annotations

import sys
from binascii import a2b_base64
from typing import Any

from .channel import Reporter
from .encoder import Encoder, TooLarge
from .interrupts import Interrupts, Limit, TimeLimit
from .records import MAX_DISPLAY, MAX_MEDIA
from .summaries import summary, type_name

_SECONDS = 2.0
"""How long a value may take to represent itself."""
_FIGURE_SECONDS = 20.0
_METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_latex_", "text/latex"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_json_", "application/json"),
    ("_repr_pdf_", "application/pdf"),
)
_MAX_BUNDLE = 10


class Displays:
    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self.reporter: Reporter | None = None

    def show(self, value: Any) -> None:
        """For `display` in the user's code."""
        if self.reporter is None:
            return
        if _is_figure(value):
            self._figure(value)
            return
        media, left_out = self.represent(value)
        self.reporter.display(media, left_out)

    def represent(self, value: Any) -> tuple[list[tuple[str, bytes]], list[str]]:
        """Representations of a value, and the media types that exceed a limit."""
        found = Media()
        found.add("text/plain", self._plain(value))
        for method, media_type in _METHODS:
            offered = getattr(type(value), method, None)
            if offered is not None:
                found.add(media_type, self._call(offered, value))
        bundle = getattr(type(value), "_repr_mimebundle_", None)
        if bundle is not None:
            found.add_bundle(self._call(bundle, value))
        return found.media, found.left_out

    def _plain(self, value: Any) -> str:
        try:
            with Limit(self._interrupts, _SECONDS):
                text = repr(value)
        except TimeLimit:
            return f"<{type_name(value)}: its __repr__ took too long>"
        except (Exception, SystemExit) as error:
            return f"<{summary(value)}: its __repr__ raised {type_name(error)}>"
        return str.__str__(text)

    def _call(self, method: Any, value: Any) -> Any:
        try:
            with Limit(self._interrupts, _SECONDS):
                return method(value)
        except (Exception, SystemExit, TimeLimit):
            return None

    def figures(self) -> None:
        """Show and close the figures that are open, also if one cannot be drawn: it would be tried
        again when the run has failed, and in every later run."""
        pyplot = sys.modules.get("matplotlib.pyplot")
        if pyplot is None or self.reporter is None:
            return
        try:
            for number in list(pyplot.get_fignums())[:100]:
                self._figure(pyplot.figure(number))
        finally:
            pyplot.close("all")

    def _figure(self, figure: Any) -> None:
        from io import BytesIO

        picture = BytesIO()
        with Limit(self._interrupts, _FIGURE_SECONDS):
            figure.savefig(picture, format="png", bbox_inches="tight")
        found = Media()
        found.add("text/plain", "<Figure>")
        found.add("image/png", picture.getvalue())
        if self.reporter is not None:
            self.reporter.display(found.media, found.left_out)


def _is_figure(value: Any) -> bool:
    module = sys.modules.get("matplotlib.figure")
    kind = getattr(module, "Figure", None)
    return isinstance(kind, type) and isinstance(value, kind)


class Media:
    """Representations of one value, within the limits."""

    def __init__(self) -> None:
        self.media: list[tuple[str, bytes]] = []
        self.left_out: list[str] = []
        self._size = 0

    def add(self, media_type: str, value: Any) -> None:
        if value is None:
            return
        body = _body(media_type, value)
        if body is None:
            return
        if len(body) > MAX_MEDIA and media_type == "text/plain":
            body = body[: MAX_MEDIA - 4].decode("utf-8", "ignore").encode() + b"..."
        if len(body) > MAX_MEDIA or self._size + len(body) > MAX_DISPLAY:
            self.left_out.append(media_type)
            return
        self._size += len(body)
        self.media.append((media_type, body))

    def add_bundle(self, bundle: Any) -> None:
        if isinstance(bundle, tuple) and bundle:
            bundle = bundle[0]
        if type(bundle) is not dict:
            return
        known = {media_type for media_type, _ in self.media}
        for media_type, value in list(bundle.items())[:_MAX_BUNDLE]:
            if type(media_type) is str and len(media_type) < 100 and media_type not in known:
                self.add(media_type, value)


def _body(media_type: str, value: Any) -> bytes | None:
    """The bytes of a representation; text as UTF-8, images also if they are given in base64."""
    if isinstance(value, tuple) and value:
        value = value[0]  # with metadata
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if isinstance(value, str):
        if media_type.startswith("image/") and media_type != "image/svg+xml":
            return _decoded(value)
        return str.encode(value, "utf-8", "replace")
    if media_type.endswith("json"):
        return _json(value)
    return None


def _decoded(value: str) -> bytes | None:
    try:
        return a2b_base64(value)
    except ValueError:
        return None


def _json(value: Any) -> bytes | None:
    try:
        return Encoder(MAX_MEDIA, 1.0).encode(value).encode()
    except (TooLarge, RecursionError):
        return None
