// Twenty conversations at once, and what goes wrong; prints JSON.
import { ExitReason, Sandbox } from "../../../client_ts/dist/src/index.js";

async function converse(number) {
  const sandbox = await Sandbox.open("ts", `thread ${number}`, { env: { N: String(number) } });
  try {
    await sandbox.write(`d/mine-${number}.bin`, new Uint8Array(3_000_000).fill(number));
    const done = await sandbox.run("cat d/* | wc -c; echo $N; echo no >&2; exit 3");
    const data = await sandbox.read(`d/mine-${number}.bin`);
    const isSame = data.length === 3_000_000 && data.every((byte) => byte === number);
    return [...done.stdout.split(/\s+/).filter(Boolean), done.stderr.trim(), done.exitCode, isSame];
  } finally {
    await sandbox.kill();
  }
}

async function failures() {
  const sandbox = await Sandbox.open("ts", "failures");
  const late = await sandbox.run(["sleep", "60"], { timeout: 0.5 });
  const missing = await sandbox.read("none").catch((error) => error.message);
  await sandbox.kill();
  const ended = await sandbox.run("true").catch((error) => error.message);
  return [late.exitCode, late.reason === ExitReason.TIMED_OUT, missing, ended];
}

const found = await Promise.all(Array.from({ length: 20 }, (_, number) => converse(number)));
console.log(JSON.stringify({ found, failures: await failures() }));
