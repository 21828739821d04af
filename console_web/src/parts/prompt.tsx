// A prompt in place of a terminal, where the command policy does not allow an interactive shell: each line is checked by itself and runs in a
// named shell, which keeps directory and variables.

import { useRef, useState } from "preact/hooks";
import type { Session } from "#gen/session_pb";
import { call, execs } from "../api";
import { CallError } from "../socket";
import { endWord, isGood } from "./exit";
import { OutputView } from "./output";

const SHELL = "console";

export function Prompt({ session, refusal }: { session: Session; refusal: string }) {
  const [line, setLine] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [past, setPast] = useState<string[]>([]);
  const [at, setAt] = useState(-1);
  const output = useRef(new OutputView());
  const write = (kind: "stdout" | "stderr" | "note", text: string) => output.current.add(kind, new TextEncoder().encode(text));
  const run = async (event: Event) => {
    event.preventDefault();
    const asked = line;
    if (!asked.trim()) return;
    setLine("");
    setAt(-1);
    setPast([asked, ...past].slice(0, 100));
    setBusy(true);
    write("note", `$ ${asked}\n`);
    try {
      const ended = await call(execs.run, {
        sessionId: session.sessionId,
        command: { case: "shell", value: asked },
        shellName: SHELL,
      });
      output.current.add("stdout", ended.stdout?.data ?? new Uint8Array());
      output.current.add("stderr", ended.stderr?.data ?? new Uint8Array());
      if (ended.exit && !isGood(ended.exit)) write("note", `[${endWord(ended.exit)}] ${ended.exit.hint}\n`);
    } catch (error) {
      write("stderr", `${error instanceof CallError ? error.message : String(error)}\n`);
    }
    await output.current.shown(0);
    setBusy(false);
  };
  return (
    <div class="prompt">
      <p class="hint" role="note">
        {refusal} This is a prompt instead: each line is checked, and the shell keeps its directory and variables.
      </p>
      <output.current.View label="Output" />
      <form class="row" onSubmit={run}>
        <span aria-hidden="true">$</span>
        <input
          class="command"
          aria-label="Command"
          spellcheck={false}
          autocomplete="off"
          autofocus
          value={line}
          disabled={isBusy}
          onInput={(event) => setLine(event.currentTarget.value)}
          onKeyDown={(event) => {
            const step = event.key === "ArrowUp" ? 1 : event.key === "ArrowDown" ? -1 : 0;
            if (!step) return;
            const next = Math.max(-1, Math.min(past.length - 1, at + step));
            setAt(next);
            setLine(next < 0 ? "" : past[next]);
            event.preventDefault();
          }}
        />
      </form>
    </div>
  );
}
