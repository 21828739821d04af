// The ended and running commands of a session, with their output as long as it is kept.

import { useState } from "preact/hooks";
import { ExecState, OutputStream, type Exec, type Execution, type OutputMatch } from "#gen/exec_pb";
import type { Session } from "#gen/session_pb";
import { call, execs } from "../api";
import { clock, oneLine, seconds, shown } from "../format";
import { attempt, may } from "../store";
import { Button, Empty, Name, usePoll } from "../ui";
import { endWord, Exit, isGood } from "./exit";

export function History({ session }: { session: Session }) {
  const [ended, setEnded] = useState<Execution[] | null>(null);
  const [running, setRunning] = useState<Exec[]>([]);
  const [next, setNext] = useState("");
  const [open, setOpen] = useState("");
  const load = async () => {
    const page = await call(execs.listExecutions, { sessionId: session.sessionId, pageSize: 100 });
    setEnded(page.executions);
    setNext(page.nextPageToken);
    if (session.endReason) return;
    const live = await call(execs.listExecs, { sessionId: session.sessionId, state: ExecState.RUNNING });
    setRunning(live.execs);
  };
  usePoll(load, 2000, [session.sessionId, session.endReason]);
  const more = async () => {
    const page = await attempt(call(execs.listExecutions, { sessionId: session.sessionId, pageSize: 1000, pageToken: next }));
    if (page) {
      setEnded([...(ended ?? []), ...page.executions]);
      setNext(page.nextPageToken);
    }
  };
  const longest = Math.max(0.001, ...(ended ?? []).map((one) => seconds(one.exit?.duration)));
  if (ended && !ended.length && !running.length) return <Empty>No command has run yet.</Empty>;
  return (
    <ol class="history">
      {running.map((exec) => (
        <li key={exec.execId}>
          <div class="plain entry">
            <span class="faint">{clock(exec.startTime)}</span>
            <code>
              <Name>{oneLine(exec.command)}</Name>
            </code>
            <span class="spring" />
            <span class="good">running</span>
          </div>
        </li>
      ))}
      {(ended ?? []).map((one) => {
        const id = `${one.incarnation}/${one.execId}`;
        return (
          <li key={id}>
            <button type="button" class="plain entry" aria-expanded={open === id} onClick={() => setOpen(open === id ? "" : id)}>
              <span class="faint">{clock(one.startTime)}</span>
              <code>
                <Name>{oneLine(one.command)}</Name>
              </code>
              {one.context && <span class="label">{one.context}</span>}
              <span class="spring" />
              {one.exit && <span class={isGood(one.exit) ? "good" : "bad"}>{one.notStarted ? "not started" : endWord(one.exit)}</span>}
              <meter min={0} max={1} value={seconds(one.exit?.duration) / longest} aria-label="Duration" />
            </button>
            {open === id && <Kept session={session} execution={one} />}
          </li>
        );
      })}
      {next && (
        <Button kind="plain" onClick={more}>
          older commands
        </Button>
      )}
    </ol>
  );
}

function Kept({ session, execution }: { session: Session; execution: Execution }) {
  const [text, setText] = useState<{ stdout: string; stderr: string } | null>(null);
  const [problem, setProblem] = useState("");
  const [pattern, setPattern] = useState("");
  const [found, setFound] = useState<OutputMatch[] | null>(null);
  const exec = { sessionId: session.sessionId, execId: execution.execId };
  usePoll(
    async () => {
      if (text || problem || !may.act) return;
      try {
        const preview = await call(execs.previewOutput, { ...exec, maxBytes: 65536, collapse: true });
        const decoder = new TextDecoder();
        const joined = (part: typeof preview.stdout) =>
          part ? decoder.decode(part.head) + (part.omittedBytes ? `\n[${part.omittedBytes} bytes left out]\n` : "") + decoder.decode(part.tail) : "";
        setText({ stdout: joined(preview.stdout), stderr: joined(preview.stderr) });
      } catch (error) {
        setProblem((error as Error).message);
      }
    },
    60_000,
    [execution.execId],
  );
  const search = async (event: Event) => {
    event.preventDefault();
    setFound((await attempt(call(execs.searchOutput, { ...exec, pattern, maxMatches: 200 })))?.matches ?? null);
  };
  return (
    <div class="kept">
      {(execution.command.length > 80 || execution.command.includes("\n")) && (
        <pre class="source" tabIndex={0} aria-label="Command">
          {execution.command.split("\n").map(shown).join("\n")}
        </pre>
      )}
      {execution.exit && <Exit exit={execution.exit} />}
      {problem && <Empty>Its output is no longer kept.</Empty>}
      {text && (text.stdout || text.stderr) && (
        <>
          <form class="row" onSubmit={search}>
            <input aria-label="Search in the output" placeholder="search in the output" value={pattern} onInput={(event) => setPattern(event.currentTarget.value)} />
            <button disabled={!pattern}>Search</button>
          </form>
          <pre class="output" tabIndex={0}>
            {found ? (
              found.map((match) => (
                <span key={`${match.stream}${match.offset}`} class={match.stream === OutputStream.STDERR ? "stderr" : "stdout"}>
                  {`${match.lineNumber}: ${new TextDecoder().decode(match.line)}\n`}
                </span>
              ))
            ) : (
              <>
                <span class="stdout">{text.stdout}</span>
                <span class="stderr">{text.stderr}</span>
              </>
            )}
          </pre>
        </>
      )}
    </div>
  );
}
