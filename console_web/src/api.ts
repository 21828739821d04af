// Typed calls of the API, from the descriptors that are generated from the protos.

import {
  create,
  fromBinary,
  toBinary,
  type DescMessage,
  type DescMethod,
  type DescMethodServerStreaming,
  type DescMethodBiDiStreaming,
  type DescMethodUnary,
  type MessageInitShape,
  type MessageShape,
} from "@bufbuild/protobuf";
import { AdminService } from "#gen/admin_service_pb";
import { ClusterService } from "#gen/cluster_service_pb";
import { CodeService } from "#gen/code_service_pb";
import { DataService } from "#gen/data_service_pb";
import { EnvironmentService } from "#gen/environment_service_pb";
import { ExecService } from "#gen/exec_service_pb";
import { FileService } from "#gen/file_service_pb";
import { PortService } from "#gen/port_service_pb";
import { ProjectService } from "#gen/project_service_pb";
import { SessionService } from "#gen/session_service_pb";
import { SnapshotService } from "#gen/snapshot_service_pb";
import { CallError, page, statusOf, type Running } from "./socket";

export const admin = AdminService.method;
export const cluster = ClusterService.method;
export const code = CodeService.method;
export const data = DataService.method;
export const environments = EnvironmentService.method;
export const execs = ExecService.method;
export const files = FileService.method;
export const ports = PortService.method;
export const projects = ProjectService.method;
export const sessions = SessionService.method;
export const snapshots = SnapshotService.method;

function pathOf(method: DescMethod): string {
  return `/${method.parent.typeName}/${method.name}`;
}

export async function call<I extends DescMessage, O extends DescMessage>(
  method: DescMethodUnary<I, O>,
  request: MessageInitShape<I>,
  options: { passive?: boolean } = {},
): Promise<MessageShape<O>> {
  await page.ready();
  const data = toBinary(method.input, create(method.input, request) as MessageShape<I>);
  return new Promise((resolve, reject) => {
    let answer: MessageShape<O> | null = null;
    page.open(
      pathOf(method),
      data,
      {
        onMessage: (message) => (answer = fromBinary(method.output, message)),
        onEnd: (error) => {
          if (error) reject(error);
          else if (answer) resolve(answer);
          else reject(new CallError(13, "The daemon gave no answer.", "", new Map()));
        },
      },
      options.passive ?? false,
    );
  });
}

// The answers of a stream. The daemon is granted more only when the reader has taken what it has, so a slow reader slows the daemon down.
export async function* stream<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O>,
  request: MessageInitShape<I>,
  options: { passive?: boolean; signal?: AbortSignal } = {},
): AsyncGenerator<MessageShape<O>> {
  const talk = await open(method, request, options);
  yield* talk.answers;
}

export interface Conversation<I extends DescMessage, O extends DescMessage> {
  send(request: MessageInitShape<I>): void;
  answers: AsyncGenerator<MessageShape<O>>;
  cancel(): void;
}

export async function open<I extends DescMessage, O extends DescMessage>(
  method: DescMethodServerStreaming<I, O> | DescMethodBiDiStreaming<I, O>,
  first: MessageInitShape<I>,
  options: { passive?: boolean; signal?: AbortSignal } = {},
): Promise<Conversation<I, O>> {
  await page.ready();
  const encode = (request: MessageInitShape<I>) =>
    toBinary(method.input, create(method.input, request) as MessageShape<I>);
  const queue: Uint8Array[] = [];
  let ended: CallError | null | undefined;
  let wake = () => {};
  const running: Running = page.open(
    pathOf(method),
    encode(first),
    {
      onMessage: (data) => {
        queue.push(data);
        wake();
      },
      onEnd: (error) => {
        ended = error;
        wake();
      },
    },
    options.passive ?? false,
  );
  const cancel = () => {
    running.cancel();
    if (ended === undefined) ended = null;
    wake();
  };
  options.signal?.addEventListener("abort", cancel);
  async function* answers(): AsyncGenerator<MessageShape<O>> {
    try {
      for (;;) {
        const data = queue.shift();
        if (data) {
          yield fromBinary(method.output, data);
          running.take(data.length);
        } else if (ended !== undefined) {
          if (ended) throw ended;
          return;
        } else {
          await new Promise<void>((resolve) => (wake = resolve));
        }
      }
    } finally {
      options.signal?.removeEventListener("abort", cancel);
      if (ended === undefined) running.cancel();
    }
  }
  return { send: (request) => running.send(encode(request)), answers: answers(), cancel };
}

// --- files, as HTTP bodies ---

export const key = { value: "" };

export function upload<I extends DescMessage, O extends DescMessage>(
  method: { input: I; output: O; name: string; parent: { typeName: string } },
  first: MessageInitShape<I>,
  body: Blob,
  onProgress: (sent: number) => void,
  signal?: AbortSignal,
): Promise<MessageShape<O>> {
  const message = toBinary(method.input, create(method.input, first) as MessageShape<I>);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("PUT", `/upload/${method.parent.typeName}/${method.name}`);
    request.responseType = "arraybuffer";
    request.setRequestHeader("Authorization", `Bearer ${key.value}`);
    request.setRequestHeader("X-Sandboxd-Message", base64(message));
    request.upload.onprogress = (event) => onProgress(event.loaded);
    request.onerror = () => reject(new CallError(14, "The upload was interrupted.", "", new Map()));
    request.onabort = () => reject(new CallError(1, "The upload was cancelled.", "CANCELLED", new Map()));
    request.onload = () => {
      const data = new Uint8Array(request.response as ArrayBuffer);
      const type = request.getResponseHeader("Content-Type") ?? "";
      if (request.status === 200) resolve(fromBinary(method.output, data));
      else if (type.includes("rpc-status")) reject(statusOf(data));
      else reject(new CallError(2, new TextDecoder().decode(data), "", new Map()));
    };
    signal?.addEventListener("abort", () => request.abort());
    request.send(body);
  });
}

export async function ticket<I extends DescMessage>(
  method: { input: I; name: string; parent: { typeName: string } },
  request: MessageInitShape<I>,
  name: string,
): Promise<string> {
  const data = toBinary(method.input, create(method.input, request) as MessageShape<I>);
  const query = new URLSearchParams({ name });
  const answer = await post(`/ticket/${method.parent.typeName}/${method.name}?${query}`, data);
  return `/download/${answer.ticket}`;
}

export async function post(path: string, body: Uint8Array | string): Promise<Record<string, string>> {
  const headers: Record<string, string> = key.value ? { Authorization: `Bearer ${key.value}` } : {};
  const response = await fetch(path, { method: "POST", headers, body: body as BodyInit });
  if (!response.ok) throw new CallError(2, await response.text(), String(response.status), new Map());
  return response.json();
}

// The bytes of a file, for previews and the editor.
export async function fetchFile(url: string): Promise<Uint8Array> {
  const response = await fetch(url);
  const data = new Uint8Array(await response.arrayBuffer());
  if (response.ok) return data;
  if (response.headers.get("Content-Type")?.includes("rpc-status")) throw statusOf(data);
  throw new CallError(2, new TextDecoder().decode(data), "", new Map());
}

export function save(url: string): void {
  const link = document.createElement("a");
  link.href = url;
  link.download = "";
  link.click();
}

function base64(data: Uint8Array): string {
  let text = "";
  for (const byte of data) text += String.fromCharCode(byte);
  return btoa(text);
}
