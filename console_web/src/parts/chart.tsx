// A chart of values over time.

import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import { theme } from "../store";

export interface Series {
  label: string;
  values: (number | null)[];
}

const HEIGHT = 170;

function time(at: number, all: number[]): string {
  const text = new Date(at * 1000).toTimeString();
  return all[all.length - 1] - all[0] < 600 ? text.slice(0, 8) : text.slice(0, 5);
}

export function Chart({ times: now, series, label }: { times: number[]; series: Series[]; label: string }) {
  const times = useRef(now);
  times.current = now;
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const data = [now, ...series.map((one) => one.values)] as uPlot.AlignedData;
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const style = getComputedStyle(element);
    const colour = (name: string) => style.getPropertyValue(name).trim();
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    plot.current = new uPlot(
      {
        width: element.clientWidth || 400,
        height: HEIGHT,
        cursor: { y: false },
        scales: { y: { range: (_, low, high) => [Math.min(0, low ?? 0), Math.max(1, (high ?? 1) * 1.1)] } },
        axes: [{ ...axis, size: 24, space: 80, values: (_, splits) => splits.map((split) => time(split, times.current)) }, { ...axis, size: 44 }],
        series: [
          {},
          ...series.map((one, index) => ({
            label: one.label,
            stroke: colour(`--series-${index + 1}`),
            width: 1.5,
            spanGaps: true,
            // A line needs two values.
            points: { show: (plot: uPlot, place: number) => Array.from(plot.data[place] ?? []).filter((value) => value != null).length === 1 },
            value: (_: uPlot, value: number | null) => (value == null ? "" : value.toFixed(value < 10 ? 1 : 0)),
          })),
        ],
      },
      data,
      element,
    );
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: element.clientWidth, height: HEIGHT }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
      plot.current = null;
    };
  }, [theme.value, series.length]);
  useEffect(() => plot.current?.setData(data), [now, series]);
  return <div class="chart" ref={box} role="img" aria-label={label} data-points={now.length} />;
}
