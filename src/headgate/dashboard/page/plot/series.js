/**
 * Points of a TrafficSeries as columns of a plot: times in seconds, and a value or null for each line.
 * @import { ResponseCount, TrafficPoint, TrafficSeriesStatus } from "../types.js"
 */

import { outcome } from "../outcome.js";

/** @typedef {{label: string, values: (number | null)[]}} Line */
/** @typedef {{times: number[], lines: Line[]}} Columns */

/**
 * Return the requests a second that were not denied, for each backend that answered, or as a whole without backends. TCP connections are
 * counted where a Service has no requests.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function rates({ points, backends, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const isHttp = points.some(({ requests }) => requests > 0);
  const value = (/** @type {TrafficPoint} */ point) => {
    const { requests, connections } = outcome(point);
    return (isHttp ? requests : connections) / Math.max(secondsOf(point), 1);
  };
  const whole = { label: isHttp ? "requests" : "connections", values: aligned(times, points, value) };
  const parts = backends.map((backend) => ({ label: backend.service, values: aligned(times, backend.points, value) }));
  return { times, lines: parts.length ? parts : [whole] };
}

/**
 * Return the share of requests without a failure, in percent, of each backend and of the requests that no backend has. Denied requests count
 * neither way.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function success({ points, backends, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const value = (/** @type {TrafficPoint} */ point) => {
    const { total, failed } = outcome(point);
    return total > 0 ? 100 * (1 - failed / total) : null;
  };
  const parts = backends.map((backend) => ({ label: backend.service, values: aligned(times, backend.points, value) }));
  const isWhole = hasAll({ points, backends });
  const further = isWhole ? failuresOf(points) > failuresOf(pointsOf(backends)) : requestsOf(points) > 0;
  if (parts.length && !further) return { times, lines: parts };
  const label = isWhole ? "all" : "own pods or without a backend";
  return { times, lines: [...parts, { label, values: aligned(times, points, value) }] };
}

/**
 * Return the latencies in milliseconds.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function latencies({ points, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const line = (/** @type {string} */ label, /** @type {(point: TrafficPoint) => number | null} */ value) => ({
    label,
    values: aligned(times, points, (point) => milliseconds(value(point))),
  });
  return {
    times,
    lines: [
      line("p50", ({ p50Microseconds }) => p50Microseconds),
      line("p90", ({ p90Microseconds }) => p90Microseconds),
      line("p99", ({ p99Microseconds }) => p99Microseconds),
    ],
  };
}

/**
 * Return the p99 of each backend that answered, in milliseconds; no lines with fewer than two of them.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function backendLatencies({ points, backends, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const value = (/** @type {TrafficPoint} */ { p99Microseconds }) => milliseconds(p99Microseconds);
  const lines = backends.map(({ service, points: own }) => ({ label: service, values: aligned(times, own, value) }));
  return { times, lines: lines.length > 1 ? lines : [] };
}

/**
 * Return the points whose responses a Service shows, with a title. Its own points have what its pods received, and the requests that no pod
 * received. If they have fewer requests than its backends, it does not select the pods of these: then both are shown, and nothing twice.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {{title: string, points: TrafficPoint[]}[]}
 */
export function responseSets({ points, backends }) {
  const title = "Responses a second by class";
  const answers = pointsOf(backends);
  if (hasAll({ points, backends })) return [{ title, points }];
  const sets = [
    { title: `${title}, from its backends`, points: answers },
    { title: `${title}, from its own pods or without a backend`, points },
  ];
  return sets.filter((set) => responseTotals(set.points).length > 0);
}

/**
 * Return whether the points of a Service have the requests to its backends too.
 *
 * @param {Pick<TrafficSeriesStatus, "points" | "backends">} status
 */
function hasAll({ points, backends }) {
  return requestsOf(points) >= requestsOf(pointsOf(backends));
}

/** @param {TrafficSeriesStatus["backends"]} backends */
function pointsOf(backends) {
  return backends.flatMap((backend) => backend.points);
}

/** @param {TrafficPoint[]} points */
function failuresOf(points) {
  return points.reduce((sum, point) => sum + outcome(point).failed, 0);
}

/** @param {TrafficPoint[]} points */
function requestsOf(points) {
  return points.reduce((sum, { requests }) => sum + requests, 0);
}

