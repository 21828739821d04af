// One session: terminals, commands, code, files, history, snapshots, ports.

import { useState } from "preact/hooks";
import { SessionState, type Session } from "#gen/session_pb";
import { call, sessions } from "../api";
import { bytes } from "../format";
import { CodeCells } from "../parts/code";
import { Files } from "../parts/files";
import { Snippets } from "../parts/first";
import { History } from "../parts/history";
import { Ports } from "../parts/ports";
import { RunCommand } from "../parts/run";
import { Terminals } from "../parts/terminals";
import { Turns } from "../parts/turns";
import { attempt, go, may, place } from "../store";
import { Button, Empty, Meter, Name, Tabs, usePoll } from "../ui";
import { openSession } from "../parts/start";
import { expiry, isKept, reset, stateWord, Status, stop } from "./sessions";

const TABS = [
  ["terminal", "Terminal"],
  ["run", "Run"],
  ["code", "Code"],
  ["history", "History"],
  ["turns", "Snapshots"],
  ["ports", "Ports"],
  ["about", "About"],
] as const;
type Tab = (typeof TABS)[number][0];

export function SessionPage({ id }: { id: string }) {
  const [session, setSession] = useState<Session | null>(null);
  const [isGone, setGone] = useState(false);
  const load = async () => {
    try {
      setSession((await call(sessions.getSession, { sessionId: id })).session ?? null);
    } catch (error) {
      if ((error as { reason?: string }).reason !== "SESSION_NOT_FOUND") throw error;
      setGone(true);
    }
  };
  usePoll(load, 1500, [id]);
  if (isGone)
    return (
      <section>
        <h1>No such session</h1>
        <Empty>
          The daemon does not know it, or it is not yours. <a href="#/sessions">All sessions</a>
        </Empty>
      </section>
    );
  if (!session) return <section aria-busy="true" />;
  return <Shown session={session} reload={load} />;
}

function Shown({ session, reload }: { session: Session; reload: () => void }) {
  const isActive = session.state === SessionState.ACTIVE;
  const wanted = place.value[2] as Tab | undefined;
  const tabs = TABS.filter(([tab]) => may.act || tab === "history" || tab === "about");
  const tab: Tab = tabs.some(([known]) => known === wanted) ? (wanted as Tab) : tabs[0][0];
  const pick = (next: Tab) => go("session", session.sessionId, next);
  const isLive = isActive && may.act;
  return (
    <section class="session">
      <Head session={session} reload={reload} />
      <div class={isLive ? "split" : ""}>
        <div class="work">
          <Tabs tabs={tabs} value={tab} onPick={pick} label="Parts of the session" />
          <div class="pane" role="tabpanel">
            {["terminal", "run", "code", "ports"].includes(tab) && !isActive ? (
              <Empty>
                This session is {stateWord(session)}
                {session.endReason ? `: ${session.endReason}` : ""}. Start it again to use it
                {isKept(session) ? `; otherwise its files are deleted in ${expiry(session)}` : ""}.
              </Empty>
            ) : tab === "terminal" ? (
              <Terminals key={session.incarnation} session={session} />
            ) : tab === "run" ? (
              <RunCommand session={session} />
            ) : tab === "code" ? (
              <CodeCells key={session.incarnation} session={session} />
            ) : tab === "ports" ? (
              <Ports session={session} />
            ) : tab === "turns" ? (
              <Turns session={session} />
            ) : tab === "about" ? (
              <About session={session} />
            ) : (
              <History session={session} />
            )}
          </div>
        </div>
        {isLive && <Files key={session.incarnation} session={session} />}
      </div>
    </section>
  );
}

function Head({ session, reload }: { session: Session; reload: () => void }) {
  const { usage, limits } = session;
  const isActive = session.state === SessionState.ACTIVE;
  const touch = () => attempt(call(sessions.touchSession, { sessionId: session.sessionId })).then(reload);
  return (
    <div class="head">
      <div class="row wrap">
        <h1>
          <Name>{session.userId}</Name> / <Name>{session.threadId}</Name>
        </h1>
        <Status session={session} />
        <span class="faint">
          incarnation <span data-incarnation>{session.incarnation}</span> · environment {session.environment || "default"} · policy{" "}
          {session.commandPolicy}
        </span>
        <span class="spring" />
        {may.act &&
          (isActive ? (
            <>
              <Button onClick={() => reset(session).then(reload)}>Reset</Button>
              <Button kind="danger" onClick={() => stop(session).then(reload)}>
                Stop
              </Button>
            </>
          ) : (
            <Button kind="main" onClick={() => openSession({ userId: session.userId, threadId: session.threadId })}>
              Start
            </Button>
          ))}
      </div>
      {isActive && (
        <div class="row wrap">
          {usage && limits && (
            <>
              <Meter
                label="memory"
                value={Number(usage.memoryBytes)}
                limit={Number(limits.memoryBytes)}
                text={`${bytes(usage.memoryBytes)} / ${bytes(limits.memoryBytes)}`}
              />
              <Meter
                label="disk"
                value={Number(usage.workspaceBytes)}
                limit={Number(limits.workspaceBytes)}
                text={`${bytes(usage.workspaceBytes)} / ${bytes(limits.workspaceBytes)}`}
              />
              <span class="faint" title="Processes and threads">
                {usage.processes === 1 ? "1 process" : `${usage.processes} processes`}
              </span>
            </>
          )}
          <span class="faint">expires in {expiry(session)}</span>
          {may.act && (
            <Button kind="plain" title="Postpone the expiry" onClick={touch}>
              Postpone
            </Button>
          )}
        </div>
      )}
    </div>
  );
}

function About({ session }: { session: Session }) {
  const limits = session.limits;
  const rows: [string, string][] = [
    ["Session", session.sessionId],
    ["Workspace", session.workspaceDir],
    ["Environment", session.environment || "default"],
    ["Packages", session.environmentConfig?.packages.join(", ") || "none"],
    ["Project", session.projectId || "none"],
    ["Data sources", session.dataSources.join(", ") || "none"],
    ["Labels", Object.entries(session.metadata).map(([name, value]) => `${name}=${value}`).join(", ") || "none"],
    ["Forked from", session.forkedFrom || "nothing"],
  ];
  if (limits)
    rows.push(
      ["Memory", bytes(limits.memoryBytes)],
      ["Processes", String(limits.maxProcesses)],
      ["CPU", `${limits.cpuMillis / 10} % of a processor`],
      ["Disk", `${bytes(limits.workspaceBytes)}, ${limits.workspaceFiles} files, ${bytes(limits.maxFileBytes)} each`],
      ["Temporary files", bytes(limits.tmpBytes)],
      ["Longest command", `${limits.maxExecTimeout?.seconds} s`],
    );
  return (
    <>
      <dl class="facts">
        {rows.map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>
              <Name>{value}</Name>
            </dd>
          </div>
        ))}
      </dl>
      {may.act && <Snippets user={session.userId} thread={session.threadId} />}
    </>
  );
}
