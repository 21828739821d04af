// The form that opens a session: for whom, and with what.

import type { MessageInitShape } from "@bufbuild/protobuf";
import { useState } from "preact/hooks";
import { EnvironmentState, type BuildProgress, type Environment } from "#gen/environment_pb";
import { OpenOutcome, type OpenSessionRequestSchema } from "#gen/session_service_pb";
import { call, environments, projects, sessions, stream } from "../api";
import { actAs, userId } from "../capabilities";
import { readConfiguration, readPackages, readVariables, type Configuration } from "../configuration";
import { attempt, go, me, say } from "../store";
import { usePoll } from "../ui";
import { Build } from "./build";

const BUILD_SECONDS = 1800n;
const EXAMPLE = '{"environment_type": "python3.11", "environment_config": {"packages": ["pandas"], "env_vars": {"DEBUG": "1"}}}';

type OpenRequest = MessageInitShape<typeof OpenSessionRequestSchema>;

export function newThread(): string {
  return `console-${Date.now().toString(36)}`;
}

async function open(request: OpenRequest): Promise<void> {
  const opened = await call(sessions.openSession, request);
  if (!opened.session) return;
  say(`The session was ${OpenOutcome[opened.outcome].toLowerCase()}.`);
  go("session", opened.session.sessionId);
}

export function openSession(request: OpenRequest): Promise<void> {
  return attempt(open(request)) as Promise<void>;
}

const NOTHING = { thread: "", environment: "", project: "", packages: "", variables: "", policy: "", json: "" };

export function Start() {
  const own = me.value?.userId ?? "";
  const [fields, setFields] = useState({ ...NOTHING, user: userId() });
  const [hasMore, setMore] = useState(false);
  const [problem, setProblem] = useState("");
  const [isBusy, setBusy] = useState(false);
  const [progress, setProgress] = useState<BuildProgress | undefined>();
  const [known, setKnown] = useState<Environment[]>([]);
  const [names, setNames] = useState<string[]>([]);
  usePoll(async () => setKnown((await call(environments.listEnvironments, {})).environments), isBusy ? 1000 : 60_000, [isBusy]);
  usePoll(
    async () => {
      if (!hasMore || !fields.user) return;
      const page = await call(projects.listProjects, { userId: fields.user, pageSize: 1000 });
      setNames(page.projects.map((one) => one.projectId));
    },
    10_000,
    [hasMore, fields.user],
  );
  const given = fields.json.trim() ? attemptToRead(fields.json) : null;
  const isGiven = given !== null;
  const environment = given?.configuration?.environment || fields.environment;
  const build = known.find((one) => one.name === environment && one.state === EnvironmentState.BUILDING)?.progress;
  const set = (name: keyof typeof fields) => (event: { currentTarget: { value: string } }) =>
    setFields({ ...fields, [name]: event.currentTarget.value });
  const configuration = (): Configuration => {
    if (given) {
      if (!given.configuration) throw new Error(given.problem);
      return given.configuration;
    }
    return { environment: "", packages: readPackages(fields.packages), variables: readVariables(fields.variables) };
  };
  const start = async () => {
    const { packages, variables } = configuration();
    if (packages.length)
      for await (const { event } of stream(environments.ensurePackages, { environment, packages }))
        if (event.case === "progress") setProgress(event.value);
    await open({
      userId: fields.user,
      threadId: fields.thread || newThread(),
      environment,
      projectId: fields.project,
      commandPolicy: fields.policy.trim(),
      environmentConfig: packages.length || Object.keys(variables).length ? { packages, envVars: variables } : undefined,
      buildWait: { seconds: BUILD_SECONDS },
    });
  };
  const submit = async (event: Event) => {
    event.preventDefault();
    setProblem("");
    setBusy(true);
    try {
      await start();
    } catch (error) {
      setProblem((error as Error).message);
    }
    setProgress(undefined);
    setBusy(false);
  };
  return (
    <form class="start" onSubmit={submit}>
      <div class="row wrap">
        <input placeholder="user" aria-label="User" required value={fields.user} disabled={own !== ""} onInput={set("user")} onChange={() => actAs(fields.user)} />
        <input placeholder="thread (new)" aria-label="Thread" value={fields.thread} onInput={set("thread")} />
        <select aria-label="Environment" value={environment} disabled={Boolean(given?.configuration?.environment)} onChange={set("environment")}>
          <option value="">default environment</option>
          {[...new Set([...known.map((one) => one.name), environment])].filter(Boolean).map((name) => (
            <option key={name}>{name}</option>
          ))}
        </select>
        <button class="main" disabled={isBusy}>
          Start
        </button>
        <button type="button" class="plain" aria-expanded={hasMore} onClick={() => setMore(!hasMore)}>
          {hasMore ? "▾" : "▸"} Project, packages, variables, policy
        </button>
      </div>
      {problem && (
        <p role="alert" class="bad">
          {problem}
        </p>
      )}
      {isBusy && (progress ?? build) && <Build progress={(progress ?? build) as BuildProgress} />}
      {hasMore && (
        <div class="more">
          <label>
            Project
            <select value={fields.project} onChange={set("project")}>
              <option value="">none</option>
              {names.map((name) => (
                <option key={name}>{name}</option>
              ))}
            </select>
          </label>
          <label>
            Command policy
            <input list="policies" placeholder="as the daemon says" value={fields.policy} onInput={set("policy")} />
            <datalist id="policies">
              <option value="open" />
              <option value="strict" />
            </datalist>
          </label>
          <label>
            Packages
            <input
              placeholder="pandas plotly>=5"
              spellcheck={false}
              disabled={isGiven}
              value={given?.configuration?.packages.join(" ") ?? fields.packages}
              onInput={set("packages")}
            />
          </label>
          <label>
            Variables
            <textarea
              rows={3}
              placeholder="DEBUG=1"
              spellcheck={false}
              disabled={isGiven}
              value={given?.configuration ? lines(given.configuration.variables) : fields.variables}
              onInput={set("variables")}
            />
          </label>
          <label class="wide">
            Or a configuration as JSON
            <textarea rows={3} placeholder={EXAMPLE} spellcheck={false} value={fields.json} aria-describedby="read" onInput={set("json")} />
          </label>
          <p id="read" class={given?.problem ? "bad" : "faint"}>
            {given?.problem || (isGiven ? "The fields show what it says." : "environment_type and environment_config, or packages and env_vars.")}
          </p>
        </div>
      )}
    </form>
  );
}

function attemptToRead(json: string): { configuration?: Configuration; problem: string } {
  try {
    return { configuration: readConfiguration(json), problem: "" };
  } catch (error) {
    return { problem: (error as Error).message };
  }
}

function lines(variables: Record<string, string>): string {
  return Object.entries(variables)
    .map(([name, value]) => `${name}=${value}`)
    .join("\n");
}
