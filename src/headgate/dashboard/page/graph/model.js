/**
 * Make the drawing of a TrafficGraph: nodes by namespace, and lines for its edges, splits and mirrors with their labels.
 * Pure: the same graph gives the same model. Times and rates refer to the window of the graph.
 * @import { ApiEdge, GraphLink, GraphNode, GraphStatus, Mark, Model } from "./types.js"
 */

import { isFailing, outcome } from "../outcome.js";
import { count, latency, percent, plural, rate, throughput } from "../units.js";
import { mirrorLink, splitLinks } from "./shares.js";

/** The kind of sources outside the mesh. */
export const OUTSIDE = "Outside";

/**
 * Return the id of a node: `Kind/namespace/name`.
 * @param {{kind: string, namespace: string, name: string}} node
 */
export function nodeId(node) {
  return `${node.kind}/${node.namespace}/${node.name}`;
}

/**
 * Return the drawing of a TrafficGraph's status. Edges of copies are left out where a mirror to the same target shows them.
 * @param {GraphStatus} status
 * @returns {Model}
 */
export function drawingModel(status) {
  const window = status.windowMilliseconds;
  const nodes = graphNodes(status);
  const mirrored = new Set((status.mirrors ?? []).map((mirror) => mirror.target));
  const edges = status.edges.filter((edge) => !(edge.copy && mirrored.has(edge.target)));
  const links = edges.map((edge) => trafficLink(edge, nodes, window));
  for (const split of status.splits ?? []) links.push(...splitLinks(split, nodes));
  for (const mirror of status.mirrors ?? []) links.push(mirrorLink(mirror, nodes, window));
  return { nodes, links };
}

/**
 * Return the nodes of the drawing, with what they receive.
 * @param {GraphStatus} status
 * @returns {GraphNode[]}
 */
export function graphNodes(status) {
  const window = status.windowMilliseconds;
  const received = status.nodes.map(() => ({
    total: 0,
    failed: 0,
    denied: 0,
    split: 0,
    p99: /** @type {number | null} */ (null),
  }));
  for (const edge of status.edges) {
    const { total, failed, denied } = outcome(edge);
    const sums = received[edge.target];
    if (!sums || edge.copy) continue;
    sums.total += total;
    sums.failed += failed;
    sums.denied += denied;
    if (typeof edge.p99Microseconds === "number") sums.p99 = Math.max(sums.p99 ?? 0, edge.p99Microseconds);
  }
  for (const { service: root, backends } of status.splits ?? []) {
    for (const { service, requests } of backends) {
      const sums = received[service];
      if (sums && service !== root) sums.split += requests;
    }
  }
  return status.nodes.map((node, index) => graphNode(node, /** @type {Received} */ (received[index]), window));
}

/** @typedef {{total: number, failed: number, denied: number, split: number, p99: number | null}} Received */

/**
 * @param {import("./types.js").ApiNode} node
 * @param {Received} received
 * @param {number} window milliseconds
 * @returns {GraphNode}
 */
function graphNode(node, received, window) {
  const outside = node.kind === OUTSIDE;
  const pods = node.pods ?? 0;
  const meshed = node.meshed ?? 0;
  const marks = [...findingMarks(node), ...trafficMarks(received.total, received.failed, received.denied)];
  const detail = outside
    ? "outside the mesh"
    : `${node.kind === "Service" ? "" : `${node.kind} · `}${podsText(pods, meshed)}`;
  const numbers =
    received.total > 0
      ? [
          `receives ${rate(received.total, window)}`,
          `success ${percent(received.total - received.failed, received.total)}`,
        ]
      : [];
  if (received.split > 0) numbers.push(`gets ${rate(received.split, window)} by splits`);
  const place = node.namespace ? `in namespace ${node.namespace}` : "";
  return {
    id: nodeId(node),
    kind: node.kind,
    namespace: node.namespace,
    name: node.name,
    outside,
    detail,
    marks,
    total: received.total,
    failed: received.failed,
    denied: received.denied,
    split: received.split,
    p99: received.p99,
    pods,
    meshed,
    errors: node.errors ?? 0,
    warnings: node.warnings ?? 0,
    failing: marks.some((mark) => mark.shape !== "warning"),
    title: [
      `${outside ? "Source" : node.kind} ${node.name} ${place}`.trim(),
      detail,
      ...numbers,
      ...marks.map((mark) => mark.text),
    ].join(", "),
  };
}

/**
 * @param {number} pods
 * @param {number} meshed
 */
function podsText(pods, meshed) {
  return meshed === pods ? plural(pods, "pod") : `${meshed} of ${plural(pods, "pod")} in the mesh`;
}

/**
 * @param {{errors?: number, warnings?: number}} node
 * @returns {Mark[]}
 */
