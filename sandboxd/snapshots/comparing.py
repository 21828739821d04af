"""The answer to a question for the difference of two snapshots."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sandboxd.snapshots import diff_worker
from sandboxd.snapshots.contract import Change, ChangeKind, Diff, DiffLimits, Hole, Kind
from sandboxd.snapshots.differences import Difference, differences, is_same_content
from sandboxd.snapshots.node import Node, Tree, entry_of
from sandboxd.snapshots.packs import ChunkReader
from sandboxd.snapshots.text_diff import MAX_WORK, TextDiff

_MAX_PATH_BYTES = 16 << 20
"""Of all paths in an answer."""
_MAX_CONTENT_BYTES = 64 << 20
"""Of all files that are read for an answer."""


class Comparing:
    """One comparison, but for what is in texts. Blocks while content is read."""

    def __init__(self, chunks: ChunkReader, limits: DiffLimits) -> None:
        self._chunks = chunks
        self._limits = limits
        self._paths_left = _MAX_PATH_BYTES
        self._content_left = _MAX_CONTENT_BYTES
        self._work_left = MAX_WORK
        self._text_left = limits.max_total_bytes
        self.texts: dict[int, Difference] = {}
        """By the place of their change in the answer: files that may be texts."""

    def compare(self, before: Tree, after: Tree) -> Diff:
        found = [
            difference
            for difference in differences(before, after)
            if _is_below(difference.path, self._limits.path_prefix)
        ]
        counts = Counter(difference.kind for difference in found)
        changes: list[Change] = []
        for difference in found[: self._limits.max_changes]:
            self._paths_left -= len(difference.path) + len(difference.old_path)
            if self._paths_left < 0:
                break
            change = _change(difference)
            if self._limits.with_text and change.is_content_changed:
                self.texts[len(changes)] = difference
            changes.append(change)
        return Diff(changes=changes, counts={kind: counts[kind] for kind in ChangeKind})

    def request(self, change: Change, difference: Difference) -> bytes | None:
        """What to ask for the text diff of a file; None if that would be too much of this call."""
        nodes = (difference.before, difference.after)
        sizes = [node.size for node in nodes if node is not None]
        self._content_left -= sum(sizes)
        if max(sizes) > self._limits.max_file_bytes or self._content_left < 0:
            return None
        if self._text_left <= 0 or self._work_left <= 0:
            return None
        paths = (change.old_path or change.path, change.path)
        return diff_worker.encode_request(
            *map(self._content, nodes),
            names=[path.decode(errors="replace") for path in paths],
            context=self._limits.context_lines,
            max_bytes=min(self._text_left, self._limits.max_text_bytes),
            max_work=self._work_left,
        )

    def with_text(self, change: Change, diff: TextDiff | None) -> Change:
        """The change with what was answered; None means that nothing was."""
        if diff is None:
            return replace(change, is_text_cut=True)
        self._work_left -= diff.work
        self._text_left -= len(diff.text.encode())
        return replace(
            change, text_diff=diff.text, is_text_cut=diff.is_cut, is_binary=diff.is_binary
        )

    def use_up(self) -> None:
        """One text took more than a call may take: no more of them."""
        self._work_left = 0

    def _content(self, node: Node | None) -> bytes:
        if node is None or node.kind is not Kind.FILE:
            return b""
        return b"".join(
            bytes(piece.size) if isinstance(piece, Hole) else self._chunks.read(piece)
            for piece in node.pieces
        )


def _change(difference: Difference) -> Change:
    before, after = difference.before, difference.after
    return Change(
        kind=difference.kind,
        path=difference.path,
        old_path=difference.old_path,
        before=entry_of(difference.old_path or difference.path, before) if before else None,
        after=entry_of(difference.path, after) if after else None,
        is_content_changed=_is_content_changed(before, after),
    )


def _is_content_changed(before: Node | None, after: Node | None) -> bool:
    files = [node for node in (before, after) if node is not None and node.kind is Kind.FILE]
    if len(files) == 1:
        return files[0].size > 0
    return len(files) == 2 and not is_same_content(files[0], files[1])


def _is_below(path: bytes, prefix: bytes) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + b"/")
