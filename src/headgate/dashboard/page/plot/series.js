/**
 * Points of a TrafficSeries as columns of a plot: times in seconds, and a value or null for each line.
 * @import { TrafficPoint, TrafficSeriesStatus } from "../types.js"
 */

import { outcome } from "../outcome.js";

/** @typedef {{label: string, values: (number | null)[]}} Line */
/** @typedef {{times: number[], lines: Line[]}} Columns */

/**
 * Return the requests a second, for each backend that answered, or as a whole without backends. TCP connections are counted where a Service
 * has no requests.
 *
 * @param {TrafficSeriesStatus} status
 * @returns {Columns}
 */
export function rates({ points, backends, stepMilliseconds }) {
  const times = timesOf(points, stepMilliseconds);
  const isHttp = points.some(({ requests }) => requests > 0);
  const value = (/** @type {TrafficPoint} */ point) =>
    (isHttp ? point.requests : point.connections) / Math.max(secondsOf(point), 1);
  const whole = { label: isHttp ? "requests" : "connections", values: aligned(times, points, value) };
  const parts = backends.map((backend) => ({ label: backend.service, values: aligned(times, backend.points, value) }));
  return { times, lines: parts.length ? parts : [whole] };
}

/**
 * Return the share of requests without a failure, in percent. Denied requests count neither way.
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
  return { times, lines: parts.length ? parts : [{ label: "all", values: aligned(times, points, value) }] };
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
