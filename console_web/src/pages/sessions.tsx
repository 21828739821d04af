// All sessions that the caller sees, with what they use.

import { useRef, useState } from "preact/hooks";
import { OpenOutcome } from "#gen/session_service_pb";
import { SessionState, type Session } from "#gen/session_pb";
import { call, environments, sessions } from "../api";
import { bytes, millis, plural, span } from "../format";
import { attempt, go, may, me, say } from "../store";
import { ask, Button, Empty, Meter, Name, useKeys, usePoll } from "../ui";

const STATES: [SessionState, string][] = [
  [SessionState.UNSPECIFIED, "all"],
  [SessionState.ACTIVE, "active"],
  [SessionState.STOPPED, "stopped, files kept"],
  [SessionState.PARKED, "parked"],
  [SessionState.EXPIRED, "expired"],
  [SessionState.CLOSED, "closed"],
  [SessionState.LOST, "lost"],
];

export function stateWord(session: Session): string {
  return STATES.find(([state]) => state === session.state)?.[1] ?? "unknown";
}

/** Whether it has no sandbox, and goes on with its files when it is opened. */
export function isKept(session: Session): boolean {
  return session.state === SessionState.STOPPED || session.state === SessionState.PARKED;
}

export function Dot({ session }: { session: Session }) {
  const isActive = session.state === SessionState.ACTIVE;
  return <span class={`dot ${isActive ? "good" : isKept(session) ? "fair" : ""}`} aria-hidden="true" />;
}

export function expiry(session: Session): string {
  const left = (millis(session.expireTime) - Date.now()) / 1000;
  return left > 0 ? span(left) : "now";
}

export async function stop(session: Session): Promise<boolean> {
  const text = (
    <>
      The files and {plural(session.runningExecs, "running command")} of <Name>{session.userId}</Name> /{" "}
      <Name>{session.threadId}</Name> are deleted. This cannot be undone.
    </>
  );
  if (!(await ask("Stop this session?", text, "Stop", { danger: true }))) return false;
  return (await attempt(call(sessions.closeSession, { sessionId: session.sessionId }))) !== undefined;
}

export async function reset(session: Session): Promise<boolean> {
  const text = (
    <>
      All commands end and all files but <code>project_files/</code> are deleted. The session stays.
    </>
  );
  if (!(await ask("Reset this session?", text, "Reset", { danger: true }))) return false;
  return (await attempt(call(sessions.resetSession, { sessionId: session.sessionId }))) !== undefined;
}

export async function openSession(session: { userId: string; threadId: string; environment?: string }) {
  const opened = await attempt(call(sessions.openSession, session));
  if (opened?.session) {
    const outcome = OpenOutcome[opened.outcome].toLowerCase();
    say(`The session was ${outcome}.`);
    go("session", opened.session.sessionId);
  }
}

function matches(session: Session, filter: string): boolean {
  const labels = Object.entries(session.metadata).map(([name, value]) => `${name}=${value}`);
  const words = [session.userId, session.threadId, session.sessionId, session.environment, ...labels].join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((part) => words.includes(part));
}

