// Code in a context that keeps its variables: cells with results, and a debugger.

import { useEffect, useRef, useState } from "preact/hooks";
import { StopReason, type CodeError, type DebugStep, type Display, type Variable } from "#gen/code_pb";
import { CodeStatus, ResumeMode, type RunCodeResponse } from "#gen/code_service_pb";
import type { Session } from "#gen/session_pb";
import { call, code, open as openCall, type Conversation } from "../api";
import { CodeService } from "#gen/code_service_pb";
import { shown } from "../format";
import { attempt, complain, isDark, theme } from "../store";
import { Button, Name, usePoll } from "../ui";
import type { Shown } from "./editor_view";
import { Exit } from "./exit";
import { Untrusted } from "./opened";

const CONTEXT = "main";
const TIMEOUT_SECONDS = 60n;
const DEBUG_SECONDS = 600n;

interface Cell {
  number: number;
  code: string;
  run: RunCodeResponse | null;
}

type Debugging = Conversation<typeof CodeService.method.debugCode.input, typeof CodeService.method.debugCode.output>;

export function CodeCells({ session }: { session: Session }) {
  const box = useRef<HTMLDivElement>(null);
  const editor = useRef<Shown | null>(null);
  const draft = useRef("print('hello')\n1 + 1\n");
  const [cells, setCells] = useState<Cell[]>([]);
  const [isBusy, setBusy] = useState(false);
  const [variables, setVariables] = useState<Variable[]>([]);
  const [steps, setSteps] = useState<DebugStep | null>(null);
  const [output, setOutput] = useState("");
  const debugging = useRef<Debugging | null>(null);
  const actions = useRef({ run: () => {} });
  const load = async () => {
    const state = await call(code.getContextState, { sessionId: session.sessionId, context: CONTEXT }).catch(() => null);
    if (state) setVariables(state.variables);
  };
  useEffect(() => {
    let isGone = false;
    void import("./editor_view").then(({ edit }) => {
      if (isGone || !box.current) return;
      editor.current = edit(box.current, draft.current, "cell.py", async () => false, () => (draft.current = editor.current?.text() ?? draft.current), {
        isDark: isDark(),
        breakpoints: true,
        onRun: () => actions.current.run(),
      });
    });
    return () => {
      isGone = true;
      editor.current?.close();
    };
  }, [theme.value]);
  useEffect(() => () => debugging.current?.cancel(), []);
  usePoll(async () => (isBusy ? undefined : load()), 60_000, [isBusy]);
  const request = () => ({ sessionId: session.sessionId, context: CONTEXT, code: editor.current?.text() ?? draft.current });
  const run = async () => {
    if (isBusy) return;
    setBusy(true);
    const cell: Cell = { number: cells.length + 1, code: request().code, run: null };
    setCells((now) => [...now, cell]);
    const done = await attempt(call(code.runCode, { ...request(), timeout: { seconds: TIMEOUT_SECONDS } }));
    setCells((now) => now.map((one) => (one === cell ? { ...cell, run: done ?? null } : one)));
    setBusy(false);
    await load();
  };
  actions.current.run = () => void run();
  const interrupt = () => attempt(call(code.interruptContext, { sessionId: session.sessionId, context: CONTEXT }));
  const restart = async () => {
    await attempt(call(code.restartContext, { sessionId: session.sessionId, context: CONTEXT }));
    setVariables([]);
  };
  const debug = async () => {
    if (isBusy) return;
    setBusy(true);
    setOutput("");
    const lines = editor.current?.breakpoints() ?? [];
    try {
      const start = {
        run: { ...request(), timeout: { seconds: DEBUG_SECONDS } },
        breakpoints: lines.map((line) => ({ line })),
        runToBreakpoint: lines.length > 0,
      };
      const talk = await openCall(code.debugCode, { command: 1n, request: { case: "start", value: start } });
      debugging.current = talk;
      const decoder = new TextDecoder();
      for await (const batch of talk.answers) {
        for (const { event } of batch.events) {
          if (event.case === "stdout" || event.case === "stderr") setOutput((now) => (now + decoder.decode(event.value.data)).slice(-65536));
          else if (event.case === "code" && event.value.event.case === "step") {
            const step = event.value.event.value;
            setSteps(step);
            editor.current?.mark(step.line);
            talk.send({ command: 100n + step.number, request: { case: "variables", value: {} } });
          } else if (event.case === "code" && event.value.event.case === "answer" && event.value.event.value.answer.case === "variables") {
            setVariables(event.value.event.value.answer.value.variables);
          } else if (event.case === "code" && event.value.event.case === "error") {
            setOutput((now) => now + errorText(event.value.event.value as CodeError));
          } else if (event.case === "exited") break;
        }
      }
    } catch (error) {
      complain(error);
    }
    debugging.current = null;
    editor.current?.mark(null);
    setSteps(null);
    setBusy(false);
    await load();
  };
  const resume = (mode: ResumeMode) => debugging.current?.send({ request: { case: "resume", value: { mode } } });
  return (
    <div class="code">
      <div class="cells">
        {cells.map((cell) => (
          <CellView key={cell.number} cell={cell} />
        ))}
        <div class="editor small" ref={box} />
        <div class="row wrap">
          <Button kind="main" disabled={isBusy} onClick={run}>
            Run
          </Button>
          <Button disabled={isBusy} onClick={debug}>
            Debug
          </Button>
          {isBusy && !steps && <Button onClick={interrupt}>Interrupt</Button>}
          <Button kind="plain" onClick={restart}>
            Restart
          </Button>
        </div>
        {steps && (
          <div class="debugger" role="group" aria-label="Debugger">
            <Button onClick={() => resume(ResumeMode.STEP_OVER)}>Step over</Button>
            <Button onClick={() => resume(ResumeMode.STEP_IN)}>Step into</Button>
            <Button onClick={() => resume(ResumeMode.STEP_OUT)}>Step out</Button>
            <Button onClick={() => resume(ResumeMode.CONTINUE)}>Continue</Button>
            <Button kind="danger" onClick={() => debugging.current?.send({ request: { case: "quit", value: {} } })}>
              Quit
            </Button>
            <span data-line={steps.line}>
              line {steps.line} of {shown(steps.function)} · {StopReason[steps.reason]?.toLowerCase()}
            </span>
          </div>
        )}
        <p class="faint">Ctrl-Enter or Shift-Enter runs. A click beside a line number sets a breakpoint.</p>
        {output && (
          <pre class="output" tabIndex={0} aria-label="Output of the debugged code">
            {output}
          </pre>
        )}
      </div>
      <aside class="variables" aria-label="Variables">
        <h2>Variables</h2>
        <dl>
          {variables.map((variable) => (
            <div key={variable.name}>
              <dt>
                <Name>{variable.name}</Name> <span class="faint">{shown(variable.type)}</span>
              </dt>
              <dd>
                {shown(variable.value)}
                {variable.previousValue !== undefined && <span class="faint"> was {shown(variable.previousValue)}</span>}
              </dd>
            </div>
          ))}
        </dl>
      </aside>
    </div>
  );
}

