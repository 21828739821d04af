// Markdown as elements of the page, never as HTML: headings, lists, quotes, code, tables and emphasis. Anything else stays text.

import type { ComponentChildren, JSX } from "preact";
import { shown } from "../format";

const MAX_BLOCKS = 2000;

export function Markdown({ text }: { text: string }) {
  return (
    <div class="scroll preview markdown" tabIndex={0} role="region" aria-label="Page">
      {blocks(text)}
    </div>
  );
}

function blocks(text: string): JSX.Element[] {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const made: JSX.Element[] = [];
  let at = 0;
  const take = (test: RegExp): string[] => {
    const taken: string[] = [];
    while (at < lines.length && test.test(lines[at])) taken.push(lines[at++]);
    return taken;
  };
  while (at < lines.length && made.length < MAX_BLOCKS) {
    const line = lines[at];
    const key = made.length;
    const heading = /^(#{1,6})\s+(.*)$/.exec(line);
    if (!line.trim()) at++;
    else if (heading) {
      const Level = `h${Math.min(6, heading[1].length + 2)}` as "h3";
      made.push(<Level key={key}>{inline(heading[2])}</Level>);
      at++;
    } else if (line.startsWith("```")) {
      at++;
      const code = take(/^(?!```)/);
      at++;
      made.push(
        <pre key={key} class="output">
          {code.map(shown).join("\n")}
        </pre>,
      );
    } else if (/^\s*[-*+]\s+/.test(line)) {
      const items = take(/^\s*[-*+]\s+/);
      made.push(
        <ul key={key}>
          {items.map((item, index) => (
            <li key={index}>{inline(item.replace(/^\s*[-*+]\s+/, ""))}</li>
          ))}
        </ul>,
      );
    } else if (/^\s*\d+[.)]\s+/.test(line)) {
      const items = take(/^\s*\d+[.)]\s+/);
      made.push(
        <ol key={key}>
          {items.map((item, index) => (
            <li key={index}>{inline(item.replace(/^\s*\d+[.)]\s+/, ""))}</li>
          ))}
        </ol>,
      );
    } else if (line.startsWith(">")) {
      made.push(<blockquote key={key}>{inline(take(/^>/).map((one) => one.slice(1).trim()).join(" "))}</blockquote>);
    } else if (line.startsWith("|")) {
      const rows = take(/^\|/).filter((row) => !/^\|[\s:|-]+$/.test(row));
      const cells = rows.map((row) => row.replace(/^\||\|\s*$/g, "").split("|"));
      made.push(
        <table key={key}>
          <tbody>
            {cells.map((row, index) => (
              <tr key={index}>
                {row.map((cell, column) => (
                  <td key={column}>{inline(cell.trim())}</td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>,
      );
    } else made.push(<p key={key}>{inline(take(/^(?!\s*$|#|```|>|\||\s*[-*+]\s)/).join(" ") || lines[at++])}</p>);
  }
  return made;
}

const SPANS = /(`[^`]+`|\*\*[^*]+\*\*|__[^_]+__|\*[^*]+\*|\[[^\]]*\]\([^)\s]*\))/;

function inline(text: string): ComponentChildren[] {
  return text.split(SPANS).map((part, index) => {
    if (index % 2 === 0) return shown(part);
    if (part.startsWith("`")) return <code key={index}>{shown(part.slice(1, -1))}</code>;
    if (part.startsWith("**") || part.startsWith("__")) return <strong key={index}>{shown(part.slice(2, -2))}</strong>;
    if (part.startsWith("*")) return <em key={index}>{shown(part.slice(1, -1))}</em>;
    // A link is shown with its address and leads nowhere: the text was written by a sandbox.
    const [, title, address] = /^\[([^\]]*)\]\(([^)\s]*)\)$/.exec(part) ?? ["", part, ""];
    return (
      <span key={index}>
        {shown(title)} <span class="faint">({shown(address)})</span>
      </span>
    );
  });
}
