"""The answer to a question for the difference of two snapshots."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from sandboxd.snapshots.contract import Change, ChangeKind, Diff, DiffLimits, Hole, Kind
from sandboxd.snapshots.differences import Difference, differences, is_same_content
from sandboxd.snapshots.node import Node, Tree, entry_of
from sandboxd.snapshots.packs import ChunkReader
from sandboxd.snapshots.text_diff import is_text, text_diff

_MAX_PATH_BYTES = 16 << 20
"""Of all paths in an answer."""


class Comparing:
    """One comparison. Blocks while content is read."""

    def __init__(self, chunks: ChunkReader, limits: DiffLimits) -> None:
        self._chunks = chunks
        self._limits = limits
        self._text_left = limits.max_total_bytes
        self._paths_left = _MAX_PATH_BYTES

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
            changes.append(self._change(difference))
        return Diff(changes=changes, counts={kind: counts[kind] for kind in ChangeKind})

    def _change(self, difference: Difference) -> Change:
        before, after = difference.before, difference.after
        change = Change(
            kind=difference.kind,
            path=difference.path,
            old_path=difference.old_path,
            before=entry_of(difference.old_path or difference.path, before) if before else None,
            after=entry_of(difference.path, after) if after else None,
            is_content_changed=_is_content_changed(before, after),
        )
        if not self._limits.with_text or not change.is_content_changed:
            return change
        return self._with_text(change, difference)

    def _with_text(self, change: Change, difference: Difference) -> Change:
        nodes = (difference.before, difference.after)
        if any(node is not None and node.size > self._limits.max_file_bytes for node in nodes):
            return replace(change, is_text_cut=True)
        before, after = map(self._content, nodes)
        if not is_text(before) or not is_text(after):
            return replace(change, is_binary=True)
        names = [
            path.decode(errors="replace") for path in (change.old_path or change.path, change.path)
        ]
        diff = text_diff(
            before,
            after,
            names=(names[0], names[1]),
            context=self._limits.context_lines,
            max_bytes=max(0, min(self._text_left, self._limits.max_text_bytes)),
        )
        self._text_left -= len(diff.text.encode())
        return replace(change, text_diff=diff.text, is_text_cut=diff.is_cut)

    def _content(self, node: Node | None) -> bytes:
        if node is None or node.kind is not Kind.FILE:
            return b""
        return b"".join(
            bytes(piece.size) if isinstance(piece, Hole) else self._chunks.read(piece)
            for piece in node.pieces
        )


def _is_content_changed(before: Node | None, after: Node | None) -> bool:
    files = [node for node in (before, after) if node is not None and node.kind is Kind.FILE]
    if len(files) == 1:
        return files[0].size > 0
    return len(files) == 2 and not is_same_content(files[0], files[1])


def _is_below(path: bytes, prefix: bytes) -> bool:
    return not prefix or path == prefix or path.startswith(prefix + b"/")
