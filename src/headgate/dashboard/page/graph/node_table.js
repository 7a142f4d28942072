/**
 * The nodes of a graph that is too large to draw, the worst first; each offers its neighborhood as a graph.
 * @import { GraphNode, Model } from "./types.js"
 */

import { Table } from "../parts/table.js";
import { count, latency, NONE, percent, rate } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { useMemo } from "../vendor/preact-hooks.js";
import { MOST_NODES } from "./filter.js";
import { InlineSign } from "./signs.js";

/**
 * Return nodes with those first at which something is wrong: by errors, failures, denied requests, warnings, then by traffic.
 * @param {GraphNode[]} nodes
 */
export function worstFirst(nodes) {
  const badness = (/** @type {GraphNode} */ node) => [
    node.errors,
    node.total > 0 ? node.failed / node.total : 0,
    node.denied,
    node.warnings,
    node.total + node.split,
  ];
  const rows = nodes.map((node) => ({ node, values: badness(node) }));
  rows.sort((a, b) => {
    const index = a.values.findIndex((value, position) => value !== b.values[position]);
    return index < 0 ? 0 : (b.values[index] ?? 0) - (a.values[index] ?? 0);
  });
  return rows.map(({ node }) => node);
}

/** @param {{model: Model, window: number, onNeighborhood: (id: string) => void}} properties `window` in milliseconds */
export function NodeTable({ model, window, onNeighborhood }) {
  const rows = useMemo(() => worstFirst(model.nodes), [model]);
  const columns = useMemo(() => columnsOf(window, onNeighborhood), [window, onNeighborhood]);
  return html`<p class="hint">
      ${count(rows.length)} nodes are too many to draw; up to ${MOST_NODES} are drawn. Filter them, or show the neighbors of one.
    </p>
    <${Table} name="graph" caption="Nodes of the graph, the worst first" columns=${columns} rows=${rows}
      rowKey=${(/** @type {GraphNode} */ node) => node.id} />`;
}

/**
 * @param {number} window
 * @param {(id: string) => void} onNeighborhood
 * @returns {import("../parts/table.js").Column<GraphNode>[]}
 */
function columnsOf(window, onNeighborhood) {
  return [
    { id: "name", title: "Name", header: true, cell: (node) => node.name, sort: (node) => node.name },
    { id: "namespace", title: "Namespace", cell: (node) => node.namespace || NONE, sort: (node) => node.namespace },
    { id: "kind", title: "Kind", cell: (node) => node.kind, sort: (node) => node.kind },
    {
      id: "rate",
      title: "Receives",
      number: true,
      largestFirst: true,
      cell: (node) => `${rate(node.total, window)}${node.split ? `, ${rate(node.split, window)} by splits` : ""}`,
      sort: (node) => node.total + node.split,
    },
    {
      id: "success",
      title: "Success",
      number: true,
      cell: (node) =>
        html`${node.failing ? html`<${InlineSign} shape="failing" /> ` : null}${percent(node.total - node.failed, node.total)}`,
      sort: (node) => (node.total > 0 ? 1 - node.failed / node.total : 2),
    },
    {
      id: "denied",
      title: "Denied",
      number: true,
      largestFirst: true,
      cell: (node) => count(node.denied),
      sort: (node) => node.denied,
    },
    {
      id: "p99",
      title: "p99",
      number: true,
      largestFirst: true,
      cell: (node) => latency(node.p99),
      sort: (node) => node.p99 ?? -1,
    },
    {
      id: "findings",
      title: "Findings",
      largestFirst: true,
      cell: findings,
      sort: (node) => node.errors * 1e6 + node.warnings,
    },
    {
      id: "neighbors",
      title: "Graph",
      cell: (
        node,
      ) => html`<button type="button" aria-label=${`Show the neighbors of ${node.name}`} onClick=${() => onNeighborhood(node.id)}>
        Neighbors
      </button>`,
    },
  ];
}

/** @param {GraphNode} node */
function findings({ marks }) {
  const shown = marks.filter(({ shape }) => shape === "error" || shape === "warning");
  if (shown.length === 0) return NONE;
  return shown.map(
    ({ shape, text }) =>
      html`<span class=${`node-finding mark-${shape}`}><${InlineSign} shape=${shape} />${text} </span>`,
  );
}
