/** The window of the plots. It is in the URL: `span` seconds long, and with `end` a fixed one, else it moves with the time. */

import { go, place, setQuery } from "../../location.js";
import { SelectField } from "../../parts/fields.js";
import { duration } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/** @typedef {{span: number, end: number | null}} Window seconds; `end` is null for a window that ends now */

const SPAN = "900";
/** @type {[value: string, title: string][]} */
const SPANS = [
  [SPAN, "15 minutes"],
  ["3600", "1 hour"],
  ["21600", "6 hours"],
  ["86400", "1 day"],
];
export const STEP_S = 10;
const LONGEST_S = 86_400;
const MOST_POINTS = 360;

/**
 * Return the window in a query of the URL; what is not valid counts as not given.
 *
 * @param {Record<string, string>} query
 * @returns {Window}
 */
export function windowOf({ span = SPAN, end = "" }) {
  const seconds = Math.round(Number(span));
  const time = Date.parse(end) / 1000;
  return {
    span: seconds > 0 ? Math.min(Math.max(seconds, 2 * STEP_S), LONGEST_S) : Number(SPAN),
    end: Number.isFinite(time) && time > 0 ? time : null,
  };
}

/**
 * Return the query of a series, and its range in seconds: a step that gives at most a few hundred points, and times at its multiples.
 *
 * @param {Window} window_
 * @param {number} now seconds since the epoch
 * @returns {{query: Record<string, string>, range: [from: number, to: number]}}
 */
export function seriesOf({ span, end }, now) {
  const step = Math.max(1, Math.ceil(span / STEP_S / MOST_POINTS)) * STEP_S;
  const to = Math.floor((end ?? now) / step) * step;
  const from = to - Math.max(1, Math.ceil(span / step)) * step;
  return { query: { start: text(from), end: text(to), step: `${step}s` }, range: [from, to] };
}

/** Show only a part of the window. The browser's way back leads to the whole one. */
export function zoom(/** @type {number} */ from, /** @type {number} */ to) {
  const { path, query } = place.value;
  const span = Math.max(2 * STEP_S, Math.ceil((to - from) / STEP_S) * STEP_S);
  go(path, { ...query, span: String(span), end: text(Math.ceil(to / STEP_S) * STEP_S) });
}

/** The fields of the window: its length, the pause, and the way to earlier and later times. */
export function WindowBar() {
  const { span, end } = windowOf(place.value.query);
  const isListed = SPANS.some(([value]) => value === String(span));
  /** @type {[string, string][]} */
  const options = isListed ? SPANS : [...SPANS, [String(span), duration(span * 1000)]];
  const move = (/** @type {number} */ to) => setQuery({ end: to >= Date.now() / 1000 ? "" : text(to) });
  const now = () => Math.floor(Date.now() / 1000 / STEP_S) * STEP_S;
  return html`<div class="filters" role="group" aria-label="Time of the plots">
    <${SelectField} name="span" label="Time" options=${options} initial=${SPAN} />
    <button type="button" onClick=${() => move((end ?? now()) - span)}>Earlier</button>
    <button type="button" disabled=${end === null} onClick=${() => move((end ?? now()) + span)}>Later</button>
    ${
      end === null
        ? html`<button type="button" onClick=${() => setQuery({ end: text(now()) })}>Pause</button>`
        : html`<button type="button" onClick=${() => setQuery(isListed ? { end: "" } : { end: "", span: "" })}>Continue</button>`
    }
  </div>`;
}

/** @param {number} seconds */
function text(seconds) {
  return new Date(seconds * 1000).toISOString().replace(".000Z", "Z");
}
