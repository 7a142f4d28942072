/** The plots of a Service: requests, classes of responses, success, latency and weights over a window, with the changes in it. */

import { answered, inspectPath } from "../../api.js";
import { place } from "../../location.js";
import { Empty, Failed, Loading, StaleNotice } from "../../parts/states.js";
import { Plot } from "../../plot/plot.js";
import {
  backendLatencies,
  classLabel,
  latencies,
  rates,
  responseSets,
  responses,
  responseTotals,
  success,
  weights,
} from "../../plot/series.js";
import { count, digits, latency, localTime } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useMemo, useState } from "../../vendor/preact-hooks.js";
import { Changes, useChanges } from "./changes.js";
import { STEP_S, seriesOf, WindowBar, windowOf, zoom } from "./window.js";

/**
 * @typedef {import("../../types.js").TrafficSeriesStatus} TrafficSeriesStatus
 * @typedef {[from: number, to: number]} Range seconds since the epoch
 * @typedef {object} Series
 * @property {TrafficSeriesStatus | null} status
 * @property {import("../../api.js").ApiError | null} error with a status: why the last reading failed, so that the status is older
 * @property {Range} range
 * @property {number} updated milliseconds since the epoch, 0 without a status
 */

/** @param {{namespace: string, name: string}} properties */
export function Traffic({ namespace, name }) {
  const window_ = windowOf(place.value.query);
  const series = useSeries(namespace, name, window_);
  return html`<section aria-labelledby="series-title">
    <div class="section-head">
      <h2 id="series-title">Traffic</h2>
      <${WindowBar} />
    </div>
    ${window_.end === null ? null : html`<p class="quiet">Paused: ${timesText(series.range)}. The plots do not move.</p>`}
    <${Answer} namespace=${namespace} name=${name} series=${series} isFixed=${window_.end !== null} />
  </section>`;
}

/** @param {{namespace: string, name: string, series: Series, isFixed: boolean}} properties */
function Answer({ namespace, name, series: { status, error, range, updated }, isFixed }) {
  if (status)
    return html`${error ? html`<${StaleNotice} reading=${{ error, updated }} />` : null}
      <div class=${error ? "stale" : ""}><${Plots} namespace=${namespace} name=${name} status=${status} range=${range} /></div>`;
  if (!error) return html`<${Loading} what="the traffic" />`;
  return error.status === 404
    ? html`<${Empty} title="No counts of this time"><p>${error.message}</p><//>`
    : html`<${Failed} what="the traffic" outcome=${isFixed ? "The traffic can't be read" : ""} error=${error} />`;
}

const format = {
  number: (/** @type {number | null} */ value) => (value === null ? "–" : digits(value)),
  share: (/** @type {number | null} */ value) => (value === null ? "–" : `${digits(value)} %`),
  time: (/** @type {number | null} */ value) => (value === null ? "–" : latency(value * 1000)),
};

/** @param {{namespace: string, name: string, status: TrafficSeriesStatus, range: Range}} properties */
function Plots({ namespace, name, status, range }) {
  const [current, setCurrent] = useState(/** @type {number | null} */ (null));
  const history = useChanges(namespace, name, status.weights, range);
  const columns = useMemo(() => columnsOf(status, range), [status]);
  const times = [...new Set(history.changes.map(({ time }) => time))];
  const marks = useMemo(() => times.map((time) => ({ time, isCurrent: time === current })), [times.join(), current]);
  const frame = { range, marks, onZoom: zoom, onMark: setCurrent };
  return html`<div class="plots">
    <${Changes} namespace=${namespace} ...${history} range=${range} current=${current} onCurrent=${setCurrent} />
    ${columns.weights.lines.length ? html`<${Plot} title="Weights" columns=${columns.weights} isStepped=${true} format=${format.share} frame=${frame} />` : null}
    <${Plot} title="Requests a second" columns=${columns.rates} format=${format.number} frame=${frame} />
    ${columns.responses.map(
      (
        set,
      ) => html`<${Plot} key=${set.title} title=${set.title} columns=${set.columns} format=${format.number} frame=${frame} />
        <${Totals} points=${set.points} />`,
    )}
    <${Plot} title="Success" columns=${columns.success} isShare=${true} format=${format.share} frame=${frame} />
    <${Plot} title="Latency" columns=${columns.latencies} format=${format.time} frame=${frame} />
    ${columns.backendLatencies.lines.length ? html`<${Plot} title="Latency by backend, p99" columns=${columns.backendLatencies} format=${format.time} frame=${frame} />` : null}
    ${status.messages.map((text) => html`<p class="quiet">${text}</p>`)}
  </div>`;
}

/**
 * @param {TrafficSeriesStatus} status
 * @param {Range} range
 */
function columnsOf(status, range) {
  return {
    weights: weights(status, range),
    rates: rates(status),
    responses: responseSets(status)
      .map((set) => ({ ...set, columns: responses(set.points, status) }))
      .filter((set) => set.columns.lines.length > 0),
    success: success(status),
    latencies: latencies(status),
    backendLatencies: backendLatencies(status),
  };
}

/** @param {{points: import("../../types.js").TrafficPoint[]}} properties */
function Totals({ points }) {
  const totals = responseTotals(points).map(
    ({ responseClass, count: number, failure }) => `${classLabel(responseClass, failure)} ${count(number)}`,
  );
  return html`<p class="quiet">In this time: ${totals.join(", ")}. Denied requests count neither as success nor as failure; 4xx and client errors of gRPC are no failures.</p>`;
}

/** @param {Range} range */
function timesText([from, to]) {
  return `${localTime(new Date(from * 1000).toISOString())} to ${localTime(new Date(to * 1000).toISOString())}`;
}

/** @type {Series} */
const UNREAD = { status: null, error: null, range: [0, 0], updated: 0 };

/**
 * Read the series of a Service; again after each stored window, unless the window is fixed. When a later reading fails, the last series of
 * this window stays; a 404 means that there are no counts.
 *
 * @param {string} namespace
 * @param {string} name
 * @param {import("./window.js").Window} window_
 * @returns {Series}
 */
function useSeries(namespace, name, { span, end }) {
  const [series, setSeries] = useState(UNREAD);
  useEffect(() => {
    const abort = new AbortController();
    const path = inspectPath(`trafficseries/service.${encodeURIComponent(name)}`, namespace);
    let last = UNREAD;
    const read = async () => {
      if (document.hidden || (end !== null && last.status)) return;
      const { query, range } = seriesOf({ span, end }, Date.now() / 1000);
      const { status, error } = await answered(path, { query, signal: abort.signal });
      if (abort.signal.aborted) return;
      const keeps = error && error.status !== 404 && last.status;
      last = keeps ? { ...last, error } : { status, error, range, updated: Date.now() };
      setSeries(last);
    };
    read();
    const timer = end === null ? setInterval(read, STEP_S * 1000) : undefined;
    document.addEventListener("visibilitychange", read); // a hidden page has not read
    return () => {
      abort.abort();
      document.removeEventListener("visibilitychange", read);
      clearInterval(timer);
    };
  }, [namespace, name, span, end]);
  return series;
}
