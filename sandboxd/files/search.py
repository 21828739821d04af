"""Lines found in files."""

from __future__ import annotations

from sandboxd.files.entries import Found, GrepResult
from sandboxd.files.worker import Worker, WorkerGone, believed
from sandboxd.guest.files import codec
from sandboxd.guest.files.codec import Kind

MAX_ANSWER_BYTES = 4 << 20


async def found_lines(worker: Worker, max_matches: int, patience: float) -> GrepResult:
    """`patience`: a search says nothing until it is over."""
    matches: list[Found] = []
    size = 0
    while True:
        kind, payload = await worker.next((Kind.FOUND, Kind.DONE), patience=patience)
        with believed():
            if kind == Kind.DONE:
                complete, searched, *_ = codec.decode_done(payload)
                break
            number, path, line = codec.decode_found(payload)
        text = line.decode(errors="replace")
        matches.append(Found(path=path, line_number=number, line=text))
        size += len(payload)
        if len(matches) > max_matches or size > MAX_ANSWER_BYTES:
            raise WorkerGone("it found more than was asked for")
    matches.sort(key=lambda match: (match.path, match.line_number))
    return GrepResult(matches=matches, complete=bool(complete), searched_files=searched)