export function Sessions() {
  const [all, setAll] = useState<Session[] | null>(null);
  const [isCut, setCut] = useState(false);
  const [missing, setMissing] = useState<string[]>([]);
  const [filter, setFilter] = useState("");
  const [state, setState] = useState(SessionState.UNSPECIFIED);
  const [at, setAt] = useState(0);
  const earlier = useRef(new Map<string, { cpu: number; time: number }>());
  const [cpu, setCpu] = useState(new Map<string, number>());
  const load = async () => {
    const page = await call(sessions.listSessions, { state, withUsage: true, pageSize: 200 });
    setAll(page.sessions.toReversed());
    setCut(page.nextPageToken !== "");
    setMissing(page.missingWorkers);
    const now = new Map<string, { cpu: number; time: number }>();
    const parts = new Map<string, number>();
    for (const session of page.sessions) {
      if (!session.usage?.cpuTime) continue;
      const used = Number(session.usage.cpuTime.seconds) + session.usage.cpuTime.nanos / 1e9;
      const before = earlier.current.get(session.sessionId);
      now.set(session.sessionId, { cpu: used, time: Date.now() });
      if (before) parts.set(session.sessionId, ((used - before.cpu) * 1000) / (Date.now() - before.time));
    }
    earlier.current = now;
    setCpu(parts);
  };
  usePoll(load, 1500, [state]);
  const shown = (all ?? []).filter((session) => matches(session, filter));
  const move = (step: number) => setAt((now) => Math.max(0, Math.min(shown.length - 1, now + step)));
  const chosen = shown[at];
  useKeys(
    {
      j: () => move(1),
      k: () => move(-1),
      Enter: () => chosen && go("session", chosen.sessionId),
      t: () => chosen && go("session", chosen.sessionId, "terminal"),
      r: () => chosen && may.act && void reset(chosen).then(load),
      x: () => chosen && may.act && void stop(chosen).then(load),
    },
    [shown.length, at, chosen?.sessionId],
  );
  return (
    <section>
      <h1>Sessions</h1>
      <div class="row wrap">
        <input
          data-filter
          type="search"
          placeholder="filter: user, thread, label=value"
          aria-label="Filter"
          value={filter}
          onInput={(event) => setFilter(event.currentTarget.value)}
        />
        <label>
          State{" "}
          <select value={state} onChange={(event) => setState(Number(event.currentTarget.value))}>
            {STATES.map(([value, word]) => (
              <option key={value} value={value}>
                {word}
              </option>
            ))}
          </select>
        </label>
        {may.act && <Start />}
      </div>
      {all !== null && !shown.length && (
        <Empty>
          {all.length ? "No session matches the filter." : "There are no sessions. Start one above, or with the SDK: Sandbox.open(user, thread)."}
        </Empty>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label="Sessions">
        <table class="sessions">
          <thead>
            <tr>
              <th>Session</th>
              <th>State</th>
              <th>Memory</th>
              <th>Disk</th>
              <th>CPU</th>
              <th>Expires</th>
              <th>
                <span class="hidden">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {shown.map((session, index) => (
              <Row key={session.sessionId} session={session} isChosen={index === at} cpu={cpu.get(session.sessionId)} reload={load} />
            ))}
          </tbody>
        </table>
      </div>
      {missing.length > 0 && <Empty>Not shown, because these workers do not answer: sessions of {missing.join(", ")}.</Empty>}
      {isCut && <Empty>There are more sessions than are shown here; narrow the state.</Empty>}
    </section>
  );
}

function Row({ session, isChosen, cpu, reload }: { session: Session; isChosen: boolean; cpu?: number; reload: () => void }) {
  const { usage, limits } = session;
  const isActive = session.state === SessionState.ACTIVE;
  return (
    <tr aria-selected={isChosen} data-session={session.sessionId}>
      <td>
        <Dot session={session} />{" "}
        <a href={`#/session/${session.sessionId}`}>
          <Name>{session.userId}</Name> / <Name>{session.threadId}</Name>
        </a>
        <div class="faint">
          {session.environment} {Object.entries(session.metadata).map(([name, value]) => (
            <span key={name} class="label">
              <Name>{`${name}=${value}`}</Name>{" "}
            </span>
          ))}
        </div>
      </td>
      <td>
        {stateWord(session)}
        {isActive ? (
          <div class="faint">
            {session.runningExecs ? `${plural(session.runningExecs, "command")} running` : "idle"}, incarnation {session.incarnation}
          </div>
        ) : (
          <div class="faint">{session.endReason}</div>
        )}
      </td>
      <td>
        {usage && limits && (
          <Meter label="memory" value={Number(usage.memoryBytes)} limit={Number(limits.memoryBytes)} text={bytes(usage.memoryBytes)} />
        )}
      </td>
      <td>
        {usage && limits && (
          <Meter label="disk" value={Number(usage.workspaceBytes)} limit={Number(limits.workspaceBytes)} text={bytes(usage.workspaceBytes)} />
        )}
      </td>
      <td>{cpu !== undefined ? `${Math.round(cpu * 100)} %` : ""}</td>
      <td>{isActive || isKept(session) ? expiry(session) : ""}</td>
      <td class="actions">
        {may.act && isActive && (
          <>
            <Button kind="plain" title="Reset this session" onClick={() => reset(session).then(reload)}>
              ↺
            </Button>
            <Button kind="plain" title="Stop this session" onClick={() => stop(session).then(reload)}>
              ✕
            </Button>
          </>
        )}
      </td>
    </tr>
  );
}

function Start() {
  const own = me.value?.userId ?? "";
  const [user, setUser] = useState(own || "me");
  const [thread, setThread] = useState("");
  const [environment, setEnvironment] = useState("");
  const [names, setNames] = useState<string[]>([]);
  usePoll(async () => setNames((await call(environments.listEnvironments, {})).environments.map((one) => one.name)), 60_000);
  return (
    <form
      class="row wrap"
      onSubmit={(event) => {
        event.preventDefault();
        void openSession({ userId: user, threadId: thread || `console-${Date.now().toString(36)}`, environment });
      }}
    >
      <input placeholder="user" aria-label="User" value={user} disabled={own !== ""} onInput={(event) => setUser(event.currentTarget.value)} />
      <input placeholder="thread (new)" aria-label="Thread" value={thread} onInput={(event) => setThread(event.currentTarget.value)} />
      <select aria-label="Environment" value={environment} onChange={(event) => setEnvironment(event.currentTarget.value)}>
        <option value="">default environment</option>
        {names.map((name) => (
          <option key={name}>{name}</option>
        ))}
      </select>
      <button class="main">Start</button>
    </form>
  );
}
