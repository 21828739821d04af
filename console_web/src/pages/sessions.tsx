// All sessions that the caller sees, with what they use.

import { useRef, useState } from "preact/hooks";
import { SessionState, type Session } from "#gen/session_pb";
import { call, sessions } from "../api";
import { bytes, millis, moment, plural, span } from "../format";
import { FirstSteps } from "../parts/first";
import { Start } from "../parts/start";
import { attempt, go, may } from "../store";
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

export function Status({ session }: { session: Session }) {
  const isActive = session.state === SessionState.ACTIVE;
  return (
    <span class="state">
      <span class={`dot ${isActive ? "good" : isKept(session) ? "fair" : ""}`} aria-hidden="true" /> {stateWord(session)}
    </span>
  );
}

export function expiry(session: Session): string {
  const left = (millis(session.expireTime) - Date.now()) / 1000;
  return left > 0 ? span(left) : "now";
}

export async function stop(session: Session): Promise<boolean> {
  const running = session.runningExecs;
  const text = (
    <>
      {running > 0 && (running === 1 ? "The command that is running ends. " : `The ${running} commands that are running end. `)}
      The files of <Name>{session.userId}</Name> / <Name>{session.threadId}</Name> are deleted
      {session.projectId && ", but not those of its project"}. This cannot be undone.
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

function matches(session: Session, filter: string): boolean {
  const labels = Object.entries(session.metadata).map(([name, value]) => `${name}=${value}`);
  const words = [session.userId, session.threadId, session.sessionId, session.environment, session.projectId, ...labels].join(" ").toLowerCase();
  return filter
    .toLowerCase()
    .split(/\s+/)
    .every((part) => words.includes(part));
}

// Those that can be used first, then those that keep their files, each the newest first.
function inOrder(active: Session[], others: Session[]): Session[] {
  const fresh = new Set(active.map((session) => session.sessionId));
  const rest = others.filter((session) => !fresh.has(session.sessionId) && session.state !== SessionState.ACTIVE);
  return [...active, ...rest.filter(isKept), ...rest.filter((session) => !isKept(session))];
}

export function Sessions() {
  const [active, setActive] = useState<Session[] | null>(null);
  const [others, setOthers] = useState<Session[] | null>(null);
  const [isCut, setCut] = useState(false);
  const [missing, setMissing] = useState<string[]>([]);
  const [filter, setFilter] = useState("");
  const [state, setState] = useState(SessionState.UNSPECIFIED);
  const [at, setAt] = useState(0);
  const listed = useRef<string[]>([]);
  const earlier = useRef(new Map<string, { cpu: number; time: number }>());
  const [cpu, setCpu] = useState(new Map<string, number>());
  const loadActive = async () => {
    if (state && state !== SessionState.ACTIVE) return setActive([]);
    const page = await call(sessions.listSessions, { state: SessionState.ACTIVE, withUsage: true, pageSize: 200 });
    setActive(page.sessions.toReversed());
    setMissing(page.missingWorkers);
    const ids = page.sessions.map((session) => session.sessionId);
    if (listed.current.some((id) => !ids.includes(id))) void attempt(loadOthers()); // one has ended
    listed.current = ids;
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
  const loadOthers = async () => {
    const page = await call(sessions.listSessions, { state, pageSize: 1000 });
    setOthers(page.sessions.toReversed());
    setCut(page.nextPageToken !== "");
    setMissing(page.missingWorkers);
  };
  const load = () => Promise.all([loadActive(), loadOthers()]);
  usePoll(loadActive, 1500, [state]);
  usePoll(loadOthers, 5000, [state]);
  const all = active && others && inOrder(active, others);
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
      {may.act && <Start />}
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
        {all && all.length > 0 && (
          <span class="faint">
            {shown.filter((session) => session.state === SessionState.ACTIVE).length} active of {shown.length}
          </span>
        )}
      </div>
      {all !== null && !shown.length && (all.length || state ? <Empty>No session matches the filter.</Empty> : <FirstSteps />)}
      <div class="scroll" tabIndex={0} role="region" aria-label="Sessions">
        <table class="sessions stacked">
          <thead>
            <tr>
              <th>Session</th>
              <th>State</th>
              <th class="wide">Memory</th>
              <th class="wide">Disk</th>
              <th class="wide">CPU</th>
              <th>Age</th>
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
        <a href={`#/session/${session.sessionId}`}>
          <Name>{session.userId}</Name> / <Name>{session.threadId}</Name>
        </a>
        <div class="faint">
          {session.environment}
          {session.projectId && (
            <>
              , project <Name>{session.projectId}</Name>
            </>
          )}{" "}
          {Object.entries(session.metadata).map(([name, value]) => (
            <span key={name} class="label">
              <Name>{`${name}=${value}`}</Name>{" "}
            </span>
          ))}
        </div>
      </td>
      <td>
        <Status session={session} />
        {isActive ? (
          <div class="faint">
            {session.runningExecs ? `${plural(session.runningExecs, "command")} running` : "idle"}, incarnation {session.incarnation}
          </div>
        ) : (
          <div class="faint">{session.endReason}</div>
        )}
      </td>
      <td class="wide">
        {usage && limits && (
          <Meter label="memory" value={Number(usage.memoryBytes)} limit={Number(limits.memoryBytes)} text={bytes(usage.memoryBytes)} />
        )}
      </td>
      <td class="wide">
        {usage && limits && (
          <Meter label="disk" value={Number(usage.workspaceBytes)} limit={Number(limits.workspaceBytes)} text={bytes(usage.workspaceBytes)} />
        )}
      </td>
      <td class="wide">{cpu !== undefined ? `${Math.round(cpu * 100)} %` : ""}</td>
      <td class="age" data-label="age" title={moment(session.createTime)}>{span((Date.now() - millis(session.createTime)) / 1000)}</td>
      <td data-label="expires in">{isActive || isKept(session) ? expiry(session) : ""}</td>
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
