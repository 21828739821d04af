// How a command ended, in one line.

import { ExitReason, type ExitStatus } from "#gen/exec_pb";
import { bytes, duration } from "../format";

const REASONS: Partial<Record<ExitReason, string>> = {
  [ExitReason.TIMED_OUT]: "timed out",
  [ExitReason.CANCELLED]: "cancelled",
  [ExitReason.SESSION_CLOSED]: "the session ended",
  [ExitReason.SANDBOX_LOST]: "the sandbox was lost",
  [ExitReason.SWEPT]: "ended with another command",
  [ExitReason.OUT_OF_MEMORY]: "out of memory",
  [ExitReason.PROCESS_LIMIT]: "process limit reached",
  [ExitReason.DISK_FULL]: "disk full",
  [ExitReason.NO_OUTPUT_TIMEOUT]: "wrote nothing for too long",
};

export function endWord(exit: ExitStatus): string {
  const how =
    exit.outcome.case === "code" ? `exit ${exit.outcome.value}` : exit.outcome.case === "signal" ? `signal ${exit.outcome.value}` : "";
  return [REASONS[exit.reason], how].filter(Boolean).join(", ") || "ended";
}

export function isGood(exit: ExitStatus): boolean {
  return exit.outcome.case === "code" && exit.outcome.value === 0;
}

// The counters are those of the whole sandbox, in which the next context starts beside a short run of code.
export function Exit({ exit, isCode }: { exit: ExitStatus; isCode?: boolean }) {
  const usage = exit.usage;
  const facts = [
    duration(exit.duration),
    usage && !isCode && `CPU ${duration(usage.cpuTime)}`,
    usage && `peak ${bytes(usage.peakMemoryBytes)}`,
    `${bytes(exit.stdoutBytes)} out, ${bytes(exit.stderrBytes)} err`,
    exit.stdoutDroppedBytes + exit.stderrDroppedBytes > 0n &&
      `${bytes(exit.stdoutDroppedBytes + exit.stderrDroppedBytes)} not kept`,
  ].filter(Boolean);
  return (
    <p class="exit" role="status">
      <strong class={isGood(exit) ? "good" : "bad"}>{endWord(exit)}</strong> · {facts.join(" · ")}
      {exit.hint && <span class="hint"> {exit.hint}</span>}
    </p>
  );
}
