// The daemons that share sessions: what each does, which one has a session, and how this one is emptied.

import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import {
  WorkerState,
  type DrainWorkerResponse,
  type FindSessionResponse,
  type ListWorkersResponse,
  type Worker,
} from "#gen/cluster_service_pb";
import { call, cluster, stream } from "../api";
import { isInCluster, listWorkers } from "../capabilities";
import { duration, plural, seconds } from "../format";
import { attempt, may } from "../store";
import { ask, Button, Empty, Meter, Name, usePoll } from "../ui";

const WORDS: Partial<Record<WorkerState, [string, string]>> = {
  [WorkerState.READY]: ["ready", "good"],
  [WorkerState.DRAINING]: ["draining", "fair"],
  [WorkerState.LOST]: ["lost", "bad"],
};

export function Cluster() {
  const [known, setKnown] = useState<ListWorkersResponse | null>(null);
  const [problem, setProblem] = useState("");
  const load = async () => {
    try {
      setKnown(await listWorkers());
      setProblem("");
    } catch (error) {
      setProblem(sentence(error));
    }
  };
  usePoll(load, 2000);
  if (!known && !problem) return <section aria-busy="true" />;
  const here = known?.workers.find((worker) => worker.id === known.answeredBy);
  return (
    <section>
      <h1>Cluster</h1>
      {problem && (
        <p role="alert" class="bad">
          {problem}
        </p>
      )}
      {known && !isInCluster.value ? (
        <Empty>This daemon is alone: it shares its sessions with no other. Daemons that have the same Redis and the same cluster key are listed here.</Empty>
      ) : (
        <>
          {known && <Workers workers={known.workers} here={known.answeredBy} />}
          <Find />
          {here && may.manage && <Drain here={here} workers={known?.workers ?? []} reload={load} />}
        </>
      )}
    </section>
  );
}

