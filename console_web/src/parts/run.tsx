// Runs a command and shows what it writes, while it writes it.

import { useEffect, useRef, useState } from "preact/hooks";
import { OutputStream, type ExitStatus } from "#gen/exec_pb";
import { OnDisconnect, type ExecResponse } from "#gen/exec_service_pb";
import type { Session } from "#gen/session_pb";
import { call, execs, stream } from "../api";
import { bytes, quoted } from "../format";
import { attempt, complain, say } from "../store";
import { Button } from "../ui";
import { Exit } from "./exit";
import { OutputView } from "./output";

const INTERRUPT = 2;
const KILL = 9;

export function RunCommand({ session }: { session: Session }) {
  const [line, setLine] = useState("");
  const [cwd, setCwd] = useState("");
  const [timeout, setTimeout] = useState("");
  const [shell, setShell] = useState("");
  const [execId, setExecId] = useState("");
  const [exit, setExit] = useState<ExitStatus | null>(null);
  const [isRunning, setRunning] = useState(false);
  const output = useRef(new OutputView());
  const [past, setPast] = useState<string[]>([]);
  const [at, setAt] = useState(-1);
  const controller = useRef<AbortController | null>(null);
  useEffect(() => () => controller.current?.abort(), []);
  const run = async (event: Event) => {
    event.preventDefault();
    if (!line.trim() || isRunning) return;
    const id = `console-${Date.now().toString(36)}-${Math.random().toString(36).slice(2, 8)}`;
    setExecId(id);
    setExit(null);
    setRunning(true);
    setPast([line, ...past.filter((one) => one !== line)].slice(0, 50));
    setAt(-1);
    output.current.clear();
    const request = {
      sessionId: session.sessionId,
      execId: id,
      command: { case: "shell" as const, value: line },
      cwd,
      shellName: shell,
      onDisconnect: OnDisconnect.KEEP_RUNNING,
      timeout: timeout ? { seconds: BigInt(Math.round(Number(timeout))) } : undefined,
    };
    controller.current = new AbortController();
    const offsets = { stdout: 0n, stderr: 0n };
    let isStarted = false;
    for (;;) {
      try {
        const options: { signal: AbortSignal } = { signal: controller.current.signal };
        const events: AsyncGenerator<ExecResponse> = isStarted
          ? stream(execs.attachExec, { sessionId: session.sessionId, execId: id, stdoutOffset: offsets.stdout, stderrOffset: offsets.stderr }, options)
          : stream(execs.exec, request, options);
        for await (const batch of events) {
          for (const { event } of batch.events) {
            isStarted = true;
            if (event.case === "stdout" || event.case === "stderr") {
              output.current.add(event.case, event.value.data);
              offsets[event.case] = event.value.offset + BigInt(event.value.data.length);
            } else if (event.case === "dropped") {
              const name = event.value.stream === OutputStream.STDERR ? "stderr" : "stdout";
              output.current.add("note", new TextEncoder().encode(`\n[${bytes(event.value.bytes)} are no longer kept]\n`));
              offsets[name] = event.value.offset + event.value.bytes;
            } else if (event.case === "exited") {
              await output.current.shown(0); // the end comes no earlier than the output
              setExit(event.value);
            }
          }
          await output.current.shown(); // what the page has not drawn yet slows the command down
        }
        break;
      } catch (error) {
        if ((error as { reason?: string }).reason !== "DISCONNECTED") {
          complain(error);
          break;
        }
      }
    }
    setRunning(false);
  };
  const signal = (number: number) => attempt(call(execs.signalExec, { sessionId: session.sessionId, execId, signal: number }));
  const copy = (text: string) => attempt(navigator.clipboard.writeText(text).then(() => say("Copied.")));
  const onKey = (event: KeyboardEvent) => {
    const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
    if (!step || !past.length) return;
    const next = Math.max(-1, Math.min(past.length - 1, at + step));
    event.preventDefault();
    setAt(next);
    setLine(next < 0 ? "" : past[next]);
  };
  return (
    <div class="run" data-exec={execId} data-ended={exit !== null}>
      <form onSubmit={run}>
        <div class="row">
          <input
            class="command"
            aria-label="Command"
            placeholder="command"
            spellcheck={false}
            autocomplete="off"
            value={line}
            onInput={(event) => setLine(event.currentTarget.value)}
            onKeyDown={onKey}
          />
          <button class="main" disabled={isRunning || !line.trim()}>
            Run
          </button>
        </div>
        <div class="row wrap small">
          <label>
            Directory <input value={cwd} placeholder={session.workspaceDir} onInput={(event) => setCwd(event.currentTarget.value)} />
          </label>
          <label>
            Seconds <input type="number" min="1" value={timeout} placeholder="30" onInput={(event) => setTimeout(event.currentTarget.value)} />
          </label>
          <label>
            Shell <input value={shell} placeholder="a new one" onInput={(event) => setShell(event.currentTarget.value)} />
          </label>
          {isRunning && (
            <>
              <Button onClick={() => signal(INTERRUPT)}>Interrupt</Button>
              <Button kind="danger" onClick={() => signal(KILL)}>
                Kill
              </Button>
            </>
          )}
          {line && (
            <>
              <Button kind="plain" onClick={() => copy(`sandboxd exec ${quoted(`${session.userId}/${session.threadId}`)} -- bash -c ${quoted(line)}`)}>
                copy for a shell
              </Button>
              <Button kind="plain" onClick={() => copy(`sandbox.commands.run(${JSON.stringify(line)})`)}>
                copy for Python
              </Button>
            </>
          )}
        </div>
      </form>
      <output.current.View label="Output" />
      {exit && <Exit exit={exit} />}
      {isRunning && (
        <p class="exit" role="status">
          running
        </p>
      )}
    </div>
  );
}
