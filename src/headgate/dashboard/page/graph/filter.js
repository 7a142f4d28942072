/**
 * Filter a TrafficGraph before it is drawn: by text, namespace, kind, labels, failures, and the neighbors of a node. Pure.
 * @import { ApiNode, Filter, GraphStatus } from "./types.js"
 */

import { outcome } from "../outcome.js";
import { nodeId } from "./model.js";

/** The filter that leaves everything. */
export const NO_FILTER = /** @type {Filter} */ (
  Object.freeze({ search: "", namespaces: [], kinds: [], labels: "", failing: false, around: "", hops: 1 })
);

/** Beyond this number of nodes, the graph shows a table. */
export const MOST_NODES = 300;

/**
 * Return whether a filter leaves everything.
 * @param {Filter} filter
 */
export function isEmpty(filter) {
  const { search, namespaces, kinds, labels, failing, around } = filter;
  return !(search.trim() || namespaces.length || kinds.length || labels.trim() || failing || around);
}

/**
 * Return the values that filters of a graph can have.
 * @param {GraphStatus} status
 */
export function choices(status) {
  const namespaces = new Set(status.nodes.map((node) => node.namespace).filter(Boolean));
  const kinds = new Set(status.nodes.map((node) => node.kind));
  return { namespaces: [...namespaces].sort(), kinds: [...kinds].sort() };
}

/**
 * Return the part of a graph that fits a filter: its nodes, and what connects two of them. With a search, namespaces, kinds, labels or
 * `failing`, the nodes that fit come with their direct peers, so that their traffic is visible.
 * @param {GraphStatus} status
 * @param {Filter} filter
 * @returns {GraphStatus}
 */
export function filtered(status, filter) {
  if (isEmpty(filter)) return status;
  let fit = fitting(status, filter);
  if (filter.failing) fit = failingNodes(status, fit);
  if (filter.around) fit = intersection(fit, neighborhood(status, filter));
  const shown = filter.around ? fit : withPeers(status, fit, filter.failing);
  return restricted(status, { fit, shown: withBackends(status, shown), failing: filter.failing });
}

/**
 * Return the indexes of the nodes that fit the filter of nodes.
 * @param {GraphStatus} status
 * @param {Filter} filter
 * @returns {Set<number>}
 */
function fitting(status, filter) {
  const words = filter.search.toLowerCase().split(/\s+/).filter(Boolean);
  const requirements = selector(filter.labels);
  const fits = (/** @type {ApiNode} */ node) =>
    words.every((word) => nodeId(node).toLowerCase().includes(word)) &&
    (filter.namespaces.length === 0 || filter.namespaces.includes(node.namespace)) &&
    (filter.kinds.length === 0 || filter.kinds.includes(node.kind)) &&
    requirements.every((holds) => holds(node.labels ?? {}));
  return new Set([...status.nodes.keys()].filter((index) => fits(/** @type {ApiNode} */ (status.nodes[index]))));
}

/**
 * Return the requirements of a label selector: `key=value`, `key==value`, `key!=value`, `key`, `!key`, divided by commas.
 * @param {string} text
 * @returns {((labels: Record<string, string>) => boolean)[]}
 */
export function selector(text) {
  return text
    .split(",")
    .map((part) => part.trim())
    .filter(Boolean)
    .map((part) => {
      const [, negated, key = "", operator, value = ""] = /^(!?)\s*([^=!\s]*)\s*(?:(!=|==?)\s*(.*))?$/.exec(part) ?? [];
      if (operator === "!=") return (labels) => labels[key] !== value;
      if (operator) return (labels) => labels[key] === value;
      return (labels) => Object.hasOwn(labels, key) !== (negated === "!");
    });
}

/**
 * Return the nodes of a set at which something fails: they have errors, or traffic that fails or is denied.
 * @param {GraphStatus} status
 * @param {Set<number>} among
 */
function failingNodes(status, among) {
  const ends = failingEdges(status).flatMap((edge) => [edge.source, edge.target]);
  const failing = new Set([
    ...ends,
    ...[...status.nodes.keys()].filter((index) => (status.nodes[index]?.errors ?? 0) > 0),
  ]);
  return intersection(among, failing);
}

/** @param {GraphStatus} status */
function failingEdges(status) {
  return status.edges.filter((edge) => {
    const { failing, denied } = outcome(edge);
    return failing || denied > 0;
  });
}

