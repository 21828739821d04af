// What listens in the sandbox, and a preview of it.

import { useState } from "preact/hooks";
import type { ListeningPort } from "#gen/port_service_pb";
import type { Session } from "#gen/session_pb";
import { call, ports } from "../api";
import { clock } from "../format";
import { attempt, say } from "../store";
import { Button, Empty, usePoll } from "../ui";

export function Ports({ session }: { session: Session }) {
  const [found, setFound] = useState<ListeningPort[] | null>(null);
  const [problem, setProblem] = useState("");
  usePoll(
    async () => {
      try {
        setFound((await call(ports.listPorts, { sessionId: session.sessionId })).ports);
      } catch (error) {
        const { reason, message } = error as { reason?: string; message: string };
        if (reason !== "DOORS_OFF") throw error;
        setProblem(message);
      }
    },
    2000,
    [session.sessionId],
  );
  const preview = async (port: number) => {
    const made = await attempt(call(ports.createPreview, { sessionId: session.sessionId, port }));
    if (!made) return;
    // The page has an origin of its own: it cannot reach the console.
    window.open(made.url, "_blank", "noopener,noreferrer");
    say(`The preview is valid until ${clock(made.expireTime)}.`);
  };
  const withdraw = async () => {
    const gone = await attempt(call(ports.deletePreviews, { sessionId: session.sessionId }));
    if (gone) say(`${gone.deleted} previews were withdrawn.`);
  };
  if (problem) return <Empty>{problem}</Empty>;
  if (found && !found.length) return <Empty>Nothing listens in the sandbox. A server that a command starts on a port shows up here.</Empty>;
  return (
    <>
      <table>
        <tbody>
          {(found ?? []).map((one) => (
            <tr key={`${one.address}:${one.port}`}>
              <td>
                {one.address}:{one.port}
              </td>
              <td class="actions">
                <Button onClick={() => preview(one.port)}>Open preview</Button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
      <Button kind="plain" onClick={withdraw}>
        withdraw all previews
      </Button>
    </>
  );
}
