// The calls of this page, over one WebSocket into the daemon. The frames are described in docs/console.md.

import { signal } from "@preact/signals";
import { BinaryReader } from "@bufbuild/protobuf/wire";

const [HELLO, OPEN, MESSAGE, HALF_CLOSE, CANCEL, CREDIT, END, PIECE, PASSIVE] = [0, 1, 2, 3, 4, 5, 6, 7, 8];
const HEAD = 5;
const UNAUTHENTICATED = 4401;
const RETRY_MS = [100, 250, 500, 1000, 1000, 2000];
const GIVE_UP_MS = 10_000;

export type State = "connecting" | "live" | "reconnecting" | "logged out";
export const state = signal<State>("logged out");

// A refusal of the daemon, with its own sentence.
export class CallError extends Error {
  constructor(
    readonly code: number,
    message: string,
    readonly reason: string,
    readonly details: ReadonlyMap<string, string>,
  ) {
    super(message);
  }
}

// The connection broke; what the call did is not known.
export class Disconnected extends CallError {
  constructor() {
    super(14, "The connection to the daemon broke.", "DISCONNECTED", new Map());
  }
}

interface Call {
  onMessage(data: Uint8Array): void;
  onEnd(error: CallError | null): void;
  pieces: Uint8Array[];
}

export interface Sink {
  onMessage(data: Uint8Array): void;
  onEnd(error: CallError | null): void;
}

export class Running {
  constructor(
    private readonly page: Page,
    private readonly number: number,
  ) {}
  send(data: Uint8Array): void {
    this.page.send(MESSAGE, this.number, data);
  }
  halfClose(): void {
    this.page.send(HALF_CLOSE, this.number);
  }
  // The reader has taken this many bytes: the daemon may send as many more.
  take(bytes: number): void {
    const amount = new Uint8Array(4);
    new DataView(amount.buffer).setUint32(0, bytes);
    this.page.send(CREDIT, this.number, amount);
  }
  cancel(): void {
    this.page.cancel(this.number);
  }
}

class Page {
  private socket: WebSocket | null = null;
  private calls = new Map<number, Call>();
  private last = 0;
  private tries = 0;
  private key = "";
  private onLoggedOut = () => {};
  private waiting: (() => void)[] = [];

  start(key: string, onLoggedOut: () => void): void {
    this.key = key;
    this.onLoggedOut = onLoggedOut;
    state.value = "connecting";
    this.connect();
  }

  stop(): void {
    this.key = "";
    state.value = "logged out";
    this.socket?.close();
  }

  // Resolves once calls can be made; rejects if that takes too long.
  ready(): Promise<void> {
    if (state.value === "live") return Promise.resolve();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Disconnected()), GIVE_UP_MS);
      this.waiting.push(() => {
        clearTimeout(timer);
        resolve();
      });
    });
  }

  open(path: string, first: Uint8Array, sink: Sink, passive: boolean): Running {
    const number = ++this.last;
    const name = new TextEncoder().encode(path);
    const rest = new Uint8Array(2 + name.length + first.length);
    new DataView(rest.buffer).setUint16(0, name.length);
    rest.set(name, 2);
    rest.set(first, 2 + name.length);
    this.calls.set(number, { onMessage: sink.onMessage, onEnd: sink.onEnd, pieces: [] });
    this.send(passive ? PASSIVE : OPEN, number, rest);
    return new Running(this, number);
  }

  send(kind: number, number: number, rest: Uint8Array = new Uint8Array()): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const frame = new Uint8Array(HEAD + rest.length);
    const view = new DataView(frame.buffer);
    view.setUint8(0, kind);
    view.setUint32(1, number);
    frame.set(rest, HEAD);
    this.socket.send(frame);
  }

  cancel(number: number): void {
    if (this.calls.delete(number)) this.send(CANCEL, number);
  }

  private connect(): void {
    const scheme = location.protocol === "https:" ? "wss" : "ws";
    const socket = new WebSocket(`${scheme}://${location.host}/socket`);
    socket.binaryType = "arraybuffer";
    this.socket = socket;
    socket.onopen = () => this.send(HELLO, 0, new TextEncoder().encode(this.key));
    socket.onmessage = (event) => this.onFrame(new Uint8Array(event.data as ArrayBuffer));
    socket.onclose = (event) => this.onClose(event.code);
  }

  private onFrame(frame: Uint8Array): void {
    const view = new DataView(frame.buffer);
    const kind = view.getUint8(0);
    const number = view.getUint32(1);
    const rest = frame.subarray(HEAD);
    if (kind === HELLO) {
      this.tries = 0;
      state.value = "live";
      for (const resolve of this.waiting.splice(0)) resolve();
      return;
    }
    const call = this.calls.get(number);
    if (!call) return; // cancelled
    if (kind === PIECE) {
      call.pieces.push(rest);
    } else if (kind === MESSAGE) {
      const whole = call.pieces.length ? joined([...call.pieces, rest]) : rest;
      call.pieces = [];
      call.onMessage(whole);
    } else if (kind === END) {
      this.calls.delete(number);
      call.onEnd(rest.length ? statusOf(rest) : null);
    }
  }

  private onClose(code: number): void {
    const calls = [...this.calls.values()];
    this.calls.clear();
    if (!this.key) return;
    if (code === UNAUTHENTICATED) {
      this.key = "";
      state.value = "logged out";
      this.onLoggedOut();
    } else {
      state.value = "reconnecting";
      const wait = RETRY_MS[Math.min(this.tries++, RETRY_MS.length - 1)];
      setTimeout(() => this.key && this.connect(), wait);
    }
    for (const call of calls) call.onEnd(new Disconnected());
  }
}

export const page = new Page();

export function joined(parts: Uint8Array[]): Uint8Array {
  const whole = new Uint8Array(parts.reduce((size, part) => size + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
}

// A google.rpc.Status with the reason of its ErrorInfo.
export function statusOf(data: Uint8Array): CallError {
  let code = 2;
  let message = "The daemon refused this.";
  let reason = "";
  const details = new Map<string, string>();
  const reader = new BinaryReader(data);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1) code = reader.int32();
    else if (field === 2) message = reader.string();
    else if (field === 3) {
      const any = new BinaryReader(reader.bytes());
      let type = "";
      let value: Uint8Array = new Uint8Array();
      while (any.pos < any.len) {
        const [part, kind] = any.tag();
        if (part === 1) type = any.string();
        else if (part === 2) value = any.bytes();
        else any.skip(kind);
      }
      if (type.endsWith("google.rpc.ErrorInfo")) reason = errorInfo(value, details);
    } else reader.skip(wire);
  }
  return new CallError(code, message, reason, details);
}

function errorInfo(data: Uint8Array, details: Map<string, string>): string {
  let reason = "";
  const reader = new BinaryReader(data);
  while (reader.pos < reader.len) {
    const [field, wire] = reader.tag();
    if (field === 1) reason = reader.string();
    else if (field === 3) {
      const entry = new BinaryReader(reader.bytes());
      let key = "";
      let value = "";
      while (entry.pos < entry.len) {
        const [part, kind] = entry.tag();
        if (part === 1) key = entry.string();
        else if (part === 2) value = entry.string();
        else entry.skip(kind);
      }
      details.set(key, value);
    } else reader.skip(wire);
  }
  return reason;
}