/**
 * Return the responses a second of each class in points, of which several can have the same time; no lines without requests.
 *
 * @param {TrafficPoint[]} counted
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function responses(counted, { points, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const lines = responseTotals(counted).map(({ responseClass, failure }) => {
    /** @type {Map<number, number>} */
    const sums = new Map();
    for (const point of counted) {
      const count = point.responses.find((response) => response.responseClass === responseClass)?.count ?? 0;
      sums.set(timeOf(point), (sums.get(timeOf(point)) ?? 0) + count);
    }
    const value = (/** @type {TrafficPoint} */ point) => (sums.get(timeOf(point)) ?? 0) / Math.max(secondsOf(point), 1);
    return { label: classLabel(responseClass, failure), values: aligned(times, points, value) };
  });
  return { times, lines };
}

/**
 * Return the responses of each class in all points: those that are no failures first.
 *
 * @param {TrafficPoint[]} points
 * @returns {ResponseCount[]}
 */
export function responseTotals(points) {
  /** @type {Map<string, ResponseCount>} */
  const totals = new Map();
  for (const { responses: counted } of points) {
    for (const { responseClass, count, failure } of counted) {
      const sum = (totals.get(responseClass)?.count ?? 0) + count;
      totals.set(responseClass, { responseClass, count: sum, failure });
    }
  }
  const order = (/** @type {ResponseCount} */ { responseClass, failure }) => `${failure ? 1 : 0} ${responseClass}`;
  return [...totals.values()].sort((left, right) => order(left).localeCompare(order(right), "en", { numeric: true }));
}

/**
 * @param {string} responseClass
 * @param {boolean} failure
 */
export function classLabel(responseClass, failure) {
  const name = responseClass === "none" ? "no response" : responseClass.replace("grpc-", "gRPC ");
  return failure ? `${name} (failure)` : name;
}

/**
 * Return the shares that TrafficSplits give to their backends, in percent, from the start of a range to its end; no lines without a split.
 *
 * @param {TrafficSeriesStatus} status
 * @param {[from: number, to: number]} range seconds since the epoch
 * @returns {Columns}
 */
export function weights({ weights: changes }, [from, to]) {
  const timed = changes.map((change) => ({ ...change, time: Math.max(from, secondsAt(change.recordTime, from)) }));
  const times = [...new Set([from, ...timed.map(({ time }) => time), to])].sort((left, right) => left - right);
  const splits = [...new Set(changes.map(({ object }) => object.name))];
  const lines = splits.flatMap((split) => {
    const own = timed.filter(({ object }) => object.name === split);
    const services = [...new Set(own.flatMap(({ backends }) => backends.map(({ service }) => service)))];
    return services.map((service) => ({
      label: splits.length > 1 ? `${split}: ${service}` : service,
      values: times.map((time) => shareOf(own.findLast((change) => change.time <= time)?.backends ?? [], service)),
    }));
  });
  return { times, lines };
}

/**
 * @param {{service: string, weight: number}[]} backends
 * @param {string} service
 */
function shareOf(backends, service) {
  const whole = backends.reduce((sum, { weight }) => sum + weight, 0);
  const own = backends.find((backend) => backend.service === service);
  return own && whole ? (100 * own.weight) / whole : null;
}

/**
 * @param {string | null} time
 * @param {number} otherwise
 */
function secondsAt(time, otherwise) {
  return time ? Date.parse(time) / 1000 : otherwise;
}

/** @param {number | null} microseconds */
function milliseconds(microseconds) {
  return microseconds === null ? null : microseconds / 1000;
}

/** @param {TrafficPoint} point */
function secondsOf({ startTime, endTime }) {
  return (Date.parse(endTime) - Date.parse(startTime)) / 1000;
}

/** @param {TrafficPoint} point */
function timeOf({ endTime }) {
  return Date.parse(endTime) / 1000;
}

/**
 * Return the times of points, and one without values in each gap: a time without counts is not a time without requests.
 *
 * @param {TrafficPoint[]} points
 * @param {number} stepMilliseconds
 */
function timesOf(points, stepMilliseconds) {
  /** @type {number[]} */
  const times = [];
  for (const point of points) {
    const last = times.at(-1);
    const start = Date.parse(point.startTime) / 1000;
    if (last !== undefined && start > last + stepMilliseconds / 2000) times.push(start);
    times.push(timeOf(point));
  }
  return times;
}

/**
 * @param {number[]} times
 * @param {TrafficPoint[]} points
 * @param {(point: TrafficPoint) => number | null} value
 */
function aligned(times, points, value) {
  const values = new Map(points.map((point) => [timeOf(point), value(point)]));
  return times.map((time) => values.get(time) ?? null);
}
