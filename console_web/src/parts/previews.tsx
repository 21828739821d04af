// Pictures, tables and trees of values, within limits: what is shown was made by a sandbox.

import { useState } from "preact/hooks";
import { shown } from "../format";
import { Empty } from "../ui";

const MAX_ROWS = 1000;
const MAX_COLUMNS = 100;
const MAX_PIXELS = 50_000_000;
const MAX_DEPTH = 50;
const MAX_CHILDREN = 500;

export function isPicture(name: string): boolean {
  return /\.(png|jpe?g|gif|webp|bmp)$/i.test(name);
}

// Why a picture is not shown: a small file can be a huge picture.
export function pictureProblem(data: Uint8Array): string {
  const size = sizeOf(data);
  if (!size) return "It is no picture that is known here. Download it instead.";
  const [width, height] = size;
  return width * height > MAX_PIXELS ? `It has ${width} x ${height} pixels, which is more than is shown here. Download it instead.` : "";
}

function sizeOf(data: Uint8Array): [number, number] | null {
  const view = new DataView(data.buffer, data.byteOffset, data.byteLength);
  if (data.length > 24 && view.getUint32(0) === 0x89504e47) return [view.getUint32(16), view.getUint32(20)];
  if (data.length > 10 && view.getUint32(0) === 0x47494638) return [view.getUint16(6, true), view.getUint16(8, true)];
  if (data.length > 26 && view.getUint16(0) === 0x424d) return [Math.abs(view.getInt32(18, true)), Math.abs(view.getInt32(22, true))];
  if (data.length > 30 && view.getUint32(8) === 0x57454250) return sizeOfWebp(view);
  if (data.length > 4 && view.getUint16(0) === 0xffd8) {
    let at = 2;
    while (at + 9 < data.length && data[at] === 0xff) {
      const kind = data[at + 1];
      if (kind >= 0xc0 && kind <= 0xcf && ![0xc4, 0xc8, 0xcc].includes(kind)) return [view.getUint16(at + 7), view.getUint16(at + 5)];
      at += 2 + view.getUint16(at + 2);
    }
  }
  return null;
}

function sizeOfWebp(view: DataView): [number, number] | null {
  const short = (at: number) => view.getUint16(at, true);
  switch (view.getUint32(12)) {
    case 0x56503858: // extended: 24 bits each, less one
      return [(short(24) | (view.getUint8(26) << 16)) + 1, (short(27) | (view.getUint8(29) << 16)) + 1];
    case 0x5650384c: // lossless: 14 bits each, less one
      return [(short(21) & 0x3fff) + 1, ((view.getUint32(21, true) >>> 14) & 0x3fff) + 1];
    case 0x56503820: // lossy
      return [short(26) & 0x3fff, short(28) & 0x3fff];
    default:
      return null;
  }
}

export function parseTable(text: string, separator: string): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let cell = "";
  let isQuoted = false;
  for (let at = 0; at < text.length && rows.length <= MAX_ROWS; at++) {
    const sign = text[at];
    if (isQuoted) {
      if (sign === '"' && text[at + 1] === '"') {
        cell += '"';
        at++;
      } else if (sign === '"') isQuoted = false;
      else cell += sign;
    } else if (sign === '"' && !cell) isQuoted = true;
    else if (sign === separator || sign === "\n") {
      row.push(cell.replace(/\r$/, ""));
      cell = "";
      if (sign === "\n") {
        rows.push(row);
        row = [];
      }
    } else cell += sign;
  }
  if (cell || row.length) rows.push([...row, cell]);
  return rows;
}

export function Table({ text, separator }: { text: string; separator: string }) {
  const rows = parseTable(text, separator);
  if (!rows.length) return <Empty>The file is empty.</Empty>;
  const [head, ...body] = rows;
  return (
    <div class="scroll preview" tabIndex={0} role="region" aria-label="Table">
      <table>
        <thead>
          <tr>
            {head.slice(0, MAX_COLUMNS).map((cell, index) => (
              <th key={index}>{shown(cell)}</th>
            ))}
          </tr>
        </thead>
        <tbody>
          {body.slice(0, MAX_ROWS).map((row, number) => (
            <tr key={number}>
              {row.slice(0, MAX_COLUMNS).map((cell, index) => (
                <td key={index}>{shown(cell)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
      {body.length > MAX_ROWS && <Empty>Only the first {MAX_ROWS} rows are shown.</Empty>}
    </div>
  );
}

export function Tree({ text }: { text: string }) {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return <Empty>This is not valid JSON: {String(error)}</Empty>;
  }
  return (
    <div class="scroll preview" tabIndex={0} role="region" aria-label="Tree">
      <Value name="" value={value} depth={0} />
    </div>
  );
}

function Value({ name, value, depth }: { name: string; value: unknown; depth: number }) {
  const [isOpen, setOpen] = useState(depth < 2);
  const label = name ? `${shown(name)}: ` : "";
  if (typeof value !== "object" || value === null)
    return (
      <div>
        {label}
        <code>{shown(JSON.stringify(value)).slice(0, 2000)}</code>
      </div>
    );
  const parts = Array.isArray(value) ? value.map((one, index) => [String(index), one] as const) : Object.entries(value);
  return (
    <details open={isOpen} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>
        {label}
        <span class="faint">{Array.isArray(value) ? `[${parts.length}]` : `{${parts.length}}`}</span>
      </summary>
      {isOpen && depth < MAX_DEPTH && (
        <div class="indented">
          {parts.slice(0, MAX_CHILDREN).map(([key, one]) => (
            <Value key={key} name={key} value={one} depth={depth + 1} />
          ))}
          {parts.length > MAX_CHILDREN && <div class="faint">{parts.length - MAX_CHILDREN} more</div>}
        </div>
      )}
    </details>
  );
}
