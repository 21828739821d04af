// The daemon at a glance, with the past that it keeps.

import { useState } from "preact/hooks";
import type { FigureSample, GetStatisticsResponse } from "#gen/admin_service_pb";
import { admin, call, stream } from "../api";
import { duration, millis, seconds, span } from "../format";
import { Chart, type Series } from "../parts/chart";
import { FirstSteps } from "../parts/first";
import { Tabs, usePoll, useStream } from "../ui";

const RANGES = [
  ["5", "5 min"],
  ["60", "1 h"],
  ["1440", "24 h"],
] as const;
type Range = (typeof RANGES)[number][0];
const KEPT = 300;

interface Rates {
  times: number[];
  samples: FigureSample[];
}

function chosen(range: Range, minutes: FigureSample[], recent: FigureSample[]): Rates {
  const newest = recent.length ? millis(recent[recent.length - 1].time) : Date.now();
  const samples = range === "5" ? recent : [...minutes, ...recent.slice(-1)];
  const kept = samples.filter((sample) => millis(sample.time) >= newest - Number(range) * 60_000);
  return { samples: kept, times: kept.map((sample) => millis(sample.time) / 1000) };
}

// Differences between neighbours, per second. A smaller count is that of a daemon that was started again.
function rate(rates: Rates, count: (sample: FigureSample) => number): (number | null)[] {
  return rates.samples.map((sample, index) => {
    if (!index) return null;
    const before = rates.samples[index - 1];
    const time = rates.times[index] - rates.times[index - 1];
    const change = count(sample) - count(before);
    return change < 0 || time <= 0 ? null : change / time;
  });
}

function mean(rates: Rates, sum: (sample: FigureSample) => number, count: (sample: FigureSample) => number) {
  return rates.samples.map((sample, index) => {
    if (!index) return null;
    const before = rates.samples[index - 1];
    const number = count(sample) - count(before);
    return number > 0 ? ((sum(sample) - sum(before)) / number) * 1000 : null;
  });
}

export function Overview() {
  const [statistics, setStatistics] = useState<GetStatisticsResponse | null>(null);
  const [figures, setFigures] = useState<{ minutes: FigureSample[]; recent: FigureSample[] }>({ minutes: [], recent: [] });
  const [range, setRange] = useState<Range>("5");
  usePoll(async () => setStatistics(await call(admin.getStatistics, {})), 2000);
  useStream(async (signal) => {
    for await (const part of stream(admin.watchFigures, {}, { signal })) {
      setFigures((now) =>
        part.minutes.length
          ? { minutes: part.minutes, recent: part.seconds }
          : { minutes: now.minutes, recent: [...now.recent, ...part.seconds].slice(-KEPT) },
      );
    }
  });
  const rates = chosen(range, figures.minutes, figures.recent);
  const of = (pick: (sample: FigureSample) => number) => rates.samples.map(pick);
  const charts: [string, Series[]][] = [
    [
      "Sessions and commands",
      [
        { label: "sessions", values: of((sample) => sample.activeSessions) },
        { label: "running commands", values: of((sample) => sample.runningExecs) },
      ],
    ],
    [
      "Pool",
      [
        { label: "warm", values: of((sample) => sample.warm) },
        { label: "in use", values: of((sample) => sample.inUse) },
        { label: "starting", values: of((sample) => sample.starting) },
      ],
    ],
    [
      "Per second",
      [
        { label: "calls", values: rate(rates, (sample) => Number(sample.calls)) },
        { label: "commands", values: rate(rates, (sample) => Number(sample.execs)) },
        { label: "failed calls", values: rate(rates, (sample) => Number(sample.failedCalls)) },
      ],
    ],
    [
      "Mean time, in ms",
      [
        { label: "open", values: mean(rates, (sample) => seconds(sample.openTime), (sample) => Number(sample.newSandboxes)) },
        { label: "command", values: mean(rates, (sample) => seconds(sample.execTime), (sample) => Number(sample.execs)) },
      ],
    ],
  ];
  return (
    <section>
      <h1>Overview</h1>
      {statistics && !Object.keys(statistics.sessions?.opens ?? {}).length && <FirstSteps />}
      {statistics && <Tiles statistics={statistics} />}
      <Tabs tabs={RANGES} value={range} onPick={setRange} label="Time" />
      <div class="charts">
        {charts.map(([title, series]) => (
          <figure key={title}>
            <figcaption>{title}</figcaption>
            <Chart times={rates.times} series={series} label={title} />
          </figure>
        ))}
      </div>
      {statistics && <Troubles statistics={statistics} />}
    </section>
  );
}

function Tiles({ statistics }: { statistics: GetStatisticsResponse }) {
  const pools = statistics.pools;
  const warm = pools.reduce((sum, pool) => sum + pool.warm, 0);
  const tiles: [string, string][] = [
    ["Sandboxes in use", String(statistics.activeSandboxes)],
    ["Running commands", String(statistics.runningExecs)],
    ["Warm sandboxes", String(warm)],
    ["Opened from the pool", `${Math.round(statistics.poolHitRate * 100)} %`],
    ["Commands with exit 0", `${Math.round((statistics.execs?.successRate ?? 1) * 100)} %`],
    ["Median command time", duration(statistics.execs?.durations?.p50)],
    ["Up", span(seconds(statistics.uptime))],
  ];
  return (
    <dl class="tiles">
      {tiles.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function Troubles({ statistics }: { statistics: GetStatisticsResponse }) {
  const rows: [string, Record<string, bigint>][] = [
    ["Limits that commands reached", statistics.limitViolations],
    ["Refused calls", statistics.refusedCalls],
    ["Sessions that ended", statistics.sessions?.ends ?? {}],
  ];
  const failed = statistics.pools.filter((pool) => pool.lastError);
  return (
    <dl class="facts">
      {rows.map(([title, counts]) => (
        <div key={title}>
          <dt>{title}</dt>
          <dd>
            {Object.entries(counts)
              .map(([name, count]) => `${name.toLowerCase().replaceAll("_", " ")} ${count}`)
              .join(", ") || "none"}
          </dd>
        </div>
      ))}
      {failed.map((pool) => (
        <div key={pool.environment}>
          <dt>Last failed start ({pool.environment})</dt>
          <dd>{pool.lastError}</dd>
        </div>
      ))}
    </dl>
  );
}