const STATUSES: Partial<Record<CodeStatus, string>> = {
  [CodeStatus.INTERRUPTED]: "Interrupted; the variables are kept.",
  [CodeStatus.TIMED_OUT]: "It took too long.",
  [CodeStatus.CONTEXT_LOST]: "The process of the context ended; its variables are lost.",
  [CodeStatus.REFUSED]: "The code policy refused it; nothing has run.",
};

function CellView({ cell }: { cell: Cell }) {
  const run = cell.run;
  const text = (data: Uint8Array | undefined) => new TextDecoder().decode(data);
  return (
    <article class="cell" aria-label={`Cell ${cell.number}`}>
      <pre class="source">{cell.code}</pre>
      {!run && <p class="faint">running</p>}
      {run && (
        <>
          {Boolean(run.stdout?.data.length || run.stderr?.data.length) && (
            <pre class="output" tabIndex={0}>
              <span class="stdout">{text(run.stdout?.data)}</span>
              <span class="stderr">{text(run.stderr?.data)}</span>
            </pre>
          )}
          {run.displays.map((display, index) => (
            <DisplayView key={index} display={display} />
          ))}
          {run.value && <DisplayView display={run.value} />}
          {run.error && <pre class="output stderr">{errorText(run.error)}</pre>}
          {STATUSES[run.status] && <p class="bad">{STATUSES[run.status]}</p>}
          {run.logs.map((log, index) => (
            <p key={index} class="faint">
              {log.level} {shown(log.message)} {log.variable && `${shown(log.variable)} = ${shown(log.value)}`}
            </p>
          ))}
          {run.notes.map((note) => (
            <p key={note} class="hint">
              {note}
            </p>
          ))}
          {run.exit && <Exit exit={run.exit} isCode />}
        </>
      )}
    </article>
  );
}

function errorText(error: CodeError): string {
  return error.traceback || `${error.type}: ${error.message}`;
}

function DisplayView({ display }: { display: Display }) {
  const of = (type: string) => display.data.find((one) => one.mediaType === type)?.data;
  const picture = ["image/png", "image/jpeg"].find((type) => of(type));
  const [url, setUrl] = useState("");
  useEffect(() => {
    if (!picture) return;
    const made = URL.createObjectURL(new Blob([of(picture) as BlobPart], { type: picture }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, [display]);
  const html = of("text/html");
  const plain = of("text/plain");
  if (picture) return url ? <img class="picture" src={url} alt="figure" /> : null;
  if (html) return <Untrusted html={new TextDecoder().decode(html)} title="Result" isResult />;
  return <pre class="output value">{new TextDecoder().decode(plain ?? new Uint8Array())}</pre>;
}
