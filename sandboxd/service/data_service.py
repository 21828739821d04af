"""DataService."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from itertools import islice

from sandboxd.access import Scope, current_caller
from sandboxd.data.answers import End, Rows
from sandboxd.data.broker import Broker
from sandboxd.errors import DataSourceNotFound, quoted
from sandboxd.service import data_wire, wire
from sandboxd.service.session_wire import name
from sandboxd.service.wire import Context
from sandboxd.sessions.sessions import Sessions
from sandboxd_proto.v1 import data_service_pb2 as pb
from sandboxd_proto.v1 import data_service_pb2_grpc as pb_grpc


class DataServicer(pb_grpc.DataServiceServicer):
    def __init__(self, broker: Broker, sessions: Sessions) -> None:
        self._broker = broker
        self._sessions = sessions

    async def ListDataSources(
        self, request: pb.ListDataSourcesRequest, context: Context
    ) -> pb.ListDataSourcesResponse:
        user_id = _acting_for(request.user_id)
        is_admin = current_caller().scope is Scope.ADMIN
        return pb.ListDataSourcesResponse(
            data_sources=[
                data_wire.source(state, for_admin=is_admin)
                for state in self._broker.sources_of(user_id)
            ]
        )

    async def Query(
        self, request: pb.QueryRequest, context: Context
    ) -> AsyncIterator[pb.QueryResponse]:
        user_id = await self._user(request.user_id, request.session_id, request.data_source)
        asked = data_wire.query(request, user_id=user_id)
        async with aclosing(self._broker.run(asked)) as parts:
            async for part in parts:
                yield data_wire.part(part)

    async def GetSchema(
        self, request: pb.GetSchemaRequest, context: Context
    ) -> pb.GetSchemaResponse:
        user_id = await self._user(request.user_id, request.session_id, request.data_source)
        asked = data_wire.schema_request(request, user_id=user_id)
        lines, is_cut = bytearray(), False
        async with aclosing(self._broker.run(asked)) as parts:
            async for part in parts:
                if isinstance(part, Rows):
                    lines += part.json_lines
                elif isinstance(part, End):
                    is_cut = bool(part.truncated)
        return pb.GetSchemaResponse(tables=data_wire.tables(bytes(lines)), truncated=is_cut)

    async def ListQueries(
        self, request: pb.ListQueriesRequest, context: Context
    ) -> pb.ListQueriesResponse:
        if request.session_id:
            user_id = self._sessions.get(request.session_id).record.user_id
        else:
            user_id = _acting_for(request.user_id)
        found = self._broker.latest.find(
            user_id=user_id, session_id=request.session_id, source=request.data_source
        )
        page = islice(found, wire.page_size(request.page_size))
        return pb.ListQueriesResponse(queries=[data_wire.query_info(record) for record in page])

    async def _user(self, user_id: str, session_id: str, source: str) -> str:
        """The user who queries: that of the session, which must have asked for the source."""
        if not session_id:
            return _acting_for(user_id)
        await self._sessions.wait_until_back(session_id)
        session = self._sessions.get(session_id)
        session.check_active()
        session.touch()
        if source not in session.record.data_sources:
            known = ", ".join(session.record.data_sources) or "none"
            raise DataSourceNotFound(
                f"This session was not opened with the data source {quoted(source)}; it has "
                f"{known}. Open it again with `data_sources` to add it.",
                source=source,
            )
        return session.record.user_id


def _acting_for(user_id: str) -> str:
    current_caller().check_acts_for(name("user_id", user_id))
    return user_id
