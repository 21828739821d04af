// Data sources: their tables, a box for queries, and the queries that ran.

import { useEffect, useState } from "preact/hooks";
import { QueryTruncation, type DataTable, type QueryColumn, type QueryEnd, type QueryInfo } from "#gen/data_service_pb";
import { call, data, stream } from "../api";
import { dataSources, userId } from "../capabilities";
import { bytes, clock, duration, oneLine, plural, shown } from "../format";
import { attempt, may } from "../store";
import { Button, Empty, Name, usePoll } from "../ui";
import { UserField } from "./projects";

const MAX_ROWS = 1000n;

interface Answer {
  columns: QueryColumn[];
  rows: unknown[][];
  end: QueryEnd | null;
}

export function DataSources() {
  const [name, setName] = useState(dataSources.value[0]?.name ?? "");
  const [tables, setTables] = useState<DataTable[] | null>(null);
  const [queries, setQueries] = useState<QueryInfo[]>([]);
  const [sql, setSql] = useState("");
  const [answer, setAnswer] = useState<Answer | null>(null);
  const [isRunning, setRunning] = useState(false);
  const user = userId();
  const source = dataSources.value.find((one) => one.name === name);
  const loadTables = async () => {
    setTables((await attempt(call(data.getSchema, { userId: user, dataSource: name, withColumns: true })))?.tables ?? []);
    await attempt(loadQueries());
  };
  const loadQueries = async () => {
    if (name) setQueries((await call(data.listQueries, { userId: user, dataSource: name, pageSize: 50 })).queries);
  };
  // Sources of another user may be others.
  useEffect(() => {
    if (!source) setName(dataSources.value[0]?.name ?? "");
  }, [dataSources.value]);
  // A look at the schema is a query that is recorded, so it is not repeated by itself.
  useEffect(() => {
    setTables(null);
    setAnswer(null);
    if (source && may.act) void loadTables();
  }, [source?.name, user]);
  usePoll(loadQueries, 5000, [name, user]);
  const run = async (event: Event) => {
    event.preventDefault();
    const found: Answer = { columns: [], rows: [], end: null };
    let text = "";
    const decoder = new TextDecoder();
    const work = async () => {
      for await (const { part } of stream(data.query, { userId: user, dataSource: name, sql, maxRows: MAX_ROWS })) {
        if (part.case === "columns") found.columns = part.value.columns;
        else if (part.case === "rowsJson") {
          text += decoder.decode(part.value, { stream: true });
          const lines = text.split("\n");
          text = lines.pop() ?? "";
          for (const line of lines) found.rows.push(JSON.parse(line, exactly as (key: string, value: unknown) => unknown) as unknown[]);
        } else if (part.case === "end") found.end = part.value;
      }
    };
    setRunning(true);
    await attempt(work());
    setRunning(false);
    setAnswer(found.end ? found : null);
    await attempt(loadQueries());
  };
  if (!dataSources.value.length)
    return (
      <section>
        <h1>Data</h1>
        <UserField />
        <Empty>This user may query no data source. docs/data.md says how to configure one.</Empty>
      </section>
    );
  return (
    <section>
      <h1>Data</h1>
      <div class="row wrap">
        <UserField />
        <label>
          Source{" "}
          <select value={name} onChange={(event) => setName(event.currentTarget.value)}>
            {dataSources.value.map((one) => (
              <option key={one.name}>{one.name}</option>
            ))}
          </select>
        </label>
        {source && (
          <span class="faint">
            {[source.engine, source.description, source.writableTables.length ? `writes to ${source.writableTables.join(", ")}` : "read-only"]
              .filter(Boolean)
              .map(shown)
              .join(" · ")}
          </span>
        )}
      </div>
      {source?.problem && <p class="bad">{source.problem}</p>}
      <div class="split">
        <div>
          {may.act && (
            <form onSubmit={run}>
              <textarea
                class="sql"
                aria-label="Statement"
                rows={5}
                spellcheck={false}
                placeholder="select ..."
                value={sql}
                onInput={(event) => setSql(event.currentTarget.value)}
                onKeyDown={(event) => {
                  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) void run(event);
                }}
              />
              <div class="row">
                <button class="main" disabled={isRunning || !sql.trim()}>
                  Query
                </button>
                <span class="faint">{isRunning ? "running" : "Ctrl-Enter"}</span>
              </div>
            </form>
          )}
          {answer && <Rows answer={answer} />}
          <h2>Queries</h2>
          {!queries.length && <Empty>Nothing was queried yet.</Empty>}
          <ol class="history">
            {queries.map((query) => (
              <li key={query.queryId}>
                <span class="faint">{clock(query.startTime)}</span>{" "}
                {query.sql ? (
                  <code>
                    <Name>{oneLine(query.sql)}</Name>
                  </code>
                ) : (
                  "a look at the tables"
                )}{" "}
                <span class={query.outcome === "OK" ? "good" : "bad"}>{query.outcome.toLowerCase().replaceAll("_", " ")}</span>{" "}
                <span class="faint">
                  {plural(query.rows, "row")}, {duration(query.took)}
                  {query.fromInside ? ", from the sandbox" : ""}
                </span>
              </li>
            ))}
          </ol>
        </div>
        <aside aria-label="Tables">
          <div class="row">
            <h2>Tables</h2>
            <span class="spring" />
            {may.act && (
              <Button kind="plain" onClick={loadTables}>
                Refresh
              </Button>
            )}
          </div>
          {tables?.length === 0 && <Empty>This source shows no tables.</Empty>}
          {(tables ?? []).map((table) => (
            <details key={`${table.schema}.${table.name}`}>
              <summary>
                <Name>{table.schema ? `${table.schema}.${table.name}` : table.name}</Name>{" "}
                <span class="faint">{table.rowsEstimate !== undefined ? `~${plural(table.rowsEstimate, "row")}` : ""}</span>
              </summary>
              {table.comment && <p class="faint">{shown(table.comment)}</p>}
              <ul class="plain-list">
                {table.columns.map((column) => (
                  <li key={column.name}>
                    <Name>{column.name}</Name>{" "}
                    <span class="faint">
                      {column.type}
                      {column.primaryKey ? " primary key" : ""}
                      {column.references ? ` → ${column.references}` : ""}
                    </span>
                  </li>
                ))}
              </ul>
              {may.act && <Button onClick={() => setSql(selectFrom(table))}>Select from it</Button>}
            </details>
          ))}
        </aside>
      </div>
    </section>
  );
}

