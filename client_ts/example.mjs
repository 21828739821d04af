import { Sandbox } from "sandboxd";

const sandbox = await Sandbox.open("ada", "conversation-42");
await sandbox.write("numbers.txt", "3\n1\n2\n");
const done = await sandbox.run("sort -n numbers.txt | tail -1");
console.log(done.exitCode, done.stdout.trim());
await sandbox.kill();
