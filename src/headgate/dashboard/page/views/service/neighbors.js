/** The node of a Service in the graph of its namespace, which the parts of the view share. */

import { inspectPath } from "../../api.js";
import { useReading } from "../../readings.js";

/**
 * @typedef {import("../../types.js").GraphStatus} GraphStatus
 * @typedef {import("../../types.js").GraphNode} GraphNode
 */

/**
 * Return the graph around a Service of the last 30 seconds, and its node there: `index` is -1 without one.
 *
 * @param {string} namespace
 * @param {string} name
 * @returns {{reading: import("../../readings.js").Reading<any>, status: GraphStatus | undefined, index: number, node: GraphNode | undefined}}
 */
export function useNeighbors(namespace, name) {
  const reading = useReading(`${inspectPath("trafficgraphs", namespace)}/services`, { window: "30s" });
  /** @type {GraphStatus | undefined} */
  const status = reading.value?.status;
  const index =
    status?.nodes.findIndex((node) => node.kind === "Service" && node.namespace === namespace && node.name === name) ??
    -1;
  return { reading, status, index, node: status?.nodes[index] };
}
