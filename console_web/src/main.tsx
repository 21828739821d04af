// The shell of the console: login, navigation, pages.

import { render, type JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { SessionState } from "#gen/session_pb";
import { call, sessions } from "./api";
import { Audit } from "./pages/audit";
import { DataSources } from "./pages/data";
import { Doctor } from "./pages/doctor";
import { Environments } from "./pages/environments";
import { Projects } from "./pages/projects";
import { Sessions } from "./pages/sessions";
import { dataSources, findCapabilities, isInCluster } from "./capabilities";
import { dismiss, go, logIn, loginMessage, logOut, may, me, notices, place, start, switchTheme } from "./store";
import { state } from "./socket";
import { ask, Asking, Button, Name, useKeys } from "./ui";

function Login() {
  const [token, setToken] = useState("");
  const [isBusy, setBusy] = useState(false);
  const submit = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    try {
      await logIn({ token: token.trim() });
    } catch (error) {
      loginMessage.value = error instanceof Error ? error.message : String(error);
    }
    setBusy(false);
  };
  return (
    <main class="login">
      <form onSubmit={submit}>
        <h1>sandboxd</h1>
        <label>
          Token
          <input
            type="password"
            value={token}
            autocomplete="off"
            autofocus
            onInput={(event) => setToken(event.currentTarget.value)}
          />
        </label>
        <p role="alert" class="bad">
          {loginMessage.value}
        </p>
        <button class="main" disabled={isBusy || !token.trim()}>
          Log in
        </button>
        <p class="faint">
          On the daemon's host, <code>sandboxd console</code> prints a link that logs in.
        </p>
      </form>
    </main>
  );
}

function pages(): [string, string][] {
  const all: [string, string, boolean][] = [
    ["overview", "Overview", may.oversee],
    ["sessions", "Sessions", true],
    ["projects", "Projects", me.value?.scope !== "read-only"],
    ["environments", "Environments", true],
    ["data", "Data", dataSources.value.length > 0],
    ["cluster", "Cluster", may.oversee && isInCluster.value],
    ["audit", "Audit", may.manage],
    ["doctor", "Doctor", may.oversee],
  ];
  return all.filter(([, , isShown]) => isShown).map(([id, title]) => [id, title]);
}

function Bar() {
  const here = place.value[0] === "session" ? "sessions" : (place.value[0] ?? pages()[0][0]);
  const [isOpen, setOpen] = useState(false); // on a phone, where the pages are a menu
  const shown = pages();
  return (
    <header class={isOpen ? "open" : ""} onKeyDown={(event) => event.key === "Escape" && setOpen(false)}>
      <button type="button" class="menu plain" aria-expanded={isOpen} aria-controls="pages" onClick={() => setOpen(!isOpen)}>
        <span aria-hidden="true">☰</span> {shown.find(([id]) => id === here)?.[1] ?? "Pages"}
      </button>
      <a class="brand" href="#/">
        sandboxd
      </a>
      <nav aria-label="Pages" id="pages" onClick={() => setOpen(false)}>
        {shown.map(([id, title]) => (
          <a key={id} href={`#/${id}`} aria-current={here === id ? "page" : undefined}>
            {title}
          </a>
        ))}
      </nav>
      <span class={`connection ${state.value === "live" ? "good" : "bad"}`} role="status">
        {state.value}
      </span>
      <span class="who" title="Who is logged in">
        <Name>{me.value?.name ?? ""}</Name> ({me.value?.scope})
      </span>
      <Button kind="plain" title="Switch between dark and light" onClick={switchTheme}>
        ◐
      </Button>
      <Button kind="plain" onClick={() => logOut()}>
        Log out
      </Button>
    </header>
  );
}

// A page in a chunk of its own.
function Lazy({ load }: { load: () => Promise<() => JSX.Element> }) {
  const [Loaded, setLoaded] = useState<(() => JSX.Element) | null>(null);
  const show = (page: () => JSX.Element) => setLoaded(() => page);
  useEffect(() => void load().then(show, () => show(NotLoaded)), []);
  return Loaded ? <Loaded /> : <section aria-busy="true" />;
}

function NotLoaded() {
  return (
    <section>
      <h1>This page is not here</h1>
      <p>The daemon cannot be reached, or is another version than the one that this tab was loaded from.</p>
      <Button kind="main" onClick={() => location.reload()}>
        Load again
      </Button>
    </section>
  );
}

function Page() {
  const [kind, id] = place.value;
  switch (kind ?? pages()[0][0]) {
    case "overview":
      return <Lazy key="overview" load={() => import("./pages/overview").then((loaded) => loaded.Overview)} />;
    case "session":
      return <Lazy key={id} load={() => import("./pages/session").then(({ SessionPage }) => () => <SessionPage id={id} />)} />;
    case "projects":
      return <Projects />;
    case "environments":
      return <Environments />;
    case "data":
      return <DataSources />;
    case "cluster":
      return <Lazy key="cluster" load={() => import("./pages/cluster").then((loaded) => loaded.Cluster)} />;
    case "audit":
      return <Audit />;
    case "doctor":
      return <Doctor />;
    default:
      return <Sessions />;
  }
}

async function jump(): Promise<void> {
  const wanted = await ask("Go to a session", "USER/THREAD or the id of a session", "Open", { input: "" });
  if (!wanted) return;
  if (wanted.startsWith("ses_")) return go("session", wanted);
  const [userId, threadId = ""] = wanted.split("/", 2);
  const found = await call(sessions.listSessions, { userId, threadId });
  const best = found.sessions.find((one) => one.state === SessionState.ACTIVE) ?? found.sessions.at(-1);
  if (best) go("session", best.sessionId);
}

const KEYS = [
  ["g then o s p e c a d", "go to a page"],
  ["/", "filter"],
  ["j k Enter", "move and open in a list"],
  ["Ctrl-K", "go to a session"],
  ["Esc Esc", "leave the terminal"],
  ["Ctrl-S", "save in the editor"],
  ["?", "show these keys"],
];

function App() {
  const went = useRef(0);
  const to = (id: string) => () => Date.now() - went.current < 1500 && go(id);
  useKeys({
    g: () => (went.current = Date.now()),
    o: to("overview"),
    s: to("sessions"),
    p: to("projects"),
    e: to("environments"),
    c: to("cluster"),
    a: to("audit"),
    d: to("doctor"),
    "/": () => document.querySelector<HTMLInputElement>("[data-filter]")?.focus(),
    "?": () =>
      void ask(
        "Keys",
        <dl class="keys">
          {KEYS.map(([keys, what]) => (
            <>
              <dt>
                <kbd>{keys}</kbd>
              </dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>,
        "Close",
      ),
  });
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.ctrlKey || event.metaKey) && event.key === "k") {
        event.preventDefault();
        void jump();
      }
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
  const isIn = me.value !== null;
  useEffect(() => {
    if (isIn) void findCapabilities();
  }, [isIn]);
  if (!isIn) return state.value === "logged out" ? <Login /> : <main class="login" aria-busy="true" />;
  return (
    <>
      <Bar />
      <main tabIndex={0}>
        <Page />
      </main>
      <div class="notices" role="status" aria-live="polite">
        {notices.value.map((notice) => (
          <button key={notice.id} type="button" class={notice.bad ? "bad" : ""} onClick={() => dismiss(notice.id)}>
            {notice.text}
          </button>
        ))}
      </div>
      <Asking />
    </>
  );
}

const root = document.getElementById("app");
if (root) {
  void start();
  render(<App />, root);
}
