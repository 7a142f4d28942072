/** A plot of lines over time, with marks for changes. The pointer or the arrow keys show the values at a time. */

import { html } from "../vendor/htm-preact.js";
import { useEffect, useRef } from "../vendor/preact-hooks.js";
import UPlot from "../vendor/uplot.js";

/**
 * @typedef {import("./series.js").Columns} Columns
 * @typedef {{time: number, text: string}} Mark a change at a time in seconds
 */

const HEIGHT = 180;
const COLORS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3], [1, 2], [8, 2]];

/**
 * @param {{title: string, columns: Columns, marks: Mark[], format: (value: number | null) => string, isShare?: boolean,
 *   onZoom: (from: number, to: number) => void}} properties a share has at most 100 %, and at least one percent is shown
 */
export function Plot({ title, columns, marks, format, isShare = false, onZoom }) {
  const frame = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {UPlot | null} */ (null));
  const shown = useRef({ marks, onZoom });
  shown.current = { marks, onZoom };
  const labels = columns.lines.map(({ label }) => label).join("\n");
  useEffect(() => {
    const element = frame.current;
    if (!element) return;
    const made = new UPlot(optionsOf({ columns, format, isShare }, element, shown), dataOf(columns), element);
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [labels]);
  useEffect(() => plot.current?.setData(dataOf(columns)), [columns, marks]);
  return html`<figure class="plot">
    <figcaption>${title}</figcaption>
    <div ref=${frame} role="img" aria-label=${`${title}: ${summaryOf(columns, format)}`}></div>
  </figure>`;
}

/**
 * @param {Columns} columns
 * @returns {UPlot.AlignedData}
 */
function dataOf({ times, lines }) {
  return [times, ...lines.map(({ values }) => values)];
}

/**
 * Return the last values of a plot, for readers who do not see it.
 *
 * @param {Columns} columns
 * @param {(value: number | null) => string} format
 */
export function summaryOf({ lines }, format) {
  return lines
    .map(({ label, values }) => `${label} ${format(values.findLast((value) => value !== null) ?? null)}`)
    .join(", ");
}

/**
 * @param {{columns: Columns, format: (value: number | null) => string, isShare: boolean}} plot
 * @param {HTMLElement} element
 * @param {{current: {marks: Mark[], onZoom: (from: number, to: number) => void}}} shown
 * @returns {UPlot.Options}
 */
function optionsOf({ columns, format, isShare }, element, shown) {
  const color = (/** @type {string} */ name) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = { stroke: color("--text-quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  const value = (/** @type {unknown} */ _plot, /** @type {number | null} */ number) => format(number);
  return {
    width: element.clientWidth || 600,
    height: HEIGHT,
    cursor: { drag: { x: true, y: false } },
    scales: { y: { range: (_plot, least, most) => (isShare ? [Math.min(99, least ?? 99), 100.05] : rangeOf(most)) } },
    axes: [axis, { ...axis, size: 64, values: (_plot, ticks) => ticks.map((tick) => format(tick)) }],
    series: [
      {},
      ...columns.lines.map(({ label }, index) => ({
        label,
        value,
        stroke: color(COLORS[index % COLORS.length] ?? ""),
        dash: DASHES[index % DASHES.length] ?? [],
        width: 2,
      })),
    ],
    hooks: {
      draw: [(made) => drawMarks(made, shown.current.marks, color("--text-quiet"))],
      setSelect: [
        (made) => {
          const { left, width } = made.select;
          if (width > 4) shown.current.onZoom(made.posToVal(left, "x"), made.posToVal(left + width, "x"));
          made.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
        },
      ],
    },
  };
}

/**
 * @param {number | null} most
 * @returns {[number, number]}
 */
function rangeOf(most) {
  return [0, Math.max(1, (most ?? 0) * 1.05)];
}

/**
 * @param {UPlot} plot
 * @param {Mark[]} marks
 * @param {string} color
 */
function drawMarks(plot, marks, color) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.strokeStyle = color;
  ctx.setLineDash([4, 4]);
  for (const { time } of marks) {
    const x = Math.round(plot.valToPos(time, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
