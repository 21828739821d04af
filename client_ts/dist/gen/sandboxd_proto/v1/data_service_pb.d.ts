import type { GenEnum, GenFile, GenMessage, GenService } from "@bufbuild/protobuf/codegenv2";
import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";
import type { Message } from "@bufbuild/protobuf";
/**
 * Describes the file sandboxd_proto/v1/data_service.proto.
 */
export declare const file_sandboxd_proto_v1_data_service: GenFile;
/**
 * Request for the data sources of a user.
 *
 * @generated from message sandboxd.v1.ListDataSourcesRequest
 */
export type ListDataSourcesRequest = Message<"sandboxd.v1.ListDataSourcesRequest"> & {
    /**
     * Required. User who wants to query.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
};
/**
 * Describes the message sandboxd.v1.ListDataSourcesRequest.
 * Use `create(ListDataSourcesRequestSchema)` to create a new message.
 */
export declare const ListDataSourcesRequestSchema: GenMessage<ListDataSourcesRequest>;
/**
 * The data sources of a user.
 *
 * @generated from message sandboxd.v1.ListDataSourcesResponse
 */
export type ListDataSourcesResponse = Message<"sandboxd.v1.ListDataSourcesResponse"> & {
    /**
     * Those that the user may query, sorted by name.
     *
     * @generated from field: repeated sandboxd.v1.DataSource data_sources = 1;
     */
    dataSources: DataSource[];
};
/**
 * Describes the message sandboxd.v1.ListDataSourcesResponse.
 * Use `create(ListDataSourcesResponseSchema)` to create a new message.
 */
export declare const ListDataSourcesResponseSchema: GenMessage<ListDataSourcesResponse>;
/**
 * A database that can be queried. Where it is and how the daemon logs in is not part of the API.
 *
 * @generated from message sandboxd.v1.DataSource
 */
export type DataSource = Message<"sandboxd.v1.DataSource"> & {
    /**
     * Name that the operator gave it.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * What it holds, in the operator's words.
     *
     * @generated from field: string description = 2;
     */
    description: string;
    /**
     * `postgresql` or `sqlite`.
     *
     * @generated from field: string engine = 3;
     */
    engine: string;
    /**
     * Tables that accept INSERT, UPDATE and DELETE; all others are read-only.
     *
     * @generated from field: repeated string writable_tables = 4;
     */
    writableTables: string[];
    /**
     * Limits of a query.
     *
     * @generated from field: sandboxd.v1.DataLimits limits = 5;
     */
    limits?: DataLimits | undefined;
    /**
     * Why it cannot be used now, as a sentence; empty if it can, and before its first use.
     *
     * @generated from field: string problem = 6;
     */
    problem: string;
    /**
     * Set for admins. What an operator should know of its login, such as rights that it does not need.
     *
     * @generated from field: repeated string remarks = 7;
     */
    remarks: string[];
    /**
     * Set for admins. Queries that have ended since the daemon started, by outcome: OK, or the reason of the error.
     *
     * @generated from field: map<string, uint64> queries = 8;
     */
    queries: {
        [key: string]: bigint;
    };
};
/**
 * Describes the message sandboxd.v1.DataSource.
 * Use `create(DataSourceSchema)` to create a new message.
 */
export declare const DataSourceSchema: GenMessage<DataSource>;
/**
 * Limits of a query.
 *
 * @generated from message sandboxd.v1.DataLimits
 */
export type DataLimits = Message<"sandboxd.v1.DataLimits"> & {
    /**
     * Time of one query.
     *
     * @generated from field: google.protobuf.Duration timeout = 1;
     */
    timeout?: Duration | undefined;
    /**
     * Rows of one answer; further ones are cut off.
     *
     * @generated from field: uint64 max_rows = 2;
     */
    maxRows: bigint;
    /**
     * Bytes of the rows of one answer, as JSON; further rows are cut off.
     *
     * @generated from field: uint64 max_bytes = 3;
     */
    maxBytes: bigint;
    /**
     * Rows that one statement may change.
     *
     * @generated from field: uint64 max_changed_rows = 4;
     */
    maxChangedRows: bigint;
};
/**
 * Describes the message sandboxd.v1.DataLimits.
 * Use `create(DataLimitsSchema)` to create a new message.
 */
export declare const DataLimitsSchema: GenMessage<DataLimits>;
/**
 * Request to run one statement.
 *
 * @generated from message sandboxd.v1.QueryRequest
 */
export type QueryRequest = Message<"sandboxd.v1.QueryRequest"> & {
    /**
     * Required unless `session_id` is set. User who queries.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Optional. Session that the query belongs to; its user queries, and it must have been opened with the data source.
     *
     * @generated from field: string session_id = 2;
     */
    sessionId: string;
    /**
     * Required. Name of the data source.
     *
     * @generated from field: string data_source = 3;
     */
    dataSource: string;
    /**
     * Required. One statement, at most 64 KiB, with parameters as `:name`.
     *
     * @generated from field: string sql = 4;
     */
    sql: string;
    /**
     * Optional. Values of the parameters: a JSON object by name, at most 128 KiB. Bytes are an object `{"$bytes": "base64"}`, lists become
     * arrays; what JSON has no type for, such as dates and exact numbers, is sent as text.
     *
     * @generated from field: string params_json = 5;
     */
    paramsJson: string;
    /**
     * Optional. Most rows to return; absent means the limit of the data source, and more than that is not returned.
     *
     * @generated from field: uint64 max_rows = 6;
     */
    maxRows: bigint;
    /**
     * Optional. Most bytes of rows to return; the same.
     *
     * @generated from field: uint64 max_bytes = 7;
     */
    maxBytes: bigint;
    /**
     * Optional. Time of the query; the same.
     *
     * @generated from field: google.protobuf.Duration timeout = 8;
     */
    timeout?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.QueryRequest.
 * Use `create(QueryRequestSchema)` to create a new message.
 */
export declare const QueryRequestSchema: GenMessage<QueryRequest>;
/**
 * A part of an answer.
 *
 * @generated from message sandboxd.v1.QueryResponse
 */
export type QueryResponse = Message<"sandboxd.v1.QueryResponse"> & {
    /**
     * The columns first, then rows, then the end.
     *
     * @generated from oneof sandboxd.v1.QueryResponse.part
     */
    part: {
        /**
         * The columns of all rows. Not sent for a statement that returns no rows.
         *
         * @generated from field: sandboxd.v1.QueryColumns columns = 1;
         */
        value: QueryColumns;
        case: "columns";
    } | {
        /**
         * Next bytes of the rows, at most 256 KiB: each row is a JSON array followed by a newline. A message may end within a row.
         *
         * @generated from field: bytes rows_json = 2;
         */
        value: Uint8Array;
        case: "rowsJson";
    } | {
        /**
         * The query ended well; the last message.
         *
         * @generated from field: sandboxd.v1.QueryEnd end = 3;
         */
        value: QueryEnd;
        case: "end";
    } | {
        case: undefined;
        value?: undefined;
    };
};
/**
 * Describes the message sandboxd.v1.QueryResponse.
 * Use `create(QueryResponseSchema)` to create a new message.
 */
export declare const QueryResponseSchema: GenMessage<QueryResponse>;
/**
 * The columns of an answer.
 *
 * @generated from message sandboxd.v1.QueryColumns
 */
export type QueryColumns = Message<"sandboxd.v1.QueryColumns"> & {
    /**
     * In the order of the values of a row.
     *
     * @generated from field: repeated sandboxd.v1.QueryColumn columns = 1;
     */
    columns: QueryColumn[];
};
/**
 * Describes the message sandboxd.v1.QueryColumns.
 * Use `create(QueryColumnsSchema)` to create a new message.
 */
export declare const QueryColumnsSchema: GenMessage<QueryColumns>;
/**
 * A column of an answer.
 *
 * @generated from message sandboxd.v1.QueryColumn
 */
export type QueryColumn = Message<"sandboxd.v1.QueryColumn"> & {
    /**
     * Its name in the statement.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * How its values are written: `int`, `bool`, `text`, `json` as they are in JSON; `float` as a number or `NaN`, `Infinity`, `-Infinity`;
     * `decimal`, `uuid`, `date`, `time`, `timestamp` (ISO 8601) and `interval` (ISO 8601) as text; `bytes` as base64; `list of T` as an
     * array of them; `any` as SQLite has it, with bytes as `{"$bytes": "base64"}`. What a type cannot express, such as the date `infinity`,
     * is the text of the database.
     *
     * @generated from field: string type = 2;
     */
    type: string;
    /**
     * Name of its type in the database; empty if it has none.
     *
     * @generated from field: string database_type = 3;
     */
    databaseType: string;
};
/**
 * Describes the message sandboxd.v1.QueryColumn.
 * Use `create(QueryColumnSchema)` to create a new message.
 */
export declare const QueryColumnSchema: GenMessage<QueryColumn>;
/**
 * How a query ended.
 *
 * @generated from message sandboxd.v1.QueryEnd
 */
export type QueryEnd = Message<"sandboxd.v1.QueryEnd"> & {
    /**
     * Names the query in the audit log and in ListQueries.
     *
     * @generated from field: string query_id = 1;
     */
    queryId: string;
    /**
     * Rows that were sent.
     *
     * @generated from field: uint64 rows = 2;
     */
    rows: bigint;
    /**
     * Bytes of these rows.
     *
     * @generated from field: uint64 bytes = 3;
     */
    bytes: bigint;
    /**
     * Rows that the statement changed.
     *
     * @generated from field: uint64 changed_rows = 4;
     */
    changedRows: bigint;
    /**
     * Which limit cut the answer off; unspecified if it is complete.
     *
     * @generated from field: sandboxd.v1.QueryTruncation truncated = 5;
     */
    truncated: QueryTruncation;
    /**
     * Time in the database.
     *
     * @generated from field: google.protobuf.Duration took = 6;
     */
    took?: Duration | undefined;
};
/**
 * Describes the message sandboxd.v1.QueryEnd.
 * Use `create(QueryEndSchema)` to create a new message.
 */
export declare const QueryEndSchema: GenMessage<QueryEnd>;
/**
 * Request for the tables of a data source.
 *
 * @generated from message sandboxd.v1.GetSchemaRequest
 */
export type GetSchemaRequest = Message<"sandboxd.v1.GetSchemaRequest"> & {
    /**
     * Required unless `session_id` is set. User who asks.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Optional. Session that was opened with the data source.
     *
     * @generated from field: string session_id = 2;
     */
    sessionId: string;
    /**
     * Required. Name of the data source.
     *
     * @generated from field: string data_source = 3;
     */
    dataSource: string;
    /**
     * Optional. Name of one table, with or without its schema; empty means all tables.
     *
     * @generated from field: string table = 4;
     */
    table: string;
    /**
     * Optional. Whether tables come with their columns.
     *
     * @generated from field: bool with_columns = 5;
     */
    withColumns: boolean;
};
/**
 * Describes the message sandboxd.v1.GetSchemaRequest.
 * Use `create(GetSchemaRequestSchema)` to create a new message.
 */
export declare const GetSchemaRequestSchema: GenMessage<GetSchemaRequest>;
/**
 * The tables of a data source.
 *
 * @generated from message sandboxd.v1.GetSchemaResponse
 */
export type GetSchemaResponse = Message<"sandboxd.v1.GetSchemaResponse"> & {
    /**
     * Those that can be read, sorted by schema and name; empty if `table` names one that does not exist or cannot be read.
     *
     * @generated from field: repeated sandboxd.v1.DataTable tables = 1;
     */
    tables: DataTable[];
    /**
     * Whether there are more tables than a query may return.
     *
     * @generated from field: bool truncated = 2;
     */
    truncated: boolean;
};
/**
 * Describes the message sandboxd.v1.GetSchemaResponse.
 * Use `create(GetSchemaResponseSchema)` to create a new message.
 */
export declare const GetSchemaResponseSchema: GenMessage<GetSchemaResponse>;
/**
 * A table or view.
 *
 * @generated from message sandboxd.v1.DataTable
 */
export type DataTable = Message<"sandboxd.v1.DataTable"> & {
    /**
     * Schema that it is in.
     *
     * @generated from field: string schema = 1;
     */
    schema: string;
    /**
     * Its name.
     *
     * @generated from field: string name = 2;
     */
    name: string;
    /**
     * `table`, `view` or `foreign`.
     *
     * @generated from field: string kind = 3;
     */
    kind: string;
    /**
     * Estimated number of rows; absent if the database has no estimate.
     *
     * @generated from field: optional uint64 rows_estimate = 4;
     */
    rowsEstimate?: bigint | undefined;
    /**
     * Its comment in the database.
     *
     * @generated from field: string comment = 5;
     */
    comment: string;
    /**
     * Its columns in their order, with `with_columns`.
     *
     * @generated from field: repeated sandboxd.v1.DataColumn columns = 6;
     */
    columns: DataColumn[];
};
/**
 * Describes the message sandboxd.v1.DataTable.
 * Use `create(DataTableSchema)` to create a new message.
 */
export declare const DataTableSchema: GenMessage<DataTable>;
/**
 * A column of a table.
 *
 * @generated from message sandboxd.v1.DataColumn
 */
export type DataColumn = Message<"sandboxd.v1.DataColumn"> & {
    /**
     * Its name.
     *
     * @generated from field: string name = 1;
     */
    name: string;
    /**
     * Its type, in the words of the database.
     *
     * @generated from field: string type = 2;
     */
    type: string;
    /**
     * Whether it may be NULL.
     *
     * @generated from field: bool nullable = 3;
     */
    nullable: boolean;
    /**
     * Expression of its default value; empty if it has none.
     *
     * @generated from field: string default_expression = 4;
     */
    defaultExpression: string;
    /**
     * Whether the database makes its values.
     *
     * @generated from field: bool generated = 5;
     */
    generated: boolean;
    /**
     * Whether it belongs to the primary key.
     *
     * @generated from field: bool primary_key = 6;
     */
    primaryKey: boolean;
    /**
     * Whether no two rows have the same value in it.
     *
     * @generated from field: bool unique = 7;
     */
    unique: boolean;
    /**
     * Column that it refers to, as `table.column`; empty if it refers to none.
     *
     * @generated from field: string references = 8;
     */
    references: string;
    /**
     * Its comment in the database.
     *
     * @generated from field: string comment = 9;
     */
    comment: string;
};
/**
 * Describes the message sandboxd.v1.DataColumn.
 * Use `create(DataColumnSchema)` to create a new message.
 */
export declare const DataColumnSchema: GenMessage<DataColumn>;
/**
 * Request for the latest queries.
 *
 * @generated from message sandboxd.v1.ListQueriesRequest
 */
export type ListQueriesRequest = Message<"sandboxd.v1.ListQueriesRequest"> & {
    /**
     * Required unless `session_id` is set. User whose queries are listed.
     *
     * @generated from field: string user_id = 1;
     */
    userId: string;
    /**
     * Optional. Only queries of this session.
     *
     * @generated from field: string session_id = 2;
     */
    sessionId: string;
    /**
     * Optional. Only queries of this data source.
     *
     * @generated from field: string data_source = 3;
     */
    dataSource: string;
    /**
     * Optional. Queries to return, 1 to 1000; 0 means 100.
     *
     * @generated from field: uint32 page_size = 4;
     */
    pageSize: number;
};
/**
 * Describes the message sandboxd.v1.ListQueriesRequest.
 * Use `create(ListQueriesRequestSchema)` to create a new message.
 */
export declare const ListQueriesRequestSchema: GenMessage<ListQueriesRequest>;
/**
 * The latest queries.
 *
 * @generated from message sandboxd.v1.ListQueriesResponse
 */
export type ListQueriesResponse = Message<"sandboxd.v1.ListQueriesResponse"> & {
    /**
     * Newest first.
     *
     * @generated from field: repeated sandboxd.v1.QueryInfo queries = 1;
     */
    queries: QueryInfo[];
};
/**
 * Describes the message sandboxd.v1.ListQueriesResponse.
 * Use `create(ListQueriesResponseSchema)` to create a new message.
 */
export declare const ListQueriesResponseSchema: GenMessage<ListQueriesResponse>;
/**
 * A query that has ended.
 *
 * @generated from message sandboxd.v1.QueryInfo
 */
export type QueryInfo = Message<"sandboxd.v1.QueryInfo"> & {
    /**
     * Names the query in the audit log.
     *
     * @generated from field: string query_id = 1;
     */
    queryId: string;
    /**
     * When it was sent.
     *
     * @generated from field: google.protobuf.Timestamp start_time = 2;
     */
    startTime?: Timestamp | undefined;
    /**
     * Session that it belongs to; empty if it belongs to none.
     *
     * @generated from field: string session_id = 3;
     */
    sessionId: string;
    /**
     * Whether code or a command inside of the sandbox sent it.
     *
     * @generated from field: bool from_inside = 4;
     */
    fromInside: boolean;
    /**
     * Name of the data source.
     *
     * @generated from field: string data_source = 5;
     */
    dataSource: string;
    /**
     * The statement, shortened to 4096 characters; empty for a look at the schema.
     *
     * @generated from field: string sql = 6;
     */
    sql: string;
    /**
     * Rows that were returned.
     *
     * @generated from field: uint64 rows = 7;
     */
    rows: bigint;
    /**
     * Bytes of these rows.
     *
     * @generated from field: uint64 bytes = 8;
     */
    bytes: bigint;
    /**
     * Rows that were changed.
     *
     * @generated from field: uint64 changed_rows = 9;
     */
    changedRows: bigint;
    /**
     * Time from the request to the end, with the wait for a connection.
     *
     * @generated from field: google.protobuf.Duration took = 10;
     */
    took?: Duration | undefined;
    /**
     * OK, CANCELLED, or the reason of the error.
     *
     * @generated from field: string outcome = 11;
     */
    outcome: string;
    /**
     * Which limit cut the answer off; unspecified if it was complete.
     *
     * @generated from field: sandboxd.v1.QueryTruncation truncated = 12;
     */
    truncated: QueryTruncation;
};
/**
 * Describes the message sandboxd.v1.QueryInfo.
 * Use `create(QueryInfoSchema)` to create a new message.
 */
export declare const QueryInfoSchema: GenMessage<QueryInfo>;
/**
 * Which limit cut an answer off: there are more rows.
 *
 * @generated from enum sandboxd.v1.QueryTruncation
 */
export declare enum QueryTruncation {
    /**
     * The answer is complete.
     *
     * @generated from enum value: QUERY_TRUNCATION_UNSPECIFIED = 0;
     */
    UNSPECIFIED = 0,
    /**
     * The number of rows.
     *
     * @generated from enum value: QUERY_TRUNCATION_ROWS = 1;
     */
    ROWS = 1,
    /**
     * The bytes of the rows, or one row that is larger than all rows may be together.
     *
     * @generated from enum value: QUERY_TRUNCATION_BYTES = 2;
     */
    BYTES = 2,
    /**
     * The time of the query.
     *
     * @generated from enum value: QUERY_TRUNCATION_TIME = 3;
     */
    TIME = 3
}
/**
 * Describes the enum sandboxd.v1.QueryTruncation.
 */
export declare const QueryTruncationSchema: GenEnum<QueryTruncation>;
/**
 * Queries databases that the operator has configured as data sources. Their credentials stay in the daemon. Statements only read, except for
 * INSERT, UPDATE and DELETE on tables that a source names; docs/data.md has the rules.
 *
 * The same queries can be sent from inside of a session that was opened with `data_sources`: `db_query` in code, `sandboxd-sql` in a shell.
 *
 * @generated from service sandboxd.v1.DataService
 */
export declare const DataService: GenService<{
    /**
     * Lists the data sources that a user may query, sorted by name.
     *
     * @generated from rpc sandboxd.v1.DataService.ListDataSources
     */
    listDataSources: {
        methodKind: "unary";
        input: typeof ListDataSourcesRequestSchema;
        output: typeof ListDataSourcesResponseSchema;
    };
    /**
     * Runs one statement. First response: the columns; then rows; last: the end. A caller that leaves cancels the query in the database.
     * Reasons: INVALID_REQUEST, DATA_SOURCE_NOT_FOUND, STATEMENT_NOT_ALLOWED, QUERY_FAILED, QUERY_TIMED_OUT, QUERY_LIMIT_REACHED,
     * QUERY_OUTCOME_UNKNOWN, QUERIES_BUSY, TOO_MANY_REQUESTS, DATA_SOURCE_UNAVAILABLE, and with `session_id` those of GetSession.
     *
     * @generated from rpc sandboxd.v1.DataService.Query
     */
    query: {
        methodKind: "server_streaming";
        input: typeof QueryRequestSchema;
        output: typeof QueryResponseSchema;
    };
    /**
     * Describes the tables of a data source that its login can read. Reasons: those of Query.
     *
     * @generated from rpc sandboxd.v1.DataService.GetSchema
     */
    getSchema: {
        methodKind: "unary";
        input: typeof GetSchemaRequestSchema;
        output: typeof GetSchemaResponseSchema;
    };
    /**
     * Lists the latest queries of a user that have ended, newest first, refused ones too, since the daemon started; at most 1000. The audit
     * log has all of them.
     *
     * @generated from rpc sandboxd.v1.DataService.ListQueries
     */
    listQueries: {
        methodKind: "unary";
        input: typeof ListQueriesRequestSchema;
        output: typeof ListQueriesResponseSchema;
    };
}>;
