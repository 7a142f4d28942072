/**
 * The traffic graph: a drawing of what a filter leaves of a TrafficGraph, or a table of it where that is too much to draw (R110).
 * @import { Filter, GraphLink, GraphNode, GraphStatus, Model } from "./types.js"
 */

import { Empty, Loading } from "../parts/states.js";
import { html } from "../vendor/htm-preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import { Drawing } from "./drawing.js";
import { filtered, isEmpty, MOST_NODES, NO_FILTER } from "./filter.js";
import { drawingModel, graphNodes } from "./model.js";
import { NodeTable } from "./node_table.js";

/**
 * @typedef {object} Properties
 * @property {import("../types.js").TrafficGraph | null} graph as the inspect API returns it; null while it is loaded
 * @property {Filter} [filter] without one, the component has its own
 * @property {(filter: Filter) => void} [onFilter]
 * @property {string} [selected] the id of a node or a line
 * @property {(id: string, element: GraphNode | GraphLink | undefined) => void} [onSelect] with an empty id when nothing is selected anymore
 */

/** @param {Properties} properties */
export function TrafficGraph({ graph, filter, onFilter, selected = "", onSelect = () => {} }) {
  const [ownFilter, setOwnFilter] = useState(/** @type {Filter} */ (NO_FILTER));
  const current = filter ?? ownFilter;
  const change = onFilter ?? setOwnFilter;
  const status = useMemo(() => graph && filtered(graph.status, current), [graph, current]);
  const model = useModel(status);
  if (!graph || !status) return html`<${Loading} what="the graph" />`;
  if (graph.status.nodes.length === 0) return html`<${WithoutTraffic} status=${graph.status} />`;
  if (status.nodes.length === 0) {
    return html`<${Empty} title="Nothing fits the filter">
      <button type="button" onClick=${() => change({ ...NO_FILTER })}>Clear the filter</button>
    <//>`;
  }
  const around = (/** @type {string} */ id) => change({ ...current, search: "", around: id, hops: 1 });
  return html`<div class="traffic-graph">
    ${status.edges.length === 0 && isEmpty(current) ? html`<${WithoutTraffic} status=${graph.status} />` : null}
    ${
      tooLarge(status)
        ? html`<${NodeTable} model=${model} window=${status.windowMilliseconds} onNeighborhood=${around} />`
        : html`<${Drawing} model=${model} selected=${selected} onSelect=${onSelect} onNeighborhood=${around} />`
    }
  </div>`;
}

/** @param {GraphStatus} status */
function tooLarge(status) {
  return status.nodes.length > MOST_NODES;
}

/** What to do about a graph without traffic. */
const ACTIONS = {
  NoTraffic: "Send requests, or choose a longer window.",
  NoSidecars: "Sidecars count the traffic: let headgate add them to the pods, then start the pods again.",
  NothingRouted: "Apply a Service, and a workload with a sidecar that calls it.",
};

/** Titles of a graph without traffic. */
const TITLES = {
  NoTraffic: "No traffic in this window",
  NoSidecars: "No pod has a sidecar",
  NothingRouted: "Nothing is routed yet",
};

/** @param {{status: GraphStatus}} properties */
function WithoutTraffic({ status }) {
  const reason = status.reason || "NoTraffic";
  return html`<${Empty} title=${TITLES[reason] ?? reason}>
    ${status.message ? html`<p>${status.message}</p>` : null}
    <p>${ACTIONS[reason] ?? ""}</p>
  <//>`;
}

/**
 * Return the drawing of a graph, in which the nodes and lines that did not change are the objects of the drawing before. So only the
 * other ones are drawn again.
 * @param {GraphStatus | null} status
 * @returns {Model}
 */
function useModel(status) {
  const before = useRef(/** @type {Map<string, {text: string, element: any}>} */ (new Map()));
  const model = useMemo(() => {
    const fresh = !status
      ? { nodes: [], links: [] }
      : tooLarge(status)
        ? { nodes: graphNodes(status), links: [] }
        : drawingModel(status);
    const next = new Map();
    const reused = (/** @type {any} */ element) => {
      const text = JSON.stringify(element);
      const old = before.current.get(element.id);
      next.set(element.id, old?.text === text ? old : { text, element });
      return next.get(element.id).element;
    };
    const model = { nodes: fresh.nodes.map(reused), links: fresh.links.map(reused) };
    return { model, next };
  }, [status]);
  useEffect(() => {
    before.current = model.next;
  }, [model]);
  return model.model;
}
