"""Lists of sessions that come in pages."""

from __future__ import annotations

from typing import Any, cast

from sandboxd_client.session import list_sessions
from sandboxd_proto.v1 import session_pb2
from sandboxd_proto.v1 import session_service_pb2 as pb

PAGES = {
    "": pb.ListSessionsResponse(
        sessions=[session_pb2.Session(session_id="ses_1")],
        next_page_token="1",
        missing_workers=["c", "b"],
    ),
    "1": pb.ListSessionsResponse(next_page_token="2", missing_workers=["b"]),
    "2": pb.ListSessionsResponse(sessions=[session_pb2.Session(session_id="ses_2")]),
}


class Connection:
    """A cluster of which two workers do not answer for every page."""

    async def call(self, method: object, request: pb.ListSessionsRequest) -> Any:
        return PAGES[request.page_token]


async def test_what_any_page_lacks_is_told() -> None:
    """Later pages do not make up for it. An empty page is not the last one."""
    found = await list_sessions(cast("Any", Connection()))
    assert [one.session_id for one in found] == ["ses_1", "ses_2"]
    assert found.missing_workers == ["b", "c"]
