// Numbers and times for people.

import type { Duration, Timestamp } from "@bufbuild/protobuf/wkt";

export function bytes(value: bigint | number): string {
  let size = Number(value);
  if (size < 1024) return `${size} B`;
  for (const unit of ["KiB", "MiB", "GiB"]) {
    size /= 1024;
    if (size < 1024 || unit === "GiB") return `${size < 10 ? size.toFixed(1) : Math.round(size)} ${unit}`;
  }
  return "";
}

export function seconds(value: Duration | undefined): number {
  return value ? Number(value.seconds) + value.nanos / 1e9 : 0;
}

export function span(value: number): string {
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Math.round(value * 1000)} ms`;
  if (value < 90) return `${value < 10 ? value.toFixed(1) : Math.round(value)} s`;
  if (value < 5400) return `${Math.round(value / 60)} min`;
  if (value < 129600) return `${(value / 3600).toFixed(1)} h`;
  return `${Math.round(value / 86400)} d`;
}

export function duration(value: Duration | undefined): string {
  return span(seconds(value));
}

export function millis(value: Timestamp | undefined): number {
  return value ? Number(value.seconds) * 1000 + value.nanos / 1e6 : 0;
}

export function clock(value: Timestamp | undefined): string {
  if (!value) return "";
  const date = new Date(millis(value));
  const today = new Date().toDateString() === date.toDateString();
  const time = date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
  return today ? time : `${date.toLocaleDateString()} ${time}`;
}

export function moment(value: Timestamp | undefined): string {
  return value ? new Date(millis(value)).toISOString() : "";
}

const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

// How a request names a file: by its exact bytes if its name is no text.
export function pathOf(entry: { path: string; pathBytes: Uint8Array }): { path: string } | { pathBytes: Uint8Array } {
  return entry.pathBytes.length ? { pathBytes: entry.pathBytes } : { path: entry.path };
}

// A name as text: what cannot be seen, or turns the direction of text, becomes visible.
export function shown(name: string): string {
  return name.replace(HIDDEN, (sign) => `\\u${sign.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

// A command or a statement in one line.
export function oneLine(text: string): string {
  return text.trim().replace(/\s*\n\s*/g, " ⏎ ").slice(0, 500);
}

export function plural(count: number | bigint, word: string): string {
  return `${count} ${word}${Number(count) === 1 ? "" : "s"}`;
}

// A word in single quotes for a shell.
export function quoted(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
