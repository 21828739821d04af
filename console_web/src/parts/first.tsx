// What to do next: for people who see the console for the first time, and about a session that they look at.

import { call, sessions } from "../api";
import { userId } from "../capabilities";
import { quoted } from "../format";
import { attempt, may, me, say } from "../store";
import { Button, Empty } from "../ui";

function copy(text: string): Promise<void> {
  return attempt(navigator.clipboard.writeText(text).then(() => say("Copied."))) as Promise<void>;
}

function Snippet({ title, text }: { title: string; text: string }) {
  return (
    <figure class="snippet">
      <div class="row">
        <figcaption>{title}</figcaption>
        <span class="spring" />
        <Button kind="plain" onClick={() => copy(text)}>
          Copy
        </Button>
      </div>
      <pre tabIndex={0} aria-label={title}>
        {text}
      </pre>
    </figure>
  );
}

export function Snippets({ user, thread }: { user: string; thread: string }) {
  const python = [
    "from sandboxd_client import Sandbox",
    "",
    `with Sandbox.open(${JSON.stringify(user)}, ${JSON.stringify(thread)}) as sandbox:`,
    '    print(sandbox.commands.run("echo hello").stdout)',
  ];
  return (
    <>
      <Snippet title="Python" text={python.join("\n")} />
      <Snippet title="Shell" text={`sandboxd exec ${quoted(`${user}/${thread}`)} -- echo hello`} />
    </>
  );
}

export function FirstSteps() {
  if (!may.act) return <Empty>There are no sessions.</Empty>;
  const isHost = me.value?.name === "host";
  const link = async () => {
    const made = await attempt(call(sessions.createConsoleLink, {}));
    if (made) await copy(made.url);
  };
  return (
    <ol class="steps">
      <li>
        <h2>Start a session</h2>
        <p>
          A session is a Linux workspace for one conversation of a user. <a href="#/sessions">Start</a> opens one with a terminal, files and code; the same
          user and thread find it again, with its files.
        </p>
      </li>
      <li>
        <h2>Use it from a program</h2>
        <Snippets user={userId()} thread="first" />
      </li>
      <li>
        <h2>Keys</h2>
        {isHost ? (
          <p>
            On this host programs need no key: they find the daemon's socket. For others, <code>sandboxd token create --user ada</code> prints a key and where it
            goes; programs read it from <code>SANDBOXD_TOKEN</code>, and the daemon's address from <code>SANDBOXD_URL</code>.
          </p>
        ) : (
          <p>
            Programs read the token that you logged in with from <code>SANDBOXD_TOKEN</code>, and the daemon's address from <code>SANDBOXD_URL</code>.
          </p>
        )}
      </li>
      <li>
        <h2>Another browser</h2>
        <p>
          <Button onClick={link}>Copy a link</Button> that logs in here as you, once, within a minute. On the host, <code>sandboxd console</code> prints one.
        </p>
      </li>
    </ol>
  );
}
