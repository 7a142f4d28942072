/** The labels of a plot's time axis, in the reader's locale and zone as all times of the page. */

const FONT = "12px system-ui, sans-serif";
const GAP_PX = 16;
const MINUTE_S = 60;

const MINUTES = new Intl.DateTimeFormat(undefined, { timeStyle: "short" });
const SECONDS = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const MOMENTS = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const DATES = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short" });

/** A time with a long label: its hour has two digits with 12 hours too. */
const LONG = new Date(2026, 11, 28, 22, 48, 48);

/** @returns {import("../vendor/uplot.js").default.Axis} */
export function timeAxis() {
  return { font: FONT, space: labelWidth(), values: (_plot, times, _axis, _space, step) => timeLabels(times, step) };
}

/**
 * Return the time under the pointer. It has no zone, so that the legend of a narrow plot keeps its lines.
 *
 * @param {number | null} time seconds since the epoch
 */
export function pointedTime(time) {
  return time === null ? "–" : MOMENTS.format(time * 1000);
}

/**
 * Return a label for each time: the time of the day, with seconds if the step needs them, and below it the date at the first time of a day.
 *
 * @param {number[]} times seconds since the epoch
 * @param {number} step seconds between two times
 * @returns {string[]}
 */
function timeLabels(times, step) {
  let last = "";
  return times.map((time) => {
    const moment = new Date(time * 1000);
    const date = DATES.format(moment);
    const isOtherDay = date !== last;
    last = date;
    const text = (step < MINUTE_S ? SECONDS : MINUTES).format(moment);
    return isOtherDay ? `${text}\n${date}` : text;
  });
}

/** Return the pixels between two times so that their labels do not overlap. */
function labelWidth() {
  const context = document.createElement("canvas").getContext("2d");
  if (!context) return 96;
  context.font = FONT;
  return (
    Math.ceil(Math.max(...[SECONDS, DATES].map((format) => context.measureText(format.format(LONG)).width))) + GAP_PX
  );
}
