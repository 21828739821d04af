// Each protection: in force, weaker or missing, and how that was proved.

import { useState } from "preact/hooks";
import { ProtectionState, type GetStatusResponse } from "#gen/admin_service_pb";
import { admin, call } from "../api";
import { seconds, span } from "../format";
import { usePoll } from "../ui";

const WORDS: Partial<Record<ProtectionState, [string, string]>> = {
  [ProtectionState.IN_FORCE]: ["in force", "good"],
  [ProtectionState.WEAKER]: ["weaker", "fair"],
  [ProtectionState.MISSING]: ["missing", "bad"],
};

export function Doctor() {
  const [status, setStatus] = useState<GetStatusResponse | null>(null);
  usePoll(async () => setStatus(await call(admin.getStatus, {})), 10_000);
  if (!status) return <section aria-busy="true" />;
  const { engine } = status;
  return (
    <section>
      <h1>Doctor</h1>
      <p class="faint">
        sandboxd {status.version}, up {span(seconds(status.uptime))}.{" "}
        {engine?.reachable ? `${engine.name} ${engine.version}, runtime ${engine.runtime}.` : "The engine does not answer."}
      </p>
      <table class="stacked">
        <thead>
          <tr>
            <th>Protection</th>
            <th>State</th>
            <th>What it is</th>
            <th>How it was proved</th>
          </tr>
        </thead>
        <tbody>
          {status.protections.map((protection) => {
            const [word, kind] = WORDS[protection.state] ?? ["unknown", ""];
            return (
              <tr key={protection.name}>
                <td>{protection.name}</td>
                <td class={kind}>{word}</td>
                <td>{protection.detail}</td>
                <td>{protection.proof}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </section>
  );
}
