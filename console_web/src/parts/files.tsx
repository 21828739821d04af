// The files of a session: a tree that follows what commands do, uploads by drag and drop, an editor and previews.

import { useRef, useState } from "preact/hooks";
import { FileType, type FileEntry } from "#gen/files_pb";
import type { Session } from "#gen/session_pb";
import { call, files, projects, save, stream, ticket } from "../api";
import { bytes, clock, pathOf } from "../format";
import { attempt, complain, say } from "../store";
import { ask, Button, Empty, Name, useStream } from "../ui";
import { Opened } from "./opened";
import { projectOf, type Dropped, dropped, Transfers, useUploads } from "./uploads";

const PAGE = 1000;
const PROJECT_FILES = "project_files";

function parentOf(path: string): string {
  return path.slice(0, path.lastIndexOf("/")) || "/";
}

export function Files({ session }: { session: Session }) {
  const root = session.workspaceDir;
  const projectRoot = `${root}/${PROJECT_FILES}`;
  const [children, setChildren] = useState(new Map<string, FileEntry[]>());
  const [expanded, setExpanded] = useState(new Set([root]));
  const [opened, setOpened] = useState<FileEntry | null>(null);
  const [isOver, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const folderInput = useRef<HTMLInputElement>(null);
  const projectInput = useRef<HTMLInputElement>(null);
  // Of directories whose names are no text.
  const exact = useRef(new Map<string, Uint8Array>());
  const shownDirectories = useRef(expanded);
  shownDirectories.current = expanded;

  const absolute = (path: string) => (path.startsWith("/") ? path : `${root}/${path}`);
  const list = async (path: string) => {
    const entries: FileEntry[] = [];
    let pageToken = "";
    do {
      const place = { path, pathBytes: exact.current.get(path) ?? new Uint8Array() };
      const request = { sessionId: session.sessionId, ...pathOf(place), pageSize: PAGE, pageToken };
      const page = await call(files.listFiles, request, { passive: true });
      // Paths below the workspace are relative to it; here each entry has one name.
      entries.push(...page.entries.map((entry) => ({ ...entry, path: absolute(entry.path) })));
      pageToken = page.nextPageToken;
    } while (pageToken && entries.length < 20 * PAGE);
    for (const entry of entries) if (entry.pathBytes.length) exact.current.set(entry.path, entry.pathBytes);
    const rank = (entry: FileEntry) => (entry.type === FileType.DIRECTORY ? 0 : 1);
    entries.sort((a, b) => rank(a) - rank(b) || a.name.localeCompare(b.name));
    setChildren((now) => new Map(now).set(path, entries));
  };
  const refresh = async (paths: Iterable<string>) => {
    for (const path of paths) {
      try {
        await list(path);
      } catch (error) {
        if ((error as { reason?: string }).reason !== "FILE_NOT_FOUND") throw error;
        setExpanded((now) => new Set([...now].filter((one) => one !== path)));
      }
    }
  };
  useStream(async (signal) => {
    const changes = stream(
      files.watchFiles,
      { sessionId: session.sessionId, recursive: true, gather: { nanos: 200_000_000 } },
      { passive: true, signal },
    );
    for await (const batch of changes) {
      if (batch.watching || batch.overflow) {
        await refresh(shownDirectories.current);
        continue;
      }
      const touched = new Set<string>();
      for (const change of batch.changes) {
        for (const path of [change.path, change.oldPath]) {
          const parent = path && parentOf(absolute(path));
          if (parent && shownDirectories.current.has(parent)) touched.add(parent);
        }
      }
      await refresh(touched);
    }
  });
  const toggle = (entry: FileEntry) => {
    const next = new Set(expanded);
    if (!next.delete(entry.path)) {
      next.add(entry.path);
      void attempt(list(entry.path));
    }
    setExpanded(next);
  };

  const uploads = useUploads(session);
  const send = async (given: Dropped) => {
    await uploads.send(given);
    const isOfProject = given.files.some(({ path }) => projectOf(session, path));
    if (isOfProject) setExpanded((now) => new Set(now).add(projectRoot));
    await attempt(refresh(isOfProject ? [...shownDirectories.current, projectRoot] : shownDirectories.current));
  };
  const sendChosen = (input: HTMLInputElement, directory: string) => {
    const chosen = [...(input.files ?? [])];
    void send({ directories: [], files: chosen.map((file) => ({ path: `${directory}/${file.webkitRelativePath || file.name}`, file })) });
    input.value = "";
  };

  const remove = async (entry: FileEntry) => {
    const isDirectory = entry.type === FileType.DIRECTORY;
    const project = projectOf(session, entry.path);
    const what = isDirectory ? "directory" : project ? "file of the project" : "file";
    if (!(await ask(`Delete this ${what}?`, <Name>{entry.path}</Name>, "Delete", { danger: true }))) return;
    const file = { sessionId: session.sessionId, ...pathOf(entry), recursive: isDirectory };
    await attempt<unknown>(project ? call(projects.deleteProjectFile, { ...project, name: entry.name }) : call(files.removeFile, file));
    if (opened?.path === entry.path) setOpened(null);
    await attempt(refresh([parentOf(entry.path)]));
  };
  const isFixed = (entry: FileEntry) => entry.path === projectRoot || projectOf(session, entry.path) !== null;
  const rename = async (entry: FileEntry) => {
    const name = await ask("Move or rename", <Name>{entry.path}</Name>, "Move", { input: entry.path });
    if (!name || name === entry.path) return;
    await attempt(call(files.moveFile, { sessionId: session.sessionId, ...pathOf(entry), newPath: name, makeParents: true }));
    await attempt(refresh(shownDirectories.current));
  };
  const download = async (entry: FileEntry) => {
    const isDirectory = entry.type === FileType.DIRECTORY;
    const request = { sessionId: session.sessionId, ...pathOf(entry) };
    const link = isDirectory
      ? ticket(files.downloadTar, request, `${entry.name}.tar`)
      : ticket(files.downloadFile, request, entry.name);
    const url = await attempt(link);
    if (url) save(url);
  };
  const create = async () => {
    const path = await ask("New file", "Path of the file", "Create", { input: `${root}/` });
    if (!path || path.endsWith("/")) return;
    const made = await attempt(call(files.writeText, { sessionId: session.sessionId, path, text: "", makeParents: true, overwrite: 2 }));
    if (made?.entry) setOpened({ ...made.entry, path: absolute(made.entry.path) });
    await attempt(refresh(shownDirectories.current));
  };
  const packed = async () => {
    const url = await attempt(ticket(files.downloadTar, { sessionId: session.sessionId }, `${session.threadId}.tar`));
    if (url) save(url);
  };
  const onDrop = async (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    if (!event.dataTransfer) return;
    try {
      const isOnProject = session.projectId && (event.target as Element).closest(`[data-path="${projectRoot}"]`);
      await send(await dropped(event.dataTransfer, isOnProject ? projectRoot : root));
    } catch (error) {
      complain(error);
    }
  };

  return (
    <aside
      class={`files ${isOver ? "over" : ""}`}
      aria-label="Files"
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={onDrop}
    >
      <div class="row wrap">
        <h2>Files</h2>
        <span class="spring" />
        <Button kind="plain" onClick={create}>
          New
        </Button>
        <Button kind="plain" onClick={() => input.current?.click()}>
          Upload
        </Button>
        <Button kind="plain" title="Upload a folder" onClick={() => folderInput.current?.click()}>
          Folder
        </Button>
        {session.projectId && (
          <Button kind="plain" title={`Upload to the project ${session.projectId}`} onClick={() => projectInput.current?.click()}>
            To project
          </Button>
        )}
        <Button kind="plain" title="Download everything as a tar" onClick={packed}>
          ⤓ tar
        </Button>
        <input
          ref={input}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          onChange={(event) => sendChosen(event.currentTarget, root)}
        />
        <input
          ref={folderInput}
          type="file"
          {...{ webkitdirectory: true }}
          hidden
          aria-label="Folder to upload"
          onChange={(event) => sendChosen(event.currentTarget, root)}
        />
        <input
          ref={projectInput}
          type="file"
          multiple
          hidden
          aria-label="Files to upload to the project"
          onChange={(event) => sendChosen(event.currentTarget, projectRoot)}
        />
      </div>
      <Transfers uploads={uploads} />
      <ul class="tree" role="tree" aria-label="Files of the workspace">
        <Branch path={root} children={children} expanded={expanded} level={1} act={{ toggle, open: setOpened, remove, rename, download, isFixed }} />
      </ul>
      {children.get(root)?.length === 0 && <Empty>Drop files here, or let a command make some.</Empty>}
      {opened && <Opened key={opened.path} session={session} entry={opened} onClose={() => setOpened(null)} onSaved={() => say("Saved.")} />}
    </aside>
  );
}

interface Actions {
  toggle: (entry: FileEntry) => void;
  open: (entry: FileEntry) => void;
  remove: (entry: FileEntry) => void;
  rename: (entry: FileEntry) => void;
  download: (entry: FileEntry) => void;
  isFixed: (entry: FileEntry) => boolean; // cannot be moved
}

function Branch(props: { path: string; children: Map<string, FileEntry[]>; expanded: Set<string>; level: number; act: Actions }) {
  const { act, expanded, level } = props;
  return (
    <>
      {(props.children.get(props.path) ?? []).map((entry) => {
        const isDirectory = entry.type === FileType.DIRECTORY;
        const isOpen = expanded.has(entry.path);
        const pick = () => (isDirectory ? act.toggle(entry) : act.open(entry));
        return (
          <li
            key={entry.path}
            role="treeitem"
            aria-level={level}
            aria-expanded={isDirectory ? isOpen : undefined}
            aria-label={entry.name}
            tabIndex={0}
            data-path={entry.path}
            onKeyDown={(event) => {
              if (event.target !== event.currentTarget) return;
              if (event.key === "Enter") pick();
              else if (event.key === "Delete") act.remove(entry);
              else return;
              event.preventDefault();
            }}
          >
            <div class="entry" data-level={level} onClick={pick}>
              <span class="name">
                {isDirectory ? (isOpen ? "▾ " : "▸ ") : "  "}
                <Name>{entry.name}</Name>
                {isDirectory ? "/" : ""}
                {entry.type === FileType.SYMLINK && (
                  <span class="faint">
                    {" → "}
                    <Name>{entry.linkTarget}</Name>
                  </span>
                )}
                {entry.name === PROJECT_FILES && level === 1 && <span class="faint"> read-only</span>}
              </span>
              <span class="faint">
                {entry.type === FileType.FILE ? bytes(entry.sizeBytes) : ""} {clock(entry.modifyTime)}
              </span>
              <span class="actions">
                <Button kind="plain" title={`Download ${entry.name}`} onClick={() => act.download(entry)}>
                  ⤓
                </Button>
                {!act.isFixed(entry) && (
                  <Button kind="plain" title={`Move ${entry.name}`} onClick={() => act.rename(entry)}>
                    ↦
                  </Button>
                )}
                {!(entry.name === PROJECT_FILES && level === 1) && (
                  <Button kind="plain" title={`Delete ${entry.name}`} onClick={() => act.remove(entry)}>
                    ✕
                  </Button>
                )}
              </span>
            </div>
            {isDirectory && isOpen && (
              <ul role="group">
                <Branch {...props} path={entry.path} level={level + 1} />
              </ul>
            )}
          </li>
        );
      })}
    </>
  );
}
