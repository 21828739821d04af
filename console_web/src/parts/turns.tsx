// Snapshots of a session: what changed between two of them, going back, and trying again from one.

import { useState } from "preact/hooks";
import { SnapshotCause, SnapshotChangeKind, type Snapshot, type SnapshotChange } from "#gen/snapshot_pb";
import { SessionState, type Session } from "#gen/session_pb";
import { call, sessions, snapshots, stream } from "../api";
import { bytes, clock, plural } from "../format";
import { attempt, go, may, say } from "../store";
import { ask, Button, Empty, Name, usePoll } from "../ui";

const AUTO: [number, string][] = [
  [1, "only when asked"],
  [2, "after each command"],
  [3, "for each turn"],
];
const KINDS: Partial<Record<SnapshotChangeKind, string>> = {
  [SnapshotChangeKind.ADDED]: "+",
  [SnapshotChangeKind.CHANGED]: "~",
  [SnapshotChangeKind.REMOVED]: "−",
  [SnapshotChangeKind.MOVED]: "→",
};

export function Turns({ session }: { session: Session }) {
  const [line, setLine] = useState<Snapshot[] | null>(null);
  const [problem, setProblem] = useState("");
  const [chosen, setChosen] = useState<bigint | null>(null);
  const load = async () => {
    try {
      setLine((await call(snapshots.listSnapshots, { sessionId: session.sessionId, pageSize: 500 })).snapshots);
      setProblem("");
    } catch (error) {
      const { reason, message } = error as { reason?: string; message: string };
      if (reason !== "SNAPSHOTS_OFF") throw error;
      setProblem(message);
    }
  };
  usePoll(load, 3000, [session.sessionId]);
  const isActive = session.state === SessionState.ACTIVE;
  const create = async () => {
    const label = await ask("Take a snapshot", "A label, to find it again", "Take", { input: "" });
    if (label === null) return;
    const taken = await attempt(call(snapshots.createSnapshot, { sessionId: session.sessionId, label }));
    if (taken?.snapshot) say(`Snapshot ${taken.snapshot.number} was taken.`);
    await attempt(load());
  };
  const change = (value: number) => attempt(call(sessions.updateSession, { sessionId: session.sessionId, autoSnapshot: value }));
  if (problem) return <Empty>{problem}</Empty>;
  return (
    <div class="turns">
      {may.act && isActive && (
        <div class="row wrap">
          <Button kind="main" onClick={create}>
            Take a snapshot
          </Button>
          <label>
            Automatic{" "}
            <select value={session.autoSnapshot || 1} onChange={(event) => change(Number(event.currentTarget.value))}>
              {AUTO.map(([value, word]) => (
                <option key={value} value={value}>
                  {word}
                </option>
              ))}
            </select>
          </label>
        </div>
      )}
      {line && !line.length && <Empty>There are no snapshots. Take one, or have one taken after each command that changes files.</Empty>}
      <ol class="line">
        {(line ?? []).map((snapshot, index) => (
          <li key={String(snapshot.number)}>
            <button
              type="button"
              class="plain entry"
              aria-expanded={chosen === snapshot.number}
              onClick={() => setChosen(chosen === snapshot.number ? null : snapshot.number)}
            >
              <strong>#{String(snapshot.number)}</strong>
              <span class="faint">{clock(snapshot.createTime)}</span>
              <span>
                <Name>{snapshot.label || snapshot.turnId || SnapshotCause[snapshot.cause].toLowerCase().replaceAll("_", " ")}</Name>
              </span>
              <span class="spring" />
              <span class="faint">
                {plural(snapshot.changed, "change")}, {plural(snapshot.files, "file")}, {bytes(snapshot.storedBytes)} stored
              </span>
            </button>
            {chosen === snapshot.number && <Chosen session={session} snapshot={snapshot} previous={line?.[index + 1]} reload={load} />}
          </li>
        ))}
      </ol>
    </div>
  );
}

function Chosen(props: { session: Session; snapshot: Snapshot; previous?: Snapshot; reload: () => Promise<void> }) {
  const { session, snapshot, previous, reload } = props;
  const [changes, setChanges] = useState<SnapshotChange[] | null>(null);
  const ref = { ref: { case: "number" as const, value: snapshot.number } };
  const compare = async (withPresent: boolean) => {
    const before = previous ? { ref: { case: "number" as const, value: previous.number } } : ref;
    const sides = withPresent ? { before: ref } : { before, after: ref };
    const found: SnapshotChange[] = [];
    const work = async () => {
      for await (const part of stream(snapshots.diffSnapshots, { sessionId: session.sessionId, ...sides, withText: true })) found.push(...part.changes);
    };
    await attempt(work());
    setChanges(found);
  };
  const rewind = async () => {
    const text = "All commands end, and the files are as they were then. A snapshot of the present is taken first.";
    if (!(await ask(`Go back to snapshot ${snapshot.number}?`, text, "Go back", { danger: true }))) return;
    const done = await attempt(call(snapshots.restoreSession, { sessionId: session.sessionId, snapshot: ref }));
    if (done?.before) say(`The session is as it was. Snapshot ${done.before.number} has what it was before.`);
    await attempt(reload());
  };
  const fork = async () => {
    const threadId = await ask("Try again from here", "Thread of the new session", "Fork", { input: `${session.threadId}-fork` });
    if (!threadId) return;
    const done = await attempt(call(snapshots.forkSession, { sessionId: session.sessionId, snapshot: ref, threadIds: [threadId] }));
    const made = done?.forks[0];
    if (made?.session) go("session", made.session.sessionId);
    else if (made) say(made.message, true);
  };
  const remove = async () => {
    await attempt(call(snapshots.deleteSnapshot, { sessionId: session.sessionId, number: snapshot.number }));
    await attempt(reload());
  };
  return (
    <div class="kept">
      <div class="row wrap">
        <Button onClick={() => compare(false)}>What changed</Button>
        <Button onClick={() => compare(true)}>Against the present</Button>
        {may.act && (
          <>
            <Button onClick={rewind}>Go back</Button>
            <Button onClick={fork}>Fork</Button>
            <Button kind="plain" onClick={remove}>
              Delete
            </Button>
          </>
        )}
      </div>
      {changes && !changes.length && <Empty>Nothing changed.</Empty>}
      {changes?.map((change) => (
        <details key={`${change.kind}${change.path}`} open={changes.length < 6}>
          <summary>
            {KINDS[change.kind]} <Name>{change.path}</Name>
            {change.movedFrom && (
              <span class="faint">
                {" "}
                from <Name>{change.movedFrom}</Name>
              </span>
            )}{" "}
            <span class="faint">
              {bytes(change.oldSizeBytes)} → {bytes(change.newSizeBytes)}
              {change.binary ? ", not text" : ""}
            </span>
          </summary>
          {change.unifiedDiff && (
            <pre class="output diff" tabIndex={0}>
              {change.unifiedDiff.split("\n").map((text, index) => (
                <span key={index} class={text.startsWith("+") ? "good" : text.startsWith("-") ? "bad" : ""}>
                  {`${text}\n`}
                </span>
              ))}
            </pre>
          )}
        </details>
      ))}
    </div>
  );
}
