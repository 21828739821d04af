// The terminals of a session. A terminal is a command of the session: it outlives the page and the daemon.

import { useEffect, useRef, useState } from "preact/hooks";
import { ExecState, type Exec } from "#gen/exec_pb";
import { OnDisconnect } from "#gen/exec_service_pb";
import type { Session } from "#gen/session_pb";
import { call, execs } from "../api";
import { shown } from "../format";
import { attempt, complain } from "../store";
import { Button, Empty, usePoll } from "../ui";
import { Prompt } from "./prompt";
import { show } from "./terminal_view";

const PREFIX = "console-terminal-";
const KILL = 9;

export function Terminals({ session }: { session: Session }) {
  const [open, setOpen] = useState<Exec[] | null>(null);
  const [current, setCurrent] = useState("");
  const [refusal, setRefusal] = useState("");
  const isStrict = refusal !== "";
  const load = async () => {
    const page = await call(execs.listExecs, { sessionId: session.sessionId, state: ExecState.RUNNING, pageSize: 100 });
    const found = page.execs.filter((one) => one.hasTerminal).toReversed();
    setOpen(found);
    return found;
  };
  const start = async (known: Exec[]) => {
    const numbers = known.map((one) => Number(one.execId.startsWith(PREFIX) ? one.execId.slice(PREFIX.length).split("-")[0] : 0));
    const number = Math.max(0, ...numbers) + 1;
    const execId = `${PREFIX}${number}-${Date.now().toString(36)}`;
    try {
      await call(execs.startExec, {
        sessionId: session.sessionId,
        execId,
        command: { case: "argv", value: { args: ["bash", "-l"] } },
        terminal: { rows: 24, columns: 80 },
        timeout: { seconds: 0n },
        env: { TERM: "xterm-256color" },
        onDisconnect: OnDisconnect.KEEP_RUNNING,
      });
      await load();
      setCurrent(execId);
    } catch (error) {
      const { reason, message } = error as { reason?: string; message: string };
      if (reason === "COMMAND_NOT_ALLOWED") setRefusal(message);
      else complain(error);
    }
  };
  useEffect(() => {
    void attempt(load()).then((found) => {
      if (found && !found.length) void start(found);
      else if (found) setCurrent(found[0].execId);
    });
  }, []);
  usePoll(load, 3000);
  if (isStrict) return <Prompt session={session} refusal={refusal} />;
  const shownExec = open?.find((one) => one.execId === current) ?? open?.[0];
  const end = async (exec: Exec) => {
    await attempt(call(execs.signalExec, { sessionId: session.sessionId, execId: exec.execId, signal: KILL }));
    await load();
  };
  return (
    <div class="terminals">
      <div class="row wrap">
        {(open ?? []).map((exec, index) => (
          <span key={exec.execId} class="row">
            <Button pressed={exec === shownExec} onClick={() => setCurrent(exec.execId)}>
              {exec.execId.startsWith(PREFIX) ? `${index + 1}` : shown(exec.command).slice(0, 20)}
            </Button>
            <Button kind="plain" title="End this terminal" onClick={() => end(exec)}>
              ✕
            </Button>
          </span>
        ))}
        <Button kind="plain" title="New terminal" onClick={() => start(open ?? [])}>
          +
        </Button>
      </div>
      {open !== null && !shownExec && <Empty>There is no terminal. The + starts one.</Empty>}
      {shownExec && <TerminalBox key={shownExec.execId} session={session} execId={shownExec.execId} onEnd={load} />}
    </div>
  );
}

function TerminalBox({ session, execId, onEnd }: { session: Session; execId: string; onEnd: () => void }) {
  const box = useRef<HTMLDivElement>(null);
  useEffect(() => {
    let close = () => {};
    let isGone = false;
    // Loaded with the first terminal: xterm is larger than the rest of the console.
    void import("../vendor/xterm").then((xterm) => {
      if (!isGone && box.current) close = show(xterm, box.current, session.sessionId, execId, onEnd);
    });
    return () => {
      isGone = true;
      close();
    };
  }, []);
  return <div class="terminal-box" ref={box} data-exec={execId} />;
}
