/** A chart of figures by version. */

import uPlot from "uplot";
import { useEffect, useRef } from "preact/hooks";
import { html } from "./html.js";

const HEIGHT = 220;
const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];

/**
 * @param {{ label: string, x: readonly number[], lines: Record<string, readonly (number | null)[]>, rejected: readonly number[], unit: string }} props
 */
export function Chart({ label, x, lines, rejected, unit }) {
  const box = useRef(/** @type {HTMLElement | null} */ (null));
  useEffect(() => {
    const target = box.current;
    if (!target) return undefined;
    const draw = () => new uPlot(options(target, label, Object.keys(lines), rejected, unit), [x, ...Object.values(lines)], target);
    let plot = draw();
    const width = new ResizeObserver(() => plot.setSize({ width: target.clientWidth, height: HEIGHT }));
    width.observe(target);
    const scheme = matchMedia("(prefers-color-scheme: dark)");
    const again = () => {
      plot.destroy();
      plot = draw();
    };
    scheme.addEventListener("change", again);
    return () => {
      scheme.removeEventListener("change", again);
      width.disconnect();
      plot.destroy();
    };
  }, [label, x, lines, rejected, unit]);
  return html`<div class="chart" ref=${box} role="img" aria-label=${label}></div>`;
}

/**
 * @param {HTMLElement} target
 * @param {string} label
 * @param {readonly string[]} names
 * @param {readonly number[]} rejected
 * @param {string} unit
 */
function options(target, label, names, rejected, unit) {
  const style = getComputedStyle(target);
  const colour = (/** @type {string} */ name) => style.getPropertyValue(name).trim();
  const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
  const series = names.map((name, place) => ({
    label: name,
    stroke: colour(COLOURS[place % COLOURS.length] ?? "--line-1"),
    dash: DASHES[Math.floor(place / COLOURS.length) % DASHES.length],
    width: 2,
    points: { show: true, size: 5 },
    spanGaps: true,
  }));
  return {
    width: target.clientWidth,
    height: HEIGHT,
    title: label,
    scales: { x: { time: false } },
    axes: [{ ...axis, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000] }, { ...axis, size: 64 }],
    series: [{ label: unit }, ...series],
    hooks: { draw: [(/** @type {any} */ plot) => marks(plot, rejected, colour("--bad"))] },
  };
}

/**
 * A dashed line at each rejected version.
 *
 * @param {any} plot
 * @param {readonly number[]} rejected
 * @param {string} colour
 */
function marks(plot, rejected, colour) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = colour;
  ctx.setLineDash([4, 4]);
  for (const number of rejected) {
    const at = plot.valToPos(number, "x", true);
    ctx.beginPath();
    ctx.moveTo(at, bbox.top);
    ctx.lineTo(at, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
