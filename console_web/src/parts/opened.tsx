// A file that is looked at: as text in the editor, as a picture, a table or a tree of values.

import { useEffect, useRef, useState } from "preact/hooks";
import type { FileEntry } from "#gen/files_pb";
import { OnConflict } from "#gen/project_service_pb";
import type { Session } from "#gen/session_pb";
import { call, fetchFile, files, post, projects, ticket, upload } from "../api";
import { bytes, millis, pathOf } from "../format";
import { complain, isDark, theme } from "../store";
import { ask, Button, Empty, Name, Tabs } from "../ui";
import { Markdown } from "./markdown";
import { isPicture, pictureProblem, Table, Tree } from "./previews";
import { projectOf } from "./uploads";

const MAX_TEXT = 1 << 20;
const MAX_PICTURE = 5 << 20;
const MAX_DOCUMENT = 4 << 20;
const MAX_SHOWN = 20_000;
type View = "edit" | "picture" | "table" | "tree" | "markdown" | "page";

function viewsOf(name: string): View[] {
  if (isPicture(name)) return ["picture"];
  if (/\.(csv|tsv)$/i.test(name)) return ["edit", "table"];
  if (/\.json$/i.test(name)) return ["edit", "tree"];
  if (/\.(md|markdown)$/i.test(name)) return ["edit", "markdown"];
  if (/\.(html?|svg)$/i.test(name)) return ["edit", "page"];
  return ["edit"];
}

const TITLES: Record<View, string> = { edit: "Edit", picture: "Picture", table: "Table", tree: "Tree", markdown: "Markdown", page: "Page" };

export function Opened(props: { session: Session; entry: FileEntry; onClose: () => void; onSaved: () => void }) {
  const { session, entry } = props;
  const views = viewsOf(entry.name);
  const [view, setView] = useState<View>(views[0]);
  const [data, setData] = useState<Uint8Array | null>(null);
  const [problem, setProblem] = useState("");
  const [isLarge, setLarge] = useState(false);
  const limit = view === "picture" ? MAX_PICTURE : MAX_TEXT;
  useEffect(() => {
    if (entry.sizeBytes > BigInt(limit)) {
      setProblem(`It has ${bytes(entry.sizeBytes)}; files up to ${bytes(limit)} are shown here. Download it instead.`);
      return;
    }
    const request = { sessionId: session.sessionId, ...pathOf(entry) };
    ticket(files.downloadFile, request, entry.name)
      .then(fetchFile)
      .then(setData)
      .catch((error: Error) => setProblem(error.message));
  }, []);
  return (
    <div class={`opened ${isLarge ? "large" : ""}`} onKeyDown={(event) => event.key === "Escape" && setLarge(false)}>
      <div class="row">
        <strong>
          <Name>{entry.name}</Name>
        </strong>
        {views.length > 1 && <Tabs tabs={views.map((one) => [one, TITLES[one]] as const)} value={view} onPick={setView} label="View" />}
        <span class="spring" />
        <Button kind="plain" title={isLarge ? "Make smaller" : "Enlarge"} pressed={isLarge} onClick={() => setLarge(!isLarge)}>
          ⤢
        </Button>
        <Button kind="plain" title="Close" onClick={props.onClose}>
          ✕
        </Button>
      </div>
      {problem ? <Empty>{problem}</Empty> : data && <Content {...props} view={view} data={data} />}
    </div>
  );
}

function Content(props: { session: Session; entry: FileEntry; view: View; data: Uint8Array; onSaved: () => void }) {
  const { entry, view, data } = props;
  if (view === "picture") return <Picture name={entry.name} data={data} />;
  const text = new TextDecoder().decode(data);
  if (view === "table") return <Table text={text} separator={/\.tsv$/i.test(entry.name) ? "\t" : ","} />;
  if (view === "tree") return <Tree text={text} />;
  if (view === "markdown") return <Markdown text={text} />;
  if (view === "page") return <Untrusted html={text} title={entry.name} />;
  const exact = exactText(data);
  if (exact === null) return <Empty>This file is not UTF-8 text, so the editor cannot keep its bytes. Download it instead.</Empty>;
  return <Editor {...props} text={exact} />;
}

// Null if the bytes are not those of this text.
function exactText(data: Uint8Array): string | null {
  if (data.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(data);
  } catch {
    return null;
  }
}

function Picture({ name, data }: { name: string; data: Uint8Array }) {
  const problem = pictureProblem(data);
  const [url, setUrl] = useState("");
  useEffect(() => {
    if (problem) return;
    const type = /\.svg$/i.test(name) ? "image/svg+xml" : "";
    const made = URL.createObjectURL(new Blob([data as BlobPart], { type }));
    setUrl(made);
    return () => URL.revokeObjectURL(made);
  }, []);
  if (problem) return <Empty>{problem}</Empty>;
  return url ? <img class="picture" src={url} alt={name} /> : null;
}

