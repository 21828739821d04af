// Small pieces that all pages use.

import { signal } from "@preact/signals";
import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { shown } from "./format";
import { complainUnlessEnded } from "./store";
import { state } from "./socket";

export function Name({ children }: { children: string }) {
  return <bdi>{shown(children)}</bdi>;
}

export function Empty({ children }: { children: ComponentChildren }) {
  return <p class="empty">{children}</p>;
}

export function Button(props: {
  onClick: () => unknown;
  children: ComponentChildren;
  title?: string;
  kind?: "main" | "danger" | "plain";
  disabled?: boolean;
  pressed?: boolean;
}) {
  return (
    <button
      type="button"
      class={props.kind ?? ""}
      title={props.title}
      aria-label={props.title}
      aria-pressed={props.pressed}
      disabled={props.disabled}
      onClick={(event) => {
        event.stopPropagation();
        props.onClick();
      }}
    >
      {props.children}
    </button>
  );
}

export function Meter({ value, limit, label, text }: { value: number; limit: number; label: string; text: string }) {
  const part = limit > 0 ? Math.min(1, value / limit) : 0;
  return (
    <span class="meter" title={`${label}: ${text}`}>
      <span class="label">{label}</span>
      <meter min={0} max={1} high={0.85} value={part} aria-label={label} />
      <span>{text}</span>
    </span>
  );
}

// --- a question that a person answers ---

interface Question {
  title: string;
  text: ComponentChildren;
  action: string;
  danger: boolean;
  input?: string;
  answer: (value: string | null) => void;
}

const question = signal<Question | null>(null);

export function ask(
  title: string,
  text: ComponentChildren,
  action: string,
  options: { danger?: boolean; input?: string } = {},
): Promise<string | null> {
  return new Promise((resolve) => {
    question.value = { title, text, action, danger: options.danger ?? false, input: options.input, answer: resolve };
  });
}

export function Asking() {
  const asked = question.value;
  const dialog = useRef<HTMLDialogElement>(null);
  const input = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (asked) dialog.current?.showModal();
  }, [asked]);
  if (!asked) return null;
  const answer = (value: string | null) => {
    question.value = null;
    asked.answer(value);
  };
  return (
    <dialog ref={dialog} aria-labelledby="asked" onCancel={() => answer(null)}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          answer(asked.input === undefined ? "yes" : (input.current?.value ?? ""));
        }}
      >
        <h2 id="asked">{asked.title}</h2>
        <div>{asked.text}</div>
        {asked.input !== undefined && <input ref={input} value={asked.input} aria-label={asked.title} autofocus />}
        <div class="row end">
          <Button kind="plain" onClick={() => answer(null)}>
            Cancel
          </Button>
          <button type="submit" class={asked.danger ? "danger" : "main"} autofocus={asked.input === undefined}>
            {asked.action}
          </button>
        </div>
      </form>
    </dialog>
  );
}

// --- work that follows a component's life ---

// Calls `work` at once and then after each pause, while the page can be seen and the daemon answers.
export function usePoll(work: () => Promise<unknown>, milliseconds: number, deps: unknown[] = []): void {
  useEffect(() => {
    let timer = 0;
    let isGone = false;
    const turn = async () => {
      if (!document.hidden && state.value === "live") {
        try {
          await work();
        } catch (error) {
          complainUnlessEnded(error);
        }
      }
      if (!isGone) timer = window.setTimeout(turn, milliseconds);
    };
    void turn();
    return () => {
      isGone = true;
      clearTimeout(timer);
    };
  }, deps);
}

// Runs `work` until the component is gone; starts it again when the connection comes back.
export function useStream(work: (signal: AbortSignal) => Promise<void>, deps: unknown[] = []): void {
  useEffect(() => {
    const controller = new AbortController();
    const run = async () => {
      while (!controller.signal.aborted) {
        try {
          await work(controller.signal);
          return;
        } catch (error) {
          if (controller.signal.aborted) return;
          if (!["DISCONNECTED", "SESSION_RETURNING"].includes((error as { reason?: string }).reason ?? "")) {
            complainUnlessEnded(error);
            return;
          }
          await new Promise((resolve) => setTimeout(resolve, 200));
        }
      }
    };
    void run();
    return () => controller.abort();
  }, deps);
}

export function useKeys(handlers: Record<string, () => void>, deps: unknown[] = []): void {
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      const target = event.composedPath()[0] as HTMLElement; // also inside of an editor, which has a root of its own
      const isTyping = target.closest("input, textarea, select, [contenteditable], .terminal, dialog") !== null;
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
      const handler = handlers[event.key];
      if (handler) {
        event.preventDefault();
        handler();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, deps);
}

export function Tabs<T extends string>(props: {
  tabs: readonly (readonly [T, string])[];
  value: T;
  onPick: (tab: T) => void;
  label: string;
}) {
  return (
    <div class="tabs" role="tablist" aria-label={props.label}>
      {props.tabs.map(([id, title]) => (
        <button
          key={id}
          type="button"
          role="tab"
          aria-selected={props.value === id}
          tabIndex={props.value === id ? 0 : -1}
          onClick={() => props.onPick(id)}
          onKeyDown={(event) => {
            const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
            if (!step) return;
            const index = props.tabs.findIndex(([tab]) => tab === id);
            const next = props.tabs[(index + step + props.tabs.length) % props.tabs.length];
            props.onPick(next[0]);
            const buttons = event.currentTarget.parentElement?.querySelectorAll("button");
            buttons?.[(index + step + props.tabs.length) % props.tabs.length]?.focus();
          }}
        >
          {title}
        </button>
      ))}
    </div>
  );
}
