// Environments: what sandboxes are made from, and their builds.

import { useState } from "preact/hooks";
import { EnvironmentState, type BuildProgress, type Environment } from "#gen/environment_pb";
import { call, environments, stream } from "../api";
import { bytes, clock, plural } from "../format";
import { Build } from "../parts/build";
import { attempt, may } from "../store";
import { ask, Button, Name, usePoll } from "../ui";

export function Environments() {
  const [all, setAll] = useState<Environment[] | null>(null);
  const [open, setOpen] = useState("");
  const load = async () => setAll((await call(environments.listEnvironments, {})).environments);
  usePoll(load, 3000);
  const follow = (name: string, progress: BuildProgress) =>
    setAll((now) => now?.map((one) => (one.name === name ? { ...one, progress, state: EnvironmentState.BUILDING } : one)) ?? null);
  return (
    <section>
      <h1>Environments</h1>
      <ul class="plain-list">
        {(all ?? []).map((environment) => (
          <li key={environment.name}>
            <button
              type="button"
              class="plain entry"
              aria-expanded={open === environment.name}
              onClick={() => setOpen(open === environment.name ? "" : environment.name)}
            >
              <span aria-hidden="true">{open === environment.name ? "▾" : "▸"}</span>
              <strong>{environment.name}</strong>
              <span>{environment.description}</span>
              <span class="spring" />
              <span class={environment.state === EnvironmentState.READY ? "good" : "faint"}>
                {EnvironmentState[environment.state].toLowerCase().replaceAll("_", " ")}
              </span>
              {environment.imageBytes > 0n && (
                <span class="faint">
                  {plural(environment.activeSessions, "session")}, {bytes(environment.imageBytes)}
                </span>
              )}
            </button>
            {environment.progress && environment.state === EnvironmentState.BUILDING && <Build progress={environment.progress} />}
            {open === environment.name && <Details name={environment.name} reload={load} onProgress={follow} />}
          </li>
        ))}
      </ul>
    </section>
  );
}

interface DetailsProps {
  name: string;
  reload: () => Promise<void>;
  onProgress: (name: string, progress: BuildProgress) => void;
}

function Details({ name, reload, onProgress }: DetailsProps) {
  const [environment, setEnvironment] = useState<Environment | undefined>();
  const [isBuilding, setBuilding] = useState(false);
  const load = async () => setEnvironment((await call(environments.getEnvironment, { name })).environment);
  usePoll(load, 10_000, [name]);
  const build = async (rebuild: boolean) => {
    const work = async () => {
      for await (const { event } of stream(environments.buildEnvironment, { name, rebuild })) {
        if (event.case === "progress") onProgress(name, event.value);
      }
    };
    setBuilding(true);
    await attempt(work());
    setBuilding(false);
    await attempt(load());
    await attempt(reload());
  };
  const remove = async () => {
    if (!(await ask("Delete this environment's image?", name, "Delete", { danger: true }))) return;
    await attempt(call(environments.deleteEnvironment, { name }));
    await attempt(reload());
  };
  if (!environment) return null;
  return (
    <div class="kept">
      {environment.stateDetail && <p class="hint">{environment.stateDetail}</p>}
      {environment.skippedSources.map((why) => (
        <p key={why} class="faint">
          {why}
        </p>
      ))}
      {may.manage && (
        <div class="row">
          <Button disabled={isBuilding} onClick={() => build(environment.state === EnvironmentState.READY)}>
            {environment.state === EnvironmentState.READY ? "Rebuild" : "Build"}
          </Button>
          {environment.imageBytes > 0n && (
            <Button kind="plain" onClick={remove}>
              Delete image
            </Button>
          )}
        </div>
      )}
      <dl class="facts">
        <div>
          <dt>Image</dt>
          <dd>{environment.imageId.slice(0, 19) || "none"}</dd>
        </div>
        <div>
          <dt>Built</dt>
          <dd>{clock(environment.buildTime) || "never"}</dd>
        </div>
        <div>
          <dt>Policy</dt>
          <dd>{environment.commandPolicy || "the daemon's"}</dd>
        </div>
        <div>
          <dt>Python, Node.js</dt>
          <dd>
            {environment.pythonVersion || "–"}, {environment.nodeVersion || "–"}
          </dd>
        </div>
      </dl>
      <details>
        <summary>{plural(environment.packages.length, "package")}</summary>
        <p>
          {environment.packages.map((one) => (
            <span key={one.kind + one.name} class="label">
              <Name>{`${one.name} ${one.version}`}</Name>{" "}
            </span>
          ))}
        </p>
      </details>
    </div>
  );
}