// How a result of code looks in its frame: as the page around it.
function look(): string {
  const style = getComputedStyle(document.documentElement);
  const [text, back, line, raised] = ["--text", "--sunken", "--line", "--raised"].map((name) => style.getPropertyValue(name));
  return `<!doctype html><style>
    body { margin: 8px; color: ${text}; background: ${back}; font: 13px/1.45 system-ui, "DejaVu Sans", sans-serif; }
    table { border-collapse: collapse; border: 0; font-variant-numeric: tabular-nums; }
    th, td { padding: 3px 10px; border: 0; border-bottom: 1px solid ${line}; text-align: right; }
    thead th { background: ${raised}; }
  </style>`;
}

// HTML of a sandbox: in a frame with an origin of its own, without scripts unless someone asks for them.
export function Untrusted({ html, title, isResult }: { html: string; title: string; isResult?: boolean }) {
  const [url, setUrl] = useState("");
  const [scripts, setScripts] = useState(false);
  useEffect(() => {
    if (html.length > MAX_DOCUMENT) return;
    post(`/document${scripts ? "?scripts=1" : ""}`, isResult ? look() + html : html)
      .then((answer) => setUrl(`/document/${answer.ticket}`))
      .catch(complain);
  }, [html, scripts, isResult && theme.value]);
  // A frame that may not run scripts cannot say how high it is.
  const height = isResult ? `${Math.min(440, 40 + 26 * html.split("<tr").length)}px` : undefined;
  const run = async () => {
    const yes = await ask(
      "Run the scripts in this result?",
      "They were made by a sandbox. They cannot reach the console. Some browsers let them connect to other hosts, and so carry out what the result shows.",
      "Run",
    );
    if (yes) setScripts(true);
  };
  return (
    <div class="untrusted">
      {url && <iframe key={url} style={{ height }} src={url} sandbox={scripts ? "allow-scripts" : ""} title={title} />}
      {!scripts && /<script/i.test(html) && (
        <Button kind="plain" onClick={run}>
          run scripts in this result
        </Button>
      )}
    </div>
  );
}

// Returns the file's new time. A file of a project is replaced there.
async function write(session: Session, entry: FileEntry, text: string): Promise<FileEntry["modifyTime"]> {
  const request = { sessionId: session.sessionId, ...pathOf(entry) };
  const project = projectOf(session, entry.path);
  if (!project) return (await call(files.writeText, { ...request, text })).entry?.modifyTime;
  const header = { ...project, name: entry.name, onConflict: OnConflict.REPLACE };
  await upload(projects.uploadProjectFile, { part: { case: "header", value: header } }, new Blob([text]), () => {});
  return (await call(files.statFile, request)).entry?.modifyTime;
}

function Editor(props: { session: Session; entry: FileEntry; text: string; onSaved: () => void }) {
  const { session, entry } = props;
  const box = useRef<HTMLDivElement>(null);
  const [isChanged, setChanged] = useState(false);
  const modified = useRef(millis(entry.modifyTime));
  const latest = useRef(props.text); // another theme makes another editor
  useEffect(() => {
    let close = () => {};
    let isGone = false;
    const save = async (text: string): Promise<boolean> => {
      const request = { sessionId: session.sessionId, ...pathOf(entry) };
      const now = await call(files.statFile, request).catch(() => null);
      const isOther = now?.entry && millis(now.entry.modifyTime) !== modified.current;
      if (isOther) {
        const present = (await call(files.readText, request).catch(() => null))?.text ?? "";
        const text = (
          <>
            <p>The file has changed since you opened it. It now has:</p>
            <pre class="output" tabIndex={0} aria-label="The file as it is">
              {present.slice(0, MAX_SHOWN)}
              {present.length > MAX_SHOWN && "\n[more follows]"}
            </pre>
          </>
        );
        if (!(await ask("Overwrite?", text, "Overwrite", { danger: true }))) return false;
      }
      try {
        modified.current = millis(await write(session, entry, text));
      } catch (error) {
        complain(error);
        return false;
      }
      setChanged(false);
      props.onSaved();
      return true;
    };
    // A chunk of its own, which is loaded with the first file.
    void import("./editor_view").then(({ edit }) => {
      if (isGone || !box.current) return;
      const editor = edit(box.current, latest.current, entry.name, save, () => setChanged(true), { isDark: isDark() });
      close = () => {
        latest.current = editor.text();
        editor.close();
      };
    });
    return () => {
      isGone = true;
      close();
    };
  }, [theme.value]);
  return (
    <>
      <div class="editor" ref={box} />
      <p class="faint">{isChanged ? "Not saved. Ctrl-S saves." : "Ctrl-S saves."}</p>
    </>
  );
}
