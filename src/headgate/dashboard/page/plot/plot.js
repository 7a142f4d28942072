/** A plot of lines over time, with marks for changes. The pointer shows the values at a time, in all plots of the page. */

import { html } from "../vendor/htm-preact.js";
import { useEffect, useRef, useState } from "../vendor/preact-hooks.js";
import UPlot from "../vendor/uplot.js";
import { pointedTime, timeAxis } from "./time_axis.js";

/**
 * @typedef {import("./series.js").Columns} Columns
 * @typedef {{time: number, isCurrent: boolean}} PlotMark a line at a time in seconds
 * @typedef {object} Frame what all plots of a view have in common
 * @property {[from: number, to: number]} range seconds since the epoch
 * @property {PlotMark[]} marks
 * @property {(from: number, to: number) => void} onZoom
 * @property {(time: number) => void} onMark the pointer is at the mark of this time
 * @typedef {(value: number | null) => string} Format
 */

const HEIGHT = 180;
/** The space beside the lines in pixels: the values of the axis, and half a label of a time. */
export const MARGIN = { left: 64, right: 24 };
const NEAR_PX = 6;
const COLORS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6"];
const DASHES = [[], [6, 3], [2, 3], [10, 3, 2, 3], [1, 2], [8, 2]];

/**
 * @param {{title: string, columns: Columns, format: Format, frame: Frame, isShare?: boolean, isStepped?: boolean}} properties a share is at
 *   most 100 %, and at least one percent is shown; a stepped line keeps a value until the next one
 */
export function Plot({ title, columns, format, frame, isShare = false, isStepped = false }) {
  const place = useRef(/** @type {HTMLDivElement | null} */ (null));
  const plot = useRef(/** @type {UPlot | null} */ (null));
  const shown = useRef(frame);
  shown.current = frame;
  const scheme = useScheme();
  const labels = columns.lines.map(({ label }) => label).join("\n");
  useEffect(() => {
    const element = place.current;
    if (!element) return;
    const made = new UPlot(
      optionsOf({ columns, format, isShare, isStepped }, element, shown),
      dataOf(columns),
      element,
    );
    plot.current = made;
    const resized = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: HEIGHT }));
    resized.observe(element);
    return () => {
      resized.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [labels, scheme]);
  useEffect(() => plot.current?.setData(dataOf(columns)), [columns, frame.range[0], frame.range[1]]);
  useEffect(() => plot.current?.redraw(false), [frame.marks]);
  return html`<figure class="plot">
    <figcaption>${title}</figcaption>
    <div ref=${place} role="img" aria-label=${`${title}: ${summaryOf(columns, format)}`}></div>
  </figure>`;
}

const DARK = matchMedia("(prefers-color-scheme: dark)");

/** Return the color scheme: a canvas has the colors of the time at which it was drawn. */
function useScheme() {
  const [isDark, setDark] = useState(DARK.matches);
  useEffect(() => {
    const update = () => setDark(DARK.matches);
    DARK.addEventListener("change", update);
    return () => DARK.removeEventListener("change", update);
  }, []);
  return isDark ? "dark" : "light";
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
 * @param {Format} format
 */
export function summaryOf({ lines }, format) {
  return lines
    .map(({ label, values }) => `${label} ${format(values.findLast((value) => value !== null) ?? null)}`)
    .join(", ");
}

/**
 * @param {{columns: Columns, format: Format, isShare: boolean, isStepped: boolean}} plot
 * @param {HTMLElement} element
 * @param {{current: Frame}} shown
 * @returns {UPlot.Options}
 */
function optionsOf({ columns, format, isShare, isStepped }, element, shown) {
  const color = (/** @type {string} */ name) => getComputedStyle(element).getPropertyValue(name).trim();
  const axis = { stroke: color("--text-quiet"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
  const range = isStepped ? percents : isShare ? upperShare : rangeOf;
  return {
    width: element.clientWidth || 600,
    height: HEIGHT,
    padding: [8, MARGIN.right, 0, 0],
    cursor: { drag: { x: true, y: false }, sync: { key: "plots" } },
    scales: { x: { range: () => shown.current.range }, y: { range: (_plot, least, most) => range(least, most) } },
    axes: [
      { ...axis, ...timeAxis() },
      { ...axis, size: MARGIN.left, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
    ],
    series: [
      { value: (_plot, time) => pointedTime(time) },
      ...columns.lines.map(({ label }, index) => lineOf(label, index, { color, format, isStepped })),
    ],
    hooks: {
      draw: [
        (made) => drawMarks(made, shown.current.marks, { line: color("--text-quiet"), current: color("--accent") }),
      ],
      setCursor: [(made) => pointAtMark(made, shown.current)],
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
 * Lines differ by their dashes too, not by the color alone.
 *
 * @param {string} label
 * @param {number} index
 * @param {{color: (name: string) => string, format: Format, isStepped: boolean}} style
 * @returns {UPlot.Series}
 */
function lineOf(label, index, { color, format, isStepped }) {
  const stepped = isStepped ? UPlot.paths.stepped?.({ align: 1 }) : undefined;
  const turn = Math.floor(index / COLORS.length);
  return {
    label,
    value: (_plot, number) => format(number),
    stroke: color(COLORS[index % COLORS.length] ?? ""),
    dash: DASHES[(index + turn) % DASHES.length] ?? [],
    width: 2,
    ...(stepped ? { paths: stepped } : {}),
  };
}

/**
 * @param {UPlot} plot
 * @param {Frame} frame
 */
function pointAtMark(plot, { marks, onMark }) {
  const left = plot.cursor.left ?? -1;
  if (left < 0) return;
  const near = marks.find(({ time }) => Math.abs(plot.valToPos(time, "x") - left) <= NEAR_PX);
  if (near) onMark(near.time);
}

/**
 * @param {number | null} least
 * @returns {[number, number]}
 */
function upperShare(least) {
  return [Math.min(99, least ?? 99), 100.05];
}

/** @returns {[number, number]} */
function percents() {
  return [0, 100.5];
}

/**
 * @param {number | null} _least
 * @param {number | null} most
 * @returns {[number, number]}
 */
function rangeOf(_least, most) {
  return [0, Math.max(1, (most ?? 0) * 1.05)];
}

/**
 * @param {UPlot} plot
 * @param {PlotMark[]} marks
 * @param {{line: string, current: string}} colors
 */
function drawMarks(plot, marks, { line, current }) {
  const { ctx, bbox } = plot;
  ctx.save();
  for (const { time, isCurrent } of marks) {
    const x = Math.round(plot.valToPos(time, "x", true)) + 0.5;
    if (x < bbox.left || x > bbox.left + bbox.width) continue;
    ctx.strokeStyle = isCurrent ? current : line;
    ctx.lineWidth = isCurrent ? 3 : 1;
    ctx.setLineDash(isCurrent ? [] : [4, 4]);
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
  }
  ctx.restore();
}
