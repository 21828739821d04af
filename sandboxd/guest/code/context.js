// A context of JavaScript: the same protocol and records as those of Python (protocol.py, records.py).
//
// It has output, the value of the last expression, `__result__`, errors, top-level await and
// interrupts. It has no debugger, no displays and no code policy.
"use strict";

const fs = require("fs");
const net = require("net");
const { inspect } = require("util");
const { createRequire } = require("module");
const vm = require("vm");
const { processTopLevelAwait } = (() => {
  try {
    return require("internal/repl/await"); // with --expose-internals
  } catch {
    return { processTopLevelAwait: () => null };
  }
})();
// Later versions return the value of the last expression in an object.
const IS_WRAPPED = /\bvalue:/.test(processTopLevelAwait("await 1") || "");

const CONTROL = 3, EVENTS = 5, VERSION = 1; // 4 is the input, which only a debugger reads
const HELLO = 1, DONE = 2, RUN = 1;
const OK = 0, RAISED = 1, INTERRUPTED = 2, REFUSED = 3;
const VALUE = 1, RESULT = 3, ERROR = 4, ANSWER = 8, VIOLATION = 9, VARIABLES = 3;
const MAX_RESULT = 1 << 20, MAX_TEXT = 1 << 16, MAX_DEPTH = 32, MAX_CONVERSIONS = 100, MAX_LISTED = 1000;
const settings = JSON.parse(process.env.SANDBOXD_CODE_SETTINGS || "{}");
delete process.env.SANDBOXD_CODE_SETTINGS;

// --- records ---

const { Buffer } = globalThis;
const number = (size, value) => {
  const part = Buffer.alloc(size);
  if (size === 8) part.writeBigUInt64BE(BigInt(value));
  else part.writeUIntBE(value, 0, size);
  return part;
};
const text = (value) => {
  const body = Buffer.from(String(value));
  return Buffer.concat([number(4, body.length), body]);
};
const list = (parts) => Buffer.concat([number(4, parts.length), ...parts]);

function write(descriptor, data) {
  for (let at = 0; at < data.length; ) {
    try {
      at += fs.writeSync(descriptor, data, at);
    } catch (error) {
      if (error.code !== "EAGAIN") throw error;
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 5);
    }
  }
}

function record(kind, ...parts) {
  const body = Buffer.concat(parts);
  write(EVENTS, Buffer.concat([number(1, kind), number(4, body.length), body]));
}

function report(kind, status, value) {
  write(CONTROL, Buffer.concat([number(1, kind), number(1, status), number(4, value)]));
}

// --- values ---

const cut = (value, limit) => (value.length <= limit ? value : value.slice(0, limit - 3) + "...");

function shown(value, limit) {
  try {
    return cut(inspect(value, { depth: 2, maxArrayLength: 100, maxStringLength: limit }), limit);
  } catch (error) {
    return "<a value that cannot be shown>";
  }
}

class TooLarge extends Error {}

class Encoder {
  constructor() {
    this.conversions = [];
    this.parts = [];
    this.left = MAX_RESULT;
    this.open = new Set();
    this.isCut = false;
  }

  put(part) {
    this.left -= Buffer.byteLength(part);
    if (this.left < 0) throw new TooLarge("it is larger than the limit");
    this.parts.push(part);
  }

  convert(path, what) {
    if (this.conversions.length < MAX_CONVERSIONS) this.conversions.push([cut(path, 200), what]);
  }

  encode(value, path = "$", depth = 0) {
    if (value === null || typeof value === "boolean") return this.put(String(value));
    if (typeof value === "string") {
      if (value.length > this.left) throw new TooLarge("it is larger than the limit");
      return this.put(JSON.stringify(value));
    }
    if (typeof value === "number") {
      if (Number.isFinite(value)) return this.put(JSON.stringify(value));
      this.convert(path, `${value} to null`);
      return this.put("null");
    }
    if (typeof value !== "object") {
      this.convert(path, `${typeof value} to text`);
      return this.put(JSON.stringify(cut(String(value), 10000)));
    }
    return this.object(value, path, depth);
  }

