/** What the table of services shows, computed from a TrafficGraph: a row for each Service, the worst first. */

import { outcome } from "../../outcome.js";

/**
 * @typedef {import("../../types.js").GraphStatus} GraphStatus
 * @typedef {import("../../types.js").GraphNode} GraphNode
 * @typedef {import("../../types.js").GraphEdge} GraphEdge
 */

/**
 * The traffic that a service received in the window, without copies of mirrors. `p99` is that of its slowest caller, in microseconds.
 * `isSecured` is null if no security is known.
 *
 * @typedef {object} ServiceRow
 * @property {GraphNode} node
 * @property {number} index the node's index in the graph
 * @property {number} requests requests that were not denied
 * @property {number} connections opened connections that were not denied
 * @property {number} total both, and failed connections
 * @property {number} failed those of them that failed
 * @property {number} denied
 * @property {number} audited requests that rules in audit mode would deny
 * @property {number} split requests that splits of other services sent to it
 * @property {number | null} p99
 * @property {number | null} bytes
 * @property {boolean | null} isSecured
 */

/**
 * Return a row for each Service, and for each other node that was called. The remaining nodes are callers only.
 *
 * @param {GraphStatus} graph
 * @returns {ServiceRow[]}
 */
export function serviceRows({ nodes, edges, splits }) {
  const incoming = Map.groupBy(edges, ({ target }) => target);
  const shares = new Map();
  for (const { service: root, backends } of splits) {
    for (const { service, requests } of backends) {
      if (service !== root) shares.set(service, (shares.get(service) ?? 0) + requests);
    }
  }
  const rows = nodes.flatMap((node, index) =>
    node.kind === "Service" || incoming.has(index)
      ? [rowOf(node, index, incoming.get(index) ?? [], shares.get(index) ?? 0)]
      : [],
  );
  return rows.sort((left, right) => compare(rank(right), rank(left)));
}

/**
 * @param {GraphNode} node
 * @param {number} index
 * @param {GraphEdge[]} calls the edges to the node
 * @param {number} split
 * @returns {ServiceRow}
 */
function rowOf(node, index, calls, split) {
  const incoming = calls.filter(({ copy }) => !copy);
  const sum = (/** @type {(edge: GraphEdge) => number} */ value) =>
    incoming.reduce((total, edge) => total + value(edge), 0);
  const latencies = incoming.map(({ p99Microseconds }) => p99Microseconds).filter((value) => value !== null);
  const exchanged = sum((edge) => edge.exchanged);
  const outcomes = incoming.map(outcome);
  const counted = (/** @type {"requests" | "connections" | "total" | "failed" | "denied" | "audited"} */ name) =>
    outcomes.reduce((total, one) => total + one[name], 0);
  return {
    node,
    index,
    requests: counted("requests"),
    connections: counted("connections"),
    total: counted("total"),
    failed: counted("failed"),
    denied: counted("denied"),
    audited: counted("audited"),
    split,
    p99: latencies.length ? Math.max(...latencies) : null,
    bytes: incoming.some(({ bytes }) => bytes !== null) ? sum((edge) => edge.bytes ?? 0) : null,
    isSecured: exchanged ? sum((edge) => edge.secured) === exchanged : null,
  };
}

/**
 * Return what the order by the worst compares, in this order: failing share, findings, denied requests, traffic.
 *
 * @param {ServiceRow} row
 */
function rank({ node, total, failed, denied, split }) {
  const failing = total ? failed / total : 0;
  return [failing, node.errors, denied, node.warnings, total + split];
}

/**
 * @param {number[]} left
 * @param {number[]} right
 */
function compare(left, right) {
  for (const [index, value] of left.entries()) {
    const difference = value - (right[index] ?? 0);
    if (difference) return difference;
  }
  return 0;
}

/**
 * Return whether a row has something that needs attention: failures, denied requests, or errors of its objects.
 *
 * @param {ServiceRow} row
 */
export function isFailing({ node, failed, denied }) {
  return failed + denied + node.errors > 0;
}

/**
 * Return the rows whose name, namespace or labels contain each word of a text.
 *
 * @param {ServiceRow[]} rows
 * @param {string} text
 */
export function matching(rows, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  return rows.filter(({ node }) => {
    const labels = Object.entries(node.labels ?? {}).map(([name, value]) => `${name}=${value}`);
    const searched = [`${node.namespace}/${node.name}`, ...labels].join(" ").toLowerCase();
    return words.every((word) => searched.includes(word));
  });
}