function sentence(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

function Workers({ workers, here }: { workers: Worker[]; here: string }) {
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="Workers">
      <table>
        <thead>
          <tr>
            <th>Worker</th>
            <th>State</th>
            <th>Sandboxes</th>
            <th>Warm</th>
            <th>Lease left</th>
            <th>Version</th>
            <th>Environments</th>
          </tr>
        </thead>
        <tbody>
          {workers.map((worker) => {
            const [word, kind] = WORDS[worker.state] ?? ["unknown", ""];
            return (
              <tr key={worker.id} data-worker={worker.id}>
                <td>
                  <Name>{worker.id}</Name> {worker.id === here && <span class="label">serves this page</span>}
                  <div class="faint">
                    <Name>{worker.address}</Name>
                  </div>
                </td>
                <td class="state">
                  <span class={`dot ${kind}`} aria-hidden="true" /> {word}
                </td>
                <td>
                  <Meter label="sandboxes" value={worker.used} limit={worker.capacity} text={`${worker.used} of ${worker.capacity}`} />
                </td>
                <td>{worker.warm}</td>
                <td>{worker.lease && (seconds(worker.lease) > 0 ? duration(worker.lease) : "ended")}</td>
                <td>{worker.version}</td>
                <td>
                  {worker.environments.map((name) => (
                    <span key={name} class="label">
                      <Name>{name}</Name>{" "}
                    </span>
                  ))}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

// --- the place of a session ---

function Find() {
  const [wanted, setWanted] = useState("");
  const [found, setFound] = useState<(FindSessionResponse & { sessionId: string }) | null>(null);
  const [problem, setProblem] = useState("");
  const find = async (event: Event) => {
    event.preventDefault();
    const sessionId = wanted.trim();
    try {
      setFound({ ...(await call(cluster.findSession, { sessionId })), sessionId });
      setProblem("");
    } catch (error) {
      setFound(null);
      setProblem(sentence(error));
    }
  };
  return (
    <>
      <h2>Find a session</h2>
      <form class="row wrap" onSubmit={find}>
        <input
          data-filter
          type="search"
          placeholder="ses_…"
          aria-label="Id of a session"
          value={wanted}
          onInput={(event) => setWanted(event.currentTarget.value)}
        />
        <button disabled={!wanted.trim()}>Find</button>
      </form>
      <div role="status" class="found">
        {problem && <p class="bad">{problem}</p>}
        {found && (
          <dl class="facts">
            {places(found).map(([name, value]) => (
              <div key={name}>
                <dt>{name}</dt>
                <dd>
                  <Name>{value}</Name>
                </dd>
              </div>
            ))}
            <div>
              <dt>Session</dt>
              <dd>
                <a href={`#/session/${encodeURIComponent(found.sessionId)}`}>
                  <Name>{found.sessionId}</Name>
                </a>
              </dd>
            </div>
          </dl>
        )}
      </div>
    </>
  );
}

function places(found: FindSessionResponse): [string, string][] {
  return [
    [found.parked ? "Last worker" : "Worker", found.worker],
    ["Address", found.address || "–"],
    ["Parked", found.parked ? "yes: any worker can open it" : "no"],
    ["Epoch", String(found.epoch)],
    ["Continues elsewhere from", found.committedSnapshot ? `snapshot ${found.committedSnapshot}` : "no snapshot yet"],
  ];
}

// --- a drain ---

// It goes on while other pages of this tab are shown; the daemon ends it with the tab.
const drain = signal<{ progress: DrainWorkerResponse | null; isOver: boolean } | null>(null);
let stopMoving = new AbortController();

async function moveAway(): Promise<void> {
  stopMoving = new AbortController();
  const { signal } = stopMoving;
  drain.value = { progress: null, isOver: false };
  try {
    for await (const progress of stream(cluster.drainWorker, {}, { signal })) drain.value = { progress, isOver: false };
  } catch (error) {
    if (!signal.aborted) drain.value = null;
    throw error;
  }
  if (!signal.aborted && drain.value) drain.value = { ...drain.value, isOver: true };
}

async function takeAgain(): Promise<void> {
  stopMoving.abort();
  for await (const _ of stream(cluster.drainWorker, { cancel: true })); // its one answer says nothing
  drain.value = null;
}

function Drain({ here, workers, reload }: { here: Worker; workers: Worker[]; reload: () => Promise<void> }) {
  const isDraining = here.state === WorkerState.DRAINING;
  const { progress = null, isOver = false } = drain.value ?? {};
  const isMoving = drain.value !== null && !isOver;
  const isOverHere = isOver && isDraining; // else someone has made it ready again
  const begin = async () => {
    const hasOther = workers.some((worker) => worker.id !== here.id && worker.state === WorkerState.READY);
    const text = (
      <>
        <p>
          Worker <Name>{here.id}</Name> takes no new sessions, and parks its own so that other workers can open them: idle ones at once,
          the others when their commands have ended. After 5 minutes commands are ended.
        </p>
        {!hasOther && <p class="hint">No other worker is ready. Its sessions cannot be opened until one is.</p>}
        <p>Keep this tab open: what is left stays here if you close it. You can let the worker take sessions again at any time.</p>
      </>
    );
    if (!(await ask("Move all sessions away from this worker?", text, "Drain", { danger: true }))) return;
    const moving = attempt(moveAway());
    await attempt(reload());
    await moving;
    await attempt(reload());
  };
  const end = async () => {
    await attempt(takeAgain());
    await attempt(reload());
  };
  return (
    <>
      <h2>Drain this worker</h2>
      <p class="faint">
        Before <Name>{here.id}</Name> is stopped for good. Other workers are drained on their own consoles.
      </p>
      <div role="status" class="drain">
        {isMoving && !progress && <p>It begins.</p>}
        {progress && (isMoving || isOverHere) && <Progress progress={progress} isOver={isOver} />}
        {isDraining && !drain.value && <p class="hint">It takes no new sessions. This tab does not move those that it has.</p>}
      </div>
      <div class="row wrap">
        {!isMoving && !(isOverHere && !progress?.failed) && (
          <Button kind="danger" onClick={begin}>
            {isDraining ? "Drain again" : "Drain"}
          </Button>
        )}
        {(isDraining || isMoving) && <Button onClick={end}>Take sessions again</Button>}
      </div>
    </>
  );
}

function Progress({ progress, isOver }: { progress: DrainWorkerResponse; isOver: boolean }) {
  const { moved, left, failed, running } = progress;
  const all = moved + left + failed;
  return (
    <>
      <p>
        <progress max={all || 1} value={all ? moved : 1} aria-label="Sessions that were moved" /> {moved} moved, {left} left, {failed} failed,{" "}
        {plural(running, "command")} running
      </p>
      {failed > 0 && <p class="bad">Some sessions could not be moved; the log of the daemon says why.</p>}
      {isOver && !failed && <p class="good">Nothing is left: the worker can be stopped.</p>}
    </>
  );
}
