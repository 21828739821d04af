// One terminal in the page: xterm fed from an exec, from any byte of its output.

import { effect } from "@preact/signals";
import { call, execs, stream } from "../api";
import { ask } from "../ui";
import { complain, complainUnlessEnded, theme } from "../store";

type Xterm = typeof import("../vendor/xterm");

const SCROLLBACK = 5000;
const ESCAPE_MS = 600;

// xterm writes <style> elements and style attributes, which the page's policy refuses. Constructed sheets and the CSSOM are allowed.
const createElement = document.createElement.bind(document);

function allowStyles(): () => void {
  const sheets: CSSStyleSheet[] = [];
  document.createElement = ((tag: string, options?: ElementCreationOptions) => {
    if (tag === "style") {
      const template = createElement("template");
      const sheet = new CSSStyleSheet();
      sheets.push(sheet);
      document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
      Object.defineProperty(template, "textContent", { set: (text: string) => sheet.replaceSync(text) });
      return template;
    }
    const element = createElement(tag, options);
    if (tag === "span") {
      const set = element.setAttribute.bind(element);
      element.setAttribute = (name, value) => (name === "style" ? void (element.style.cssText = value) : set(name, value));
    }
    return element;
  }) as typeof document.createElement;
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}

function colours() {
  const style = getComputedStyle(document.documentElement);
  const of = (name: string) => style.getPropertyValue(name).trim();
  return { background: of("--sunken"), foreground: of("--text"), cursor: of("--accent"), selectionBackground: of("--selection") };
}

// Text from the clipboard cannot contain what ends a bracketed paste.
function plain(text: string): string {
  return text.replace(/[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f]/g, "");
}

export function show(xterm: Xterm, box: HTMLElement, sessionId: string, execId: string, onEnd: () => void): () => void {
  const forget = allowStyles();
  const terminal = new xterm.Terminal({
    scrollback: SCROLLBACK,
    theme: colours(),
    fontFamily: getComputedStyle(box).getPropertyValue("--mono"),
    fontSize: 13,
    allowProposedApi: false,
    windowOptions: {},
    linkHandler: {
      activate: (_, uri) => {
        if (!/^https?:\/\//.test(uri)) return;
        void ask("Open this address?", uri, "Open").then((yes) => yes && window.open(uri, "_blank", "noopener,noreferrer"));
      },
    },
  });
  const fit = new xterm.FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  const stopTheme = effect(() => {
    void theme.value;
    terminal.options.theme = colours();
  });
  const controller = new AbortController();
  let isReplaying = true;
  let offset = 0n;
  let writing: Promise<unknown> = Promise.resolve();

  // In order: each write waits for the one before it.
  const send = (data: string | Uint8Array) => {
    // While earlier output is shown again, xterm answers the questions in it, and would type the answers into the shell.
    if (isReplaying) return;
    const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
    writing = writing.then(() => call(execs.writeStdin, { sessionId, execId, data: bytes, append: true })).catch(complain);
  };
  terminal.onData(send);
  terminal.onBinary((data) => send(Uint8Array.from(data, (sign) => sign.charCodeAt(0))));
  terminal.onResize(({ rows, cols }) => {
    if (!isReplaying) void call(execs.resizeExec, { sessionId, execId, terminal: { rows, columns: cols } }).catch(() => {});
  });
  const onPaste = (event: ClipboardEvent) => {
    event.preventDefault();
    event.stopPropagation();
    const text = plain(event.clipboardData?.getData("text/plain") ?? "");
    const lines = text.split("\n").length;
    if (lines < 2) terminal.paste(text);
    else void ask("Paste several lines?", `${lines} lines, which may run as commands.`, "Paste").then((yes) => yes && terminal.paste(text));
  };
  box.addEventListener("paste", onPaste, true);
  let escapedAt = 0;
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.type !== "keydown" || event.key !== "Escape") return true;
    const isSecond = event.timeStamp - escapedAt < ESCAPE_MS;
    escapedAt = event.timeStamp;
    if (isSecond) {
      terminal.blur();
      document.querySelector<HTMLElement>("main")?.focus();
    }
    return !isSecond;
  });

  const write = (data: Uint8Array | string) => new Promise<void>((resolve) => terminal.write(data, resolve));
  const follow = async () => {
    const known = await call(execs.waitExec, { sessionId, execId, timeout: { seconds: 0n } });
    const end = known.exec?.stdoutBytes ?? 0n;
    if (offset >= end) await live();
    const events = stream(execs.attachExec, { sessionId, execId, stdoutOffset: offset }, { signal: controller.signal });
    for await (const batch of events) {
      for (const { event } of batch.events) {
        if (event.case === "stdout") {
          await write(event.value.data);
          offset = event.value.offset + BigInt(event.value.data.length);
          if (isReplaying && offset >= end) await live();
        } else if (event.case === "dropped") {
          offset = event.value.offset + event.value.bytes;
          if (isReplaying && offset >= end) await live();
        } else if (event.case === "exited") {
          await write("\r\n\x1b[2m[ended]\x1b[0m\r\n");
          onEnd();
        }
      }
    }
  };
  const live = async () => {
    await write(""); // answers to the replay have been thrown away by now
    isReplaying = false;
    box.dataset.live = "yes";
    fit.fit();
    const { rows, cols } = terminal;
    await call(execs.resizeExec, { sessionId, execId, terminal: { rows, columns: cols } }).catch(() => {});
  };
  const run = async () => {
    while (!controller.signal.aborted) {
      try {
        await follow();
        return;
      } catch (error) {
        const { reason } = error as { reason?: string };
        if (controller.signal.aborted) return;
        if (reason !== "DISCONNECTED" && reason !== "SESSION_RETURNING") {
          complainUnlessEnded(error);
          return;
        }
        await new Promise((resolve) => setTimeout(resolve, 200));
      }
    }
  };
  const observer = new ResizeObserver(() => fit.fit());
  observer.observe(box);
  fit.fit();
  terminal.focus();
  (box as HTMLElement & { terminal?: typeof terminal }).terminal = terminal; // for tests, which read the screen
  void run();
  return () => {
    controller.abort();
    observer.disconnect();
    box.removeEventListener("paste", onPaste, true);
    stopTheme();
    terminal.dispose();
    forget();
  };
}
