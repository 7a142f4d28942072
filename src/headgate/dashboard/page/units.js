/** Numbers, shares, times and names as text for people. */

/** What a table shows where there is no value. */
export const NONE = "-";

const LOCALE = "en";
const SECONDS = /** @type {const} */ ([
  ["d", 86400],
  ["h", 3600],
  ["min", 60],
  ["s", 1],
]);

// toLocaleString makes a formatter each time, which takes 50 µs: 0.3 s for a graph with 1,000 edges.
const COUNTS = new Intl.NumberFormat(LOCALE);
/** Formats with at most so many digits after the point. */
const DECIMALS = [0, 1, 2].map((digits) => new Intl.NumberFormat(LOCALE, { maximumFractionDigits: digits }));

/**
 * @param {number} value
 * @param {number} most digits after the point
 */
function decimal(value, most) {
  return /** @type {Intl.NumberFormat} */ (DECIMALS[most]).format(value);
}

/**
 * Return a count with separators: `12,345`.
 *
 * @param {number} value
 */
export function count(value) {
  return COUNTS.format(value);
}

/**
 * Return a number with at most three digits that matter: `0.04`, `1.3`, `12`, `4,500`.
 *
 * @param {number} value
 */
export function digits(value) {
  return decimal(value, value >= 100 ? 0 : value >= 10 ? 1 : 2);
}

/**
 * Return events a second over a window: `12.3/s`.
 *
 * @param {number} events
 * @param {number} milliseconds
 */
export function rate(events, milliseconds) {
  return milliseconds > 0 ? `${digits((events * 1000) / milliseconds)}/s` : NONE;
}

/**
 * Return a part of a whole in percent. It says 100 % and 0 % only if they are exact.
 *
 * @param {number} part
 * @param {number} whole
 */
export function percent(part, whole) {
  if (whole <= 0) return NONE;
  const value = (100 * part) / whole;
  const bounded = part === whole ? value : Math.min(value, 99.99);
  const shown = part === 0 ? bounded : Math.max(bounded, 0.01);
  return `${decimal(shown, 2)} %`;
}

/**
 * Return a latency: `750 µs`, `4.4 ms`, `1.2 s`.
 *
 * @param {number | null | undefined} microseconds
 */
export function latency(microseconds) {
  if (microseconds === null || microseconds === undefined) return NONE;
  if (microseconds < 1000) return `${digits(microseconds)} µs`;
  if (microseconds < 1_000_000) return `${digits(microseconds / 1000)} ms`;
  return `${digits(microseconds / 1_000_000)} s`;
}

/**
 * Return bytes a second over a window in the unit that fits: `12 kB/s`.
 *
 * @param {number | null | undefined} bytes
 * @param {number} milliseconds
 */
export function throughput(bytes, milliseconds) {
  if (bytes === null || bytes === undefined || milliseconds <= 0) return NONE;
  const perSecond = (bytes * 1000) / milliseconds;
  if (perSecond < 1000) return `${digits(perSecond)} B/s`;
  if (perSecond < 1_000_000) return `${digits(perSecond / 1000)} kB/s`;
  return `${digits(perSecond / 1_000_000)} MB/s`;
}

/**
 * Return a length of time with its two largest units: `45 s`, `3 min 20 s`, `2 d 4 h`.
 *
 * @param {number} milliseconds
 */
export function duration(milliseconds) {
  const whole = Math.max(0, Math.round(milliseconds / 1000));
  let rest = whole;
  const parts = [];
  for (const [unit, seconds] of SECONDS) {
    const number = Math.floor(rest / seconds);
    rest -= number * seconds;
    if (number) parts.push(`${number} ${unit}`);
    else if (parts.length) break;
  }
  return parts.slice(0, 2).join(" ") || "0 s";
}

/**
 * Return how far a time is from `now`: `3 min 20 s ago`, `in 23 h`.
 *
 * @param {string} time RFC 3339
 * @param {number} now milliseconds since the epoch
 */
export function relative(time, now) {
  const difference = Date.parse(time) - now;
  return difference > 500 ? `in ${duration(difference)}` : `${duration(-difference)} ago`;
}

/**
 * Return a time in the reader's zone, with seconds and the zone.
 *
 * @param {string} time RFC 3339
 */
export function localTime(time) {
  return new Date(time).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" });
}

/**
 * Return the number with its noun: `1 error`, `3 errors`.
 *
 * @param {number} number
 * @param {string} noun
 */
export function plural(number, noun) {
  return `${count(number)} ${noun}${number === 1 ? "" : "s"}`;
}

/**
 * Return the name of an object: `TrafficSplit shop/website`.
 *
 * @param {import("./types.js").Ref} ref
 */
export function refName(ref) {
  return `${ref.kind} ${ref.namespace ? `${ref.namespace}/` : ""}${ref.name}`;
}
