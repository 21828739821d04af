// What all pages share: who is logged in, the theme, where we are, messages to the person.

import { effect, signal } from "@preact/signals";
import { call, key, post, sessions } from "./api";
import { CallError, page, state } from "./socket";

const KEY = "sandboxd.key";
const THEME = "sandboxd.theme";

export interface Me {
  name: string;
  scope: string;
  userId: string;
}

export const me = signal<Me | null>(null);
export const place = signal<string[]>(read());
export const notices = signal<{ id: number; text: string; bad: boolean }[]>([]);
export const theme = signal<"" | "dark" | "light">((localStorage.getItem(THEME) as "dark" | "light" | null) ?? "");
export const loginMessage = signal("");
let lastNotice = 0;

function read(): string[] {
  return location.hash.startsWith("#/") ? location.hash.slice(2).split("/").map(decodeURIComponent) : [];
}

window.addEventListener("hashchange", () => {
  place.value = read();
  if (codeOf(location.hash)) void start(); // a link that was opened in a tab that shows the console already
});

export function go(...parts: string[]): void {
  location.hash = `#/${parts.map(encodeURIComponent).join("/")}`;
}

effect(() => {
  document.documentElement.dataset.theme = theme.value;
  if (theme.value) localStorage.setItem(THEME, theme.value);
});

export function isDark(): boolean {
  return theme.value ? theme.value === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

export function switchTheme(): void {
  theme.value = isDark() ? "light" : "dark";
}

export function say(text: string, bad = false): void {
  const id = ++lastNotice;
  notices.value = [...notices.value.slice(-4), { id, text, bad }];
  setTimeout(() => dismiss(id), bad ? 12_000 : 4000);
}

export function dismiss(id: number): void {
  notices.value = notices.value.filter((notice) => notice.id !== id);
}

// The daemon's own sentence is what a person gets to read.
export function complain(error: unknown): void {
  if (error instanceof CallError && error.reason === "DISCONNECTED") return; // the bar says so
  say(error instanceof Error ? error.message : String(error), true);
}

// What follows a session ends with its sandbox; the head of the session's page says how that ended.
const ENDINGS = new Set(["SANDBOX_LOST", "SESSION_CLOSED", "SESSION_EXPIRED", "SESSION_PARKED", "SESSION_RECREATED"]);

export function complainUnlessEnded(error: unknown): void {
  if (!(error instanceof CallError && ENDINGS.has(error.reason))) complain(error);
}

export function attempt<T>(work: Promise<T>): Promise<T | undefined> {
  return work.catch((error: unknown) => {
    complain(error);
    return undefined;
  });
}

export const may = {
  get act(): boolean {
    return me.value !== null && me.value.scope !== "read-only";
  },
  get oversee(): boolean {
    return me.value !== null && me.value.scope !== "user" && !me.value.userId;
  },
  get manage(): boolean {
    return me.value?.scope === "admin";
  },
};

async function begin(secret: string): Promise<void> {
  key.value = secret;
  sessionStorage.setItem(KEY, secret);
  page.start(secret, () => end("Your login has ended; log in again."));
  me.value = await call(sessions.whoAmI, {});
}

export async function logIn(given: { token?: string; code?: string }): Promise<void> {
  const answer = await post("/login", JSON.stringify(given));
  loginMessage.value = "";
  if (!me.value) return begin(answer.key);
  sessionStorage.setItem(KEY, answer.key); // someone else was logged in: nothing of theirs stays in this tab
  location.reload();
}

export async function logOut(): Promise<void> {
  await attempt(post("/logout", ""));
  end("");
}

function end(message: string): void {
  page.stop();
  key.value = "";
  sessionStorage.removeItem(KEY);
  me.value = null;
  loginMessage.value = message;
}

function codeOf(hash: string): string | undefined {
  return /^#code=([\w-]+)$/.exec(hash)?.[1];
}

// With a one-time code in the address, or with the key of this tab.
export async function start(): Promise<void> {
  const code = codeOf(location.hash);
  if (code) history.replaceState(null, "", "/");
  const kept = sessionStorage.getItem(KEY);
  try {
    if (code) await logIn({ code });
    else if (kept) await begin(kept);
  } catch (error) {
    if (me.value) complain(error); // a link that is too old ends no login
    else if (state.value !== "reconnecting") end(error instanceof Error ? error.message : "");
  }
}
