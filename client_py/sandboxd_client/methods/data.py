"""The calls of DataService."""

from __future__ import annotations

from sandboxd_client.methods.method import Method
from sandboxd_proto.v1 import data_service_pb2 as pb

SERVICE = "DataService"

LIST_DATA_SOURCES = Method(
    SERVICE, "ListDataSources", pb.ListDataSourcesRequest, pb.ListDataSourcesResponse, True
)
QUERY = Method(SERVICE, "Query", pb.QueryRequest, pb.QueryResponse)
GET_SCHEMA = Method(SERVICE, "GetSchema", pb.GetSchemaRequest, pb.GetSchemaResponse, True)
LIST_QUERIES = Method(SERVICE, "ListQueries", pb.ListQueriesRequest, pb.ListQueriesResponse, True)