/**
 * Return the pairs of connected nodes: of traffic, splits and mirrors.
 * @param {GraphStatus} status
 * @returns {[number, number][]}
 */
function pairs(status) {
  return [
    ...status.edges.map(({ source, target }) => /** @type {[number, number]} */ ([source, target])),
    ...(status.splits ?? []).flatMap(({ service, backends }) =>
      backends.map((backend) => /** @type {[number, number]} */ ([service, backend.service])),
    ),
    ...(status.mirrors ?? []).map(({ service, target }) => /** @type {[number, number]} */ ([service, target])),
  ];
}

/**
 * Return the nodes at most some hops away from a node, in both directions.
 * @param {GraphStatus} status
 * @param {{around: string, hops: number}} filter
 * @returns {Set<number>}
 */
export function neighborhood(status, { around, hops }) {
  const center = status.nodes.findIndex((node) => nodeId(node) === around);
  if (center < 0) return new Set();
  /** @type {Map<number, number[]>} */
  const peers = new Map();
  for (const [a, b] of pairs(status)) {
    for (const [from, to] of /** @type {[number, number][]} */ ([
      [a, b],
      [b, a],
    ])) {
      const list = peers.get(from) ?? [];
      list.push(to);
      peers.set(from, list);
    }
  }
  const reached = new Set([center]);
  let border = [center];
  for (let hop = 0; hop < hops; hop += 1) {
    border = [...new Set(border.flatMap((index) => peers.get(index) ?? []))].filter((index) => !reached.has(index));
    for (const index of border) reached.add(index);
  }
  return reached;
}

/**
 * @param {GraphStatus} status
 * @param {Set<number>} shown
 * @param {boolean} failing whether only peers of failing traffic are added
 */
function withPeers(status, shown, failing) {
  const connected = failing ? failingEdges(status).map(({ source, target }) => [source, target]) : pairs(status);
  const touching = connected.filter((pair) => pair.some((index) => shown.has(Number(index))));
  return new Set([...shown, ...touching.flat().map(Number)]);
}

/**
 * Return nodes with all backends of their splits, because a share means nothing without the other shares.
 * @param {GraphStatus} status
 * @param {Set<number>} shown
 */
function withBackends(status, shown) {
  const all = new Set(shown);
  for (const { service, backends } of status.splits ?? []) {
    if (!shown.has(service) || !backends.some((backend) => shown.has(backend.service))) continue;
    for (const backend of backends) all.add(backend.service);
  }
  return all;
}

/**
 * @template T
 * @param {Set<T>} a
 * @param {Set<T>} b
 */
function intersection(a, b) {
  return new Set([...a].filter((member) => b.has(member)));
}

/**
 * Return a graph with some of its nodes, with new indexes: the edges at the nodes that fit, the splits and the mirrors.
 * @param {GraphStatus} status
 * @param {{fit: Set<number>, shown: Set<number>, failing: boolean}} part with `failing`, only failing edges stay
 * @returns {GraphStatus}
 */
function restricted(status, { fit, shown, failing }) {
  const old = [...status.nodes.keys()].filter((index) => shown.has(index));
  const fresh = new Map(old.map((index, position) => [index, position]));
  const at = (/** @type {number} */ index) => /** @type {number} */ (fresh.get(index));
  const inside = (/** @type {number} */ a, /** @type {number} */ b) =>
    shown.has(a) && shown.has(b) && (fit.has(a) || fit.has(b));
  const edges = failing ? failingEdges(status) : status.edges;
  return {
    ...status,
    nodes: old.map((index) => /** @type {ApiNode} */ (status.nodes[index])),
    edges: edges
      .filter((edge) => inside(edge.source, edge.target))
      .map((edge) => ({ ...edge, source: at(edge.source), target: at(edge.target) })),
    splits: (status.splits ?? [])
      .filter((split) => shown.has(split.service) && split.backends.every((backend) => shown.has(backend.service)))
      .map((split) => ({
        ...split,
        service: at(split.service),
        backends: split.backends.map((backend) => ({ ...backend, service: at(backend.service) })),
      })),
    mirrors: (status.mirrors ?? [])
      .filter((mirror) => inside(mirror.service, mirror.target))
      .map((mirror) => ({ ...mirror, service: at(mirror.service), target: at(mirror.target) })),
  };
}