  object(value, path, depth) {
    const kind = Object.prototype.toString.call(value).slice(8, -1);
    if (this.open.has(value) || depth >= MAX_DEPTH) {
      this.isCut ||= !this.open.has(value);
      this.convert(path, this.open.has(value) ? "reference to a value that contains it to null" : "too deep, to null");
      return this.put("null");
    }
    this.open.add(value);
    if (kind === "Date") {
      this.convert(path, "Date to ISO text");
      this.encode(Number.isNaN(value.getTime()) ? null : value.toISOString(), path, depth);
    } else if (kind === "Map") {
      this.convert(path, "Map to object");
      this.pairs([...value], path, depth);
    } else if (Array.isArray(value)) {
      this.items(value, path, depth);
    } else if (kind === "Set" || ArrayBuffer.isView(value)) {
      this.convert(path, `${kind} to list`);
      this.items([...value], path, depth);
    } else {
      this.pairs(Object.entries(value), path, depth);
    }
    this.open.delete(value);
  }

  items(values, path, depth) {
    this.put("[");
    for (let index = 0; index < values.length; index++) {
      if (index) this.put(", ");
      this.encode(values[index] === undefined ? null : values[index], `${path}[${index}]`, depth + 1);
    }
    this.put("]");
  }

  pairs(pairs, path, depth) {
    this.put("{");
    let first = true;
    for (const [key, value] of pairs) {
      if (value === undefined) continue;
      if (!first) this.put(", ");
      first = false;
      this.put(JSON.stringify(String(key)) + ": ");
      this.encode(value, `${path}.${String(key).slice(0, 80)}`, depth + 1);
    }
    this.put("}");
  }
}

function reportResult(value) {
  const encoder = new Encoder();
  let json = "";
  try {
    encoder.encode(value);
    json = encoder.parts.join("");
  } catch (error) {
    const why = error instanceof TooLarge ? error.message : "it cannot be encoded";
    encoder.conversions.push(["$", `left out: ${why}`]);
    encoder.isCut = true;
  }
  const conversions = encoder.conversions.map(([path, what]) => Buffer.concat([text(path), text(what)]));
  record(RESULT, text(json), list(conversions), number(1, encoder.isCut ? 1 : 0));
}

function reportValue(value) {
  const body = text(shown(value, MAX_TEXT));
  record(VALUE, list([Buffer.concat([text("text/plain"), body])]), list([]));
}

// --- errors ---

const sources = new Map();

function frames(stack) {
  const found = [];
  for (const line of stack.split("\n")) {
    const match = /^\s+at (?:async )?(?:(.*?) \()?(<run \d+>):(\d+):\d+\)?$/.exec(line) || /^()(<run \d+>):(\d+)$/.exec(line);
    if (!match || found.length >= 200) continue;
    const [, name, file, at] = match;
    const source = (sources.get(file) || [])[at - 1] || "";
    found.unshift([file, Number(at), name || "<module>", cut(source.trim(), 500)]);
  }
  return found;
}

function reportError(error) {
  let type = "Error", message = "", stack = "";
  try {
    const isError = error !== null && typeof error === "object" && "message" in error;
    type = isError ? String(error.name || "Error") : typeof error;
    message = cut(isError ? String(error.message) : shown(error, 10000), 10000);
    stack = cut(isError ? String(error.stack) : message, 64000);
  } catch {
    message = "<its text cannot be made>";
  }
  const places = frames(stack).map(([file, line, name, source]) =>
    Buffer.concat([text(file), number(4, line), text(name), text(source), number(4, 0), number(4, 0)]));
  const kept = stack.split("\n").filter((line) => !/^\s+at /.test(line) || line.includes("<run ")).join("\n");
  record(ERROR, list([Buffer.concat([text(type), text(message), list(places), text(kept)])]));
}

// --- runs ---

const world = vm.createContext(Object.create(null, {}), { name: "sandboxd" });
const directory = settings.cwd || "/";
try {
  process.chdir(directory);
} catch {
  process.chdir("/");
}
const given = ["Buffer", "URL", "URLSearchParams", "TextDecoder", "TextEncoder", "AbortController", "Event", "EventTarget",
  "clearImmediate", "clearInterval", "clearTimeout", "setImmediate", "setInterval", "setTimeout", "queueMicrotask",
  "structuredClone", "fetch", "performance", "process", "console", "atob", "btoa", "crypto"];
const define = (name, value) =>
  Object.defineProperty(world, name, { value, writable: true, configurable: true, enumerable: false });
for (const name of given) if (globalThis[name] !== undefined) define(name, globalThis[name]);
define("require", createRequire(process.cwd() + "/run.js"));
vm.runInContext("Object.defineProperty(globalThis, 'globalThis', {value: this})", world);
define("global", vm.runInContext("this", world));

let runs = 0;
let interruptRun = null;
class Interrupted extends Error {}