function findingMarks({ errors = 0, warnings = 0 }) {
  /** @type {Mark[]} */
  const marks = [];
  if (errors > 0) marks.push({ shape: "error", text: plural(errors, "error") });
  if (warnings > 0) marks.push({ shape: "warning", text: plural(warnings, "warning") });
  return marks;
}

/**
 * @param {ApiEdge} edge
 * @param {GraphNode[]} nodes
 * @param {number} window milliseconds
 * @returns {GraphLink}
 */
function trafficLink(edge, nodes, window) {
  const source = /** @type {GraphNode} */ (nodes[edge.source]);
  const target = /** @type {GraphNode} */ (nodes[edge.target]);
  const { total, failed, denied, failing } = outcome(edge);
  const secured = (edge.exchanged ?? 0) > 0 && edge.secured === edge.exchanged;
  const lines = trafficLines(edge, window);
  const marks = trafficMarks(total, failed, denied);
  const spoken = [
    `${edge.copy ? "Copies" : "Traffic"} from ${source.name} to ${target.name}`,
    ...lines.flat(),
    ...marks.map((mark) => mark.text),
  ];
  return {
    id: `${edge.copy ? "copies" : "traffic"}:${source.id}>${target.id}`,
    type: "traffic",
    source: source.id,
    target: target.id,
    sourceName: source.name,
    targetName: target.name,
    width: lineWidth(((total + denied) * 1000) / window),
    copy: edge.copy ?? false,
    failing,
    refused: denied > 0 && total === 0,
    secured,
    lines: lines.map((parts) => parts.join(" · ")),
    marks,
    match: "",
    object: "",
    counts: edge,
    details: () => trafficDetails(edge, window),
    title: [...spoken, secured ? "mutual TLS" : "not all with mutual TLS"].join(", "),
  };
}

/**
 * Return the width of a line in pixels: 1.25 for up to one request a second, 4.6 for a thousand, 6 at most.
 * @param {number} perSecond
 */
export function lineWidth(perSecond) {
  return Math.min(6, 1.25 + Math.max(0, Math.log10(perSecond) * 1.1));
}

/**
 * @param {ApiEdge} edge
 * @param {number} window milliseconds
 * @returns {string[][]}
 */
function trafficLines(edge, window) {
  const { requests, connections, total, failed } = outcome(edge);
  if (total === 0) return [];
  const first = requests > 0 ? [rate(requests, window)] : [plural(connections, "connection")];
  first.push(percent(total - failed, total));
  const second = [];
  if (typeof edge.p99Microseconds === "number") second.push(`p99 ${latency(edge.p99Microseconds)}`);
  if (typeof edge.bytes === "number") second.push(throughput(edge.bytes, window));
  return second.length > 0 ? [first, second] : [first];
}

/**
 * @param {number} total
 * @param {number} failed
 * @param {number} denied
 * @returns {Mark[]}
 */
function trafficMarks(total, failed, denied) {
  /** @type {Mark[]} */
  const marks = [];
  if (isFailing(failed, total)) marks.push({ shape: "failing", text: `${percent(failed, total)} failed` });
  if (denied > 0) marks.push({ shape: "denied", text: `${count(denied)} denied` });
  return marks;
}

/**
 * @param {ApiEdge} edge
 * @param {number} window milliseconds
 * @returns {[string, string][]}
 */
function trafficDetails(edge, window) {
  const { requests, connections } = outcome(edge);
  /** @type {[string, string][]} */
  const details = [];
  if (requests > 0) {
    details.push(["Requests", `${count(requests)} (${rate(requests, window)})`]);
    details.push(["Success", percent(requests - edge.failures, requests)]);
    details.push(["Failed", count(edge.failures ?? 0)]);
  }
  if (edge.denied) details.push(["Denied requests", count(edge.denied)]);
  if (connections > 0) details.push(["Connections", count(connections)]);
  if (edge.failedConnections) details.push(["Failed connections", count(edge.failedConnections)]);
  if (edge.deniedConnections) details.push(["Denied connections", count(edge.deniedConnections)]);
  if (typeof edge.p99Microseconds === "number") {
    const percentiles = [edge.p50Microseconds, edge.p90Microseconds, edge.p99Microseconds];
    details.push(["Latency p50, p90, p99", percentiles.map((value) => latency(value)).join(", ")]);
  }
  if (typeof edge.bytes === "number") details.push(["Bytes", throughput(edge.bytes, window)]);
  details.push(["Mutual TLS", securityText(edge)]);
  return details;
}

/** @param {ApiEdge} edge */
function securityText({ exchanged = 0, secured = 0 }) {
  if (exchanged === 0) return "unknown";
  if (secured === exchanged) return "all";
  return secured === 0 ? "none" : `${percent(secured, exchanged)} of ${count(exchanged)}`;
}
