// Files and folders on their way into a session, with their progress.

import { useRef, useState } from "preact/hooks";
import type { Session } from "#gen/session_pb";
import { call, files, projects, upload } from "../api";
import { bytes } from "../format";
import { say } from "../store";
import { Button, Name } from "../ui";

const AT_ONCE = 3;
const MAX_DROPPED = 1000;
const MAX_SHOWN = 8; // of those that failed
const FADE_MS = 1500;

export interface Dropped {
  files: { path: string; file: File }[];
  directories: string[];
}

interface Transfer {
  name: string;
  size: number;
  sent: number;
  problem: string;
}

// All that was given at once.
interface Batch {
  files: number;
  done: number;
  size: number;
  sent: number;
}

export interface Uploads {
  transfers: Transfer[];
  batch: Batch | null;
  send: (given: Dropped) => Promise<void>;
  cancel: () => void;
  dismiss: () => void;
}

// The project that keeps this file of a session. A project has no directories.
export function projectOf(session: Session, path: string) {
  const isKept = session.projectId !== "" && path.startsWith(`${session.workspaceDir}/project_files/`);
  return isKept ? { userId: session.userId, projectId: session.projectId } : null;
}

export function useUploads(session: Session): Uploads {
  const { sessionId } = session;
  const [transfers, setTransfers] = useState<Transfer[]>([]);
  const [batch, setBatch] = useState<Batch | null>(null);
  const controller = useRef(new AbortController());
  const redraw = () => setTransfers((now) => [...now]);

  const store = async (path: string, file: File, onProgress: (sent: number) => void, signal: AbortSignal) => {
    const project = projectOf(session, path);
    const size = { sizeBytes: BigInt(file.size) };
    const header = <T,>(value: T) => ({ part: { case: "header" as const, value } });
    if (!project) {
      await upload(files.uploadFile, header({ sessionId, path, makeParents: true, ...size }), file, onProgress, signal);
      return;
    }
    const stored = await upload(projects.uploadProjectFile, header({ ...project, name: file.name, ...size }), file, onProgress, signal);
    if (stored.file && stored.file.name !== file.name) say(`Stored as ${stored.file.name}.`);
  };
  const sendOne = async (path: string, file: File, total: Batch) => {
    const transfer: Transfer = { name: path, size: file.size, sent: 0, problem: "" };
    setTransfers((now) => [...now, transfer]);
    const onProgress = (sent: number) => {
      total.sent += sent - transfer.sent;
      transfer.sent = sent;
      redraw();
    };
    try {
      await store(path, file, onProgress, controller.current.signal);
      onProgress(transfer.size);
      setTimeout(() => setTransfers((now) => now.filter((one) => one !== transfer)), FADE_MS);
    } catch (error) {
      transfer.problem = error instanceof Error ? error.message : String(error);
    }
    total.done += 1;
    redraw();
  };
  const send = async (given: Dropped) => {
    const { signal } = (controller.current = new AbortController());
    const total = { files: given.files.length, done: 0, size: given.files.reduce((sum, one) => sum + one.file.size, 0), sent: 0 };
    setBatch(total);
    for (const path of given.directories) {
      if (signal.aborted) break;
      if (projectOf(session, path)) continue;
      await call(files.makeDirectory, { sessionId, path, makeParents: true }).catch((error: Error) =>
        setTransfers((now) => [...now, { name: path, size: 0, sent: 0, problem: error.message }]),
      );
    }
    let position = 0;
    const worker = async () => {
      while (position < given.files.length && !signal.aborted) {
        const { path, file } = given.files[position++];
        await sendOne(path, file, total);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, worker));
    setBatch((now) => (now === total ? null : now));
  };
  const dismiss = () => setTransfers((now) => now.filter((one) => !one.problem));
  return { transfers, batch, send, cancel: () => controller.current.abort(), dismiss };
}

export function Transfers({ uploads }: { uploads: Uploads }) {
  const { batch } = uploads;
  const failed = uploads.transfers.filter((one) => one.problem);
  return (
    <>
      {batch && batch.files > 0 && (
        <div class="row small batch" role="status">
          <progress max={batch.size || 1} value={batch.sent} aria-label="All uploads" />
          {batch.done} of {batch.files} files, {bytes(batch.sent)} of {bytes(batch.size)}
          <Button kind="plain" title="Cancel the uploads" onClick={uploads.cancel}>
            ✕
          </Button>
        </div>
      )}
      <ul class="transfers small">
        {uploads.transfers
          .filter((one) => !one.problem)
          .map((transfer) => (
            <li key={transfer.name}>
              <progress max={transfer.size || 1} value={transfer.size ? transfer.sent : 1} aria-label={transfer.name} /> <Name>{transfer.name}</Name>
            </li>
          ))}
        {failed.slice(0, MAX_SHOWN).map((transfer) => (
          <li key={transfer.name}>
            <Name>{transfer.name}</Name> <span class="bad">{transfer.problem}</span>
          </li>
        ))}
      </ul>
      {failed.length > 0 && (
        <div class="row small">
          <span class="bad">{failed.length > MAX_SHOWN ? `${failed.length} files were not uploaded.` : ""}</span>
          <Button kind="plain" title="Dismiss the failed uploads" onClick={uploads.dismiss}>
            Dismiss
          </Button>
        </div>
      )}
    </>
  );
}

// Files and, as far as the browser gives them, directories with all that is in them.
export async function dropped(transfer: DataTransfer, root: string): Promise<Dropped> {
  const entries = [...transfer.items].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry !== null && entry !== undefined);
  const found: Dropped = { files: [], directories: [] };
  if (!entries.length) {
    found.files = [...transfer.files].map((file) => ({ path: `${root}/${file.name}`, file }));
    return found;
  }
  const walk = async (entry: FileSystemEntry): Promise<void> => {
    if (found.files.length + found.directories.length >= MAX_DROPPED)
      throw new Error(`These are more than ${MAX_DROPPED} files; pack them into a tar and unpack it here.`);
    if (entry.isFile) {
      const file = await new Promise<File>((resolve, reject) => (entry as FileSystemFileEntry).file(resolve, reject));
      found.files.push({ path: `${root}${entry.fullPath}`, file });
      return;
    }
    found.directories.push(`${root}${entry.fullPath}`);
    const reader = (entry as FileSystemDirectoryEntry).createReader();
    for (;;) {
      const some = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
      if (!some.length) return;
      for (const inner of some) await walk(inner);
    }
  };
  for (const entry of entries) await walk(entry);
  return found;
}
