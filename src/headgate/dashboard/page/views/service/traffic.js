/** The plots of a Service: requests, success and latency over a window that ends now, or over a part of it that was dragged. */

import { answered, inspectPath } from "../../api.js";
import { linkTo, place } from "../../location.js";
import { SelectField } from "../../parts/fields.js";
import { Empty, Failed, Loading } from "../../parts/states.js";
import { Plot } from "../../plot/plot.js";
import { latencies, rates, success } from "../../plot/series.js";
import { digits, latency, localTime } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useState } from "../../vendor/preact-hooks.js";

/**
 * @typedef {import("../../types.js").TrafficSeriesStatus} TrafficSeriesStatus
 * @typedef {{from: number, to: number}} Zoom seconds since the epoch
 */

/** @type {[value: string, title: string][]} */
const SPANS = [
  ["900", "15 minutes"],
  ["3600", "1 hour"],
  ["21600", "6 hours"],
  ["86400", "1 day"],
];
const MOST_POINTS = 360;
const WINDOW_S = 10;

/** @param {{namespace: string, name: string}} properties */
export function Traffic({ namespace, name }) {
  const [isPaused, setPaused] = useState(false);
  const [zoom, setZoom] = useState(/** @type {Zoom | null} */ (null));
  const span = Number(place.value.query.span ?? "900");
  const { status, error } = useSeries(namespace, name, span, isPaused, zoom);
  return html`<section aria-labelledby="series-title">
    <div class="section-head">
      <h2 id="series-title">Traffic</h2>
      <div class="filters">
        <${SelectField} name="span" label="Time" options=${SPANS} initial="900" />
        <button type="button" aria-pressed=${isPaused ? "true" : "false"} onClick=${() => setPaused(!isPaused)}>${isPaused ? "Continue" : "Pause"}</button>
        ${zoom ? html`<button type="button" onClick=${() => setZoom(null)}>Show the whole time</button>` : null}
      </div>
    </div>
    ${
      status
        ? html`<${Plots} status=${status} onZoom=${(/** @type {number} */ from, /** @type {number} */ to) => setZoom({ from, to })} />`
        : error
          ? error.status === 404
            ? html`<${Empty} title="No counts of this time"><p>${error.message}</p><//>`
            : html`<${Failed} what="the traffic" outcome=${isPaused || zoom ? "The traffic can't be read" : ""} error=${error} />`
          : html`<${Loading} what="the traffic" />`
    }
  </section>`;
}

/** @param {{status: TrafficSeriesStatus, onZoom: (from: number, to: number) => void}} properties */
function Plots({ status, onZoom }) {
  const marks = status.weights.map(({ recordTime, backends }) => ({
    time: Date.parse(recordTime ?? "") / 1000,
    text: backends.map(({ service, weight }) => `${service} ${weight}`).join(", ") || "the split was deleted",
  }));
  const shown = { marks, onZoom };
  return html`<div class="plots">
    <${Plot} title="Requests a second" columns=${rates(status)} format=${(/** @type {number | null} */ value) => (value === null ? "–" : digits(value))} ...${shown} />
    <${Plot} title="Success" columns=${success(status)} isShare=${true} format=${(/** @type {number | null} */ value) => (value === null ? "–" : `${digits(value)} %`)} ...${shown} />
    <${Plot} title="Latency" columns=${latencies(status)} format=${(/** @type {number | null} */ value) => (value === null ? "–" : latency(value * 1000))} ...${shown} />
    ${status.messages.map((text) => html`<p class="quiet">${text}</p>`)}
    ${marks.length ? html`<${Changes} status=${status} />` : null}
  </div>`;
}

/** @param {{status: TrafficSeriesStatus}} properties */
function Changes({ status }) {
  const text = (/** @type {TrafficSeriesStatus["weights"][number]} */ { recordTime, backends, object }) =>
    html`<li><time datetime=${recordTime}>${localTime(recordTime ?? "")}</time>: <a href=${linkTo(["history"], { search: object.name })}>${object.kind} ${object.name}</a>
      ${" "}${backends.map(({ service, weight }) => `${service} ${weight}`).join(", ") || "deleted"}</li>`;
  return html`<details><summary>Weights in this time (dashed lines)</summary><ul class="messages">${status.weights.map(text)}</ul></details>`;
}

/**
 * Read the series of a Service, again after each window.
 *
 * @param {string} namespace
 * @param {string} name
 * @param {number} span seconds
 * @param {boolean} isPaused
 * @param {Zoom | null} zoom
 * @returns {{status: TrafficSeriesStatus | null, error: import("../../api.js").ApiError | null}}
 */
function useSeries(namespace, name, span, isPaused, zoom) {
  const [answer, setAnswer] = useState(
    /** @type {{status: TrafficSeriesStatus | null, error: import("../../api.js").ApiError | null}} */ ({
      status: null,
      error: null,
    }),
  );
  useEffect(() => {
    const abort = new AbortController();
    const read = async () => {
      if (document.hidden) return;
      const query = queryOf(span, zoom, Date.now() / 1000);
      const next = await answered(seriesPath(namespace, name), { query, signal: abort.signal });
      if (!abort.signal.aborted) setAnswer(next);
    };
    read();
    const timer = isPaused || zoom ? undefined : setInterval(read, WINDOW_S * 1000);
    return () => {
      abort.abort();
      clearInterval(timer);
    };
  }, [namespace, name, span, isPaused, zoom]);
  return answer;
}

/**
 * @param {string} namespace
 * @param {string} name
 */
function seriesPath(namespace, name) {
  return inspectPath(`trafficseries/service.${encodeURIComponent(name)}`, namespace);
}

/**
 * Return the query of a series: a step that gives at most a few hundred points, and times at its multiples.
 *
 * @param {number} span
 * @param {Zoom | null} zoom
 * @param {number} now seconds since the epoch
 * @returns {Record<string, string>}
 */
export function queryOf(span, zoom, now) {
  const [from, to] = zoom ? [zoom.from, zoom.to] : [now - span, now];
  const step = Math.max(1, Math.ceil((to - from) / WINDOW_S / MOST_POINTS)) * WINDOW_S;
  const whole = (/** @type {number} */ time) => new Date(Math.floor(time / step) * step * 1000).toISOString();
  return { start: whole(from), end: whole(Math.max(to, from + step)), step: `${step}s` };
}
