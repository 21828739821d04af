// Output of a command: bounded, in order, drawn at the speed of the page.

import { useLayoutEffect, useRef } from "preact/hooks";

const MAX_CHARACTERS = 1 << 20;
const MAX_PENDING = 256 << 10; // what a frame draws at most, but for the last message
const BLOCK = 16 << 10; // the browser arranges a block anew when something is added to it, so blocks are small
const ESCAPES = /\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[@-Z\\-_]/g;

interface Part {
  kind: "stdout" | "stderr" | "note";
  text: string;
}

export class OutputView {
  private parts: Part[] = [];
  private pending = 0;
  private blocks: { element: HTMLElement; size: number }[] = [];
  private size = 0;
  private decoders = { stdout: new TextDecoder(), stderr: new TextDecoder(), note: new TextDecoder() };
  private element: HTMLElement | null = null;
  private isDue = false;
  private waiting: (() => void)[] = [];
  total = 0;

  clear(): void {
    this.parts = [];
    this.pending = 0;
    this.blocks = [];
    this.size = 0;
    this.total = 0;
    this.decoders = { stdout: new TextDecoder(), stderr: new TextDecoder(), note: new TextDecoder() };
    this.element?.replaceChildren();
  }

  add(kind: Part["kind"], data: Uint8Array): void {
    this.total += data.length;
    const text = this.decoders[kind].decode(data, { stream: true }).replace(ESCAPES, "").replaceAll("\r\n", "\n");
    if (!text) return;
    this.parts.push({ kind, text });
    this.pending += text.length;
    this.draw();
  }

  // Resolves when the page can take more, or when it has drawn everything: `atMost` 0.
  shown(atMost = MAX_PENDING): Promise<void> {
    return this.pending > atMost ? new Promise((resolve) => this.waiting.push(resolve)) : Promise.resolve();
  }

  private draw(): void {
    if (this.isDue) return;
    this.isDue = true;
    const turn = () => {
      this.isDue = false;
      this.drawNow();
    };
    // Hidden pages draw nothing, and would hold the command up.
    if (document.hidden) setTimeout(turn, 50);
    else requestAnimationFrame(turn);
  }

  private drawNow(): void {
    const element = this.element;
    const parts = this.parts.splice(0);
    this.pending = 0;
    if (element) {
      const isAtEnd = element.scrollHeight - element.scrollTop - element.clientHeight < 40;
      for (const part of merged(parts)) this.append(element, part);
      this.cut(element);
      element.dataset.total = String(this.total);
      if (isAtEnd) element.scrollTop = element.scrollHeight;
    }
    for (const resolve of this.waiting.splice(0)) resolve();
  }

  // Blocks end at the end of a line, if it is not too long.
  private append(element: HTMLElement, part: Part): void {
    for (let at = 0; at < part.text.length; ) {
      let block = this.blocks[this.blocks.length - 1];
      if (!block || block.size >= BLOCK) {
        block = { element: document.createElement("div"), size: 0 };
        this.blocks.push(block);
        element.append(block.element);
      }
      const line = part.text.indexOf("\n", at + BLOCK - block.size);
      const end = Math.min(part.text.length, at + MAX_PENDING, line < 0 ? Infinity : line + 1);
      const span = document.createElement("span");
      span.className = part.kind;
      span.textContent = part.text.slice(at, end);
      block.element.append(span);
      // A block that does not end with a line is not full.
      block.size = end === line + 1 || end - at >= MAX_PENDING ? BLOCK : Math.min(BLOCK - 1, block.size + end - at);
      this.size += end - at;
      at = end;
    }
  }

  private cut(element: HTMLElement): void {
    if (this.size <= MAX_CHARACTERS || this.blocks.length < 2) return;
    while (this.size > MAX_CHARACTERS && this.blocks.length > 1) {
      const block = this.blocks.shift();
      this.size -= block?.element.textContent?.length ?? 0;
      block?.element.remove();
    }
    if (element.firstElementChild?.className === "cut") return;
    const note = document.createElement("span");
    note.className = "cut";
    note.textContent = "[the beginning is not shown; History has it]\n";
    element.prepend(note);
  }

  View = ({ label }: { label: string }) => {
    const box = useRef<HTMLPreElement>(null);
    useLayoutEffect(() => {
      this.element = box.current;
      return () => {
        this.element = null;
      };
    }, []);
    return <pre class="output" ref={box} tabIndex={0} role="log" aria-label={label} />;
  };
}

function merged(parts: Part[]): Part[] {
  const result: Part[] = [];
  for (const part of parts) {
    const last = result[result.length - 1];
    if (last?.kind === part.kind) last.text += part.text;
    else result.push({ ...part });
  }
  return result;
}