// Integers of a database can be larger than numbers of JavaScript are exact: they are shown as they were sent.
function exactly(_: string, value: unknown, context?: { source?: string }): unknown {
  const isInexact = typeof value === "number" && !Number.isSafeInteger(value);
  return isInexact && context?.source ? context.source : value;
}

function selectFrom(table: DataTable): string {
  const quoted = (name: string) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);
  return `select * from ${[table.schema, table.name].filter(Boolean).map(quoted).join(".")} limit 100`;
}

function Rows({ answer }: { answer: Answer }) {
  const end = answer.end;
  return (
    <>
      <div class="scroll preview" tabIndex={0} role="region" aria-label="Rows">
        <table>
          <thead>
            <tr>
              {answer.columns.map((column, index) => (
                <th key={index} title={column.databaseType}>
                  <Name>{column.name}</Name>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {answer.rows.map((row, index) => (
              <tr key={index}>
                {row.map((value, column) => (
                  <td key={column}>{shown(value === null ? "" : typeof value === "object" ? JSON.stringify(value) : String(value))}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {end && (
        <p class="exit" role="status">
          {plural(end.rows, "row")}, {bytes(end.bytes)}, {duration(end.took)}
          {end.changedRows > 0n && `, ${plural(end.changedRows, "row")} changed`}
          {end.truncated !== QueryTruncation.UNSPECIFIED && <span class="hint"> There are more rows: the limit of {QueryTruncation[end.truncated].toLowerCase()} was reached.</span>}
        </p>
      )}
    </>
  );
}
