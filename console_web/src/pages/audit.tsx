// The audit log: who did what, and whether the log is whole.

import { useState } from "preact/hooks";
import type { AuditLine, VerifyAuditResponse } from "#gen/admin_service_pb";
import { admin, call } from "../api";
import { clock, moment, plural } from "../format";
import { attempt } from "../store";
import { Button, Empty, Name, usePoll } from "../ui";

export function Audit() {
  const [lines, setLines] = useState<AuditLine[] | null>(null);
  const [next, setNext] = useState("");
  const [who, setWho] = useState("");
  const [action, setAction] = useState("");
  const [sessionId, setSessionId] = useState("");
  const [strangers, setStrangers] = useState(false);
  const [verdict, setVerdict] = useState<VerifyAuditResponse | null>(null);
  const [isPaged, setPaged] = useState(false);
  const filter = { who, action, sessionId, strangers, pageSize: 200 };
  usePoll(
    async () => {
      if (isPaged) return;
      const page = await call(admin.listAudit, filter);
      setLines(page.lines);
      setNext(page.nextPageToken);
    },
    2000,
    [who, action, sessionId, strangers, isPaged],
  );
  const older = async () => {
    const page = await attempt(call(admin.listAudit, { ...filter, pageToken: next }));
    if (!page) return;
    setPaged(true);
    setLines([...(lines ?? []), ...page.lines]);
    setNext(page.nextPageToken);
  };
  const verify = async () => setVerdict((await attempt(call(admin.verifyAudit, {}))) ?? null);
  const field = (label: string, value: string, set: (value: string) => void) => (
    <input
      data-filter={label === "who" ? true : undefined}
      placeholder={label}
      aria-label={label}
      value={value}
      onInput={(event) => {
        setPaged(false);
        set(event.currentTarget.value);
      }}
    />
  );
  return (
    <section>
      <h1>Audit</h1>
      <div class="row wrap">
        {field("who", who, setWho)}
        {field("action", action, setAction)}
        {field("session", sessionId, setSessionId)}
        <label>
          <input type="checkbox" checked={strangers} onChange={(event) => setStrangers(event.currentTarget.checked)} /> strangers
        </label>
        <Button onClick={verify}>Verify</Button>
        {verdict && (
          <span class={verdict.whole ? "good" : "bad"} role="status">
            {verdict.whole
              ? `The chain is whole: ${plural(verdict.lines, "line")}, head ${verdict.lastSequence}:${verdict.lastHash.slice(0, 8)}`
              : verdict.problems.join(" ")}
          </span>
        )}
        {isPaged && (
          <Button kind="plain" onClick={() => setPaged(false)}>
            newest lines
          </Button>
        )}
      </div>
      {lines && !lines.length && <Empty>No line matches.</Empty>}
      <ol class="audit">
        {(lines ?? []).map((line) => (
          <li key={String(line.sequence)}>
            <details>
              <summary>
                <time dateTime={moment(line.time)}>{clock(line.time)}</time>{" "}
                <strong>
                  <Name>{line.who}</Name>
                </strong>{" "}
                {line.action} <span class="faint">{about(line)}</span>
              </summary>
              <pre class="output" tabIndex={0}>
                {JSON.stringify(JSON.parse(line.json), null, 2)}
              </pre>
            </details>
          </li>
        ))}
      </ol>
      {next && (
        <Button kind="plain" onClick={older}>
          older lines
        </Button>
      )}
    </section>
  );
}

function about(line: AuditLine): string {
  const fields = JSON.parse(line.json) as Record<string, unknown>;
  return ["user", "thread", "command", "path", "method", "reason", "code"]
    .filter((name) => fields[name] !== undefined)
    .map((name) => `${name} ${String(fields[name]).slice(0, 80)}`)
    .join(", ");
}