function interruption() {
  const error = new Interrupted("the run was interrupted");
  error.name = "Interrupted";
  return error;
}

process.on("SIGINT", () => interruptRun && interruptRun(interruption()));
process.on("uncaughtException", (error) => interruptRun ? interruptRun(error) : console.error(error));
process.on("unhandledRejection", (error) => interruptRun ? interruptRun(error) : console.error(error));

async function execute(code, file) {
  const interrupted = new Promise((_, reject) => { interruptRun = reject; });
  interrupted.catch(() => {});
  let wrapped = null;
  if (/\bawait\b/.test(code)) wrapped = processTopLevelAwait(code);
  const script = new vm.Script(wrapped === null ? code : wrapped, { filename: file,
    importModuleDynamically: vm.constants && vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER });
  const value = script.runInContext(world, { breakOnSigint: true, displayErrors: false });
  if (wrapped === null) return { value };
  const settled = await Promise.race([value, interrupted]);
  return { value: IS_WRAPPED && settled ? settled.value : settled };
}

function reportState() {
  const names = Object.keys(world).slice(0, MAX_LISTED);
  const variables = names.map((name) => {
    const value = world[name];
    const kind = value === null ? "null" : typeof value;
    const size = typeof value === "string" || Array.isArray(value) ? value.length : null;
    return Buffer.concat([text(name), text(kind), text(shown(value, 200)), number(1, 0), number(8, 0), number(8, 0),
      size === null ? number(1, 0) : Buffer.concat([number(1, 1), number(8, size)])]);
  });
  record(ANSWER, number(8, 0), number(1, VARIABLES), list([]), list(variables),
    number(8, Object.keys(world).length - names.length));
}

function refuse() {
  const policy = settings.policy && settings.policy.name;
  const message = `the code policy \`${policy}\` is for Python; JavaScript runs with the policy \`open\` only`;
  record(VIOLATION, text("language"), number(4, 1), text("javascript"), text(message));
  record(ERROR, list([Buffer.concat([text("CodeNotAllowed"), text(message), list([]), text(message)])]));
}

async function perform(options, code) {
  const mode = options.mode || "run";
  const policy = (settings.policy && settings.policy.name) || "open";
  if (mode === "state") return reportState(), OK;
  if (policy !== "open" && policy !== "off") return refuse(), mode === "check" ? OK : REFUSED;
  const file = `<run ${runs + (mode !== "check")}>`;
  try {
    if (mode === "check") return new vm.Script(processTopLevelAwait(code) || code, { filename: file }), OK;
    runs++;
    sources.set(file, code.split("\n"));
    if (sources.size > 100) sources.delete(sources.keys().next().value);
    if (mode !== "run") throw new Error("the debugger is for Python only");
    delete world.__result__;
    const { value } = await execute(code, file); // in an object: a promise would be awaited
    if (value !== undefined) reportValue(value);
    if ("__result__" in world) reportResult(world.__result__);
    else if (value !== undefined) reportResult(value);
    return OK;
  } catch (error) {
    const isInterrupt = error instanceof Interrupted || (error && error.code === "ERR_SCRIPT_EXECUTION_INTERRUPTED");
    reportError(isInterrupt ? interruption() : error);
    return isInterrupt ? INTERRUPTED : RAISED;
  } finally {
    interruptRun = null;
  }
}

let received = Buffer.alloc(0);
let isBusy = false;

async function take() {
  if (isBusy || received.length < 9) return;
  const size = received.readUInt32BE(5);
  if (received.length < 9 + size) return;
  const kind = received[0], value = received.readUInt32BE(1), body = received.subarray(9, 9 + size);
  received = received.subarray(9 + size);
  if (kind === RUN) {
    isBusy = true;
    const head = body.readUInt32BE(0);
    let status = RAISED;
    try {
      status = await perform(JSON.parse(body.toString("utf8", 4, 4 + head)), body.toString("utf8", 4 + head));
    } finally {
      report(DONE, status, value);
      isBusy = false;
    }
  }
  return take();
}

const control = new net.Socket({ fd: CONTROL, readable: true, writable: false });
const exit = process.exit.bind(process);
control.on("data", (data) => {
  received = Buffer.concat([received, data]);
  take();
});
control.on("end", () => exit(0));
control.on("error", () => exit(0));
// The version of node is in it: see GREETING of the protocol.
const greeting = [...process.versions.node.split(".").map((part) => Math.min(255, parseInt(part, 10) || 0)), VERSION];
report(HELLO, 0, Buffer.from(greeting).readUInt32BE(0));
