/**
 * Walk the graph by arrow keys: along the traffic from a node to its lines to the next node, across to its neighbors. Pure.
 * @import { Layout, Model } from "./types.js"
 */

/** @typedef {"forward" | "back" | "next" | "previous" | "first" | "last"} Step */

/**
 * Return the step of a key, or undefined.
 * @param {string} key
 * @param {boolean} vertical
 * @returns {Step | undefined}
 */
export function stepOf(key, vertical) {
  /** @type {Record<string, Step>} */
  const horizontal = {
    ArrowRight: "forward",
    ArrowLeft: "back",
    ArrowDown: "next",
    ArrowUp: "previous",
    Home: "first",
    End: "last",
  };
  /** @type {Record<string, string>} */
  const turned = { ArrowRight: "ArrowDown", ArrowLeft: "ArrowUp", ArrowDown: "ArrowRight", ArrowUp: "ArrowLeft" };
  return horizontal[vertical ? (turned[key] ?? key) : key];
}

/**
 * Return the ids of nodes in the order in which they are walked: column by column.
 * @param {Model} model
 * @param {Layout} layout
 * @returns {string[]}
 */
export function nodeOrder(model, layout) {
  const rank = (/** @type {string} */ id) => {
    const { x = 0, y = 0 } = layout.nodes[id] ?? {};
    return layout.vertical ? [y, x] : [x, y];
  };
  const before = (/** @type {string} */ a, /** @type {string} */ b) => {
    const [[a0 = 0, a1 = 0], [b0 = 0, b1 = 0]] = [rank(a), rank(b)];
    return Math.round(a0 - b0) || a1 - b1 || (a < b ? -1 : 1);
  };
  return model.nodes.map((node) => node.id).sort(before);
}

/**
 * Return the id that a step leads to; the same id where there is nothing.
 * @param {string} id of a node or a link
 * @param {Step} step
 * @param {Model} model
 * @param {string[]} order the nodes, as `nodeOrder` returns them
 * @returns {string}
 */
export function walk(id, step, model, order) {
  if (step === "first") return order[0] ?? id;
  if (step === "last") return order.at(-1) ?? id;
  const link = model.links.find((candidate) => candidate.id === id);
  if (link) {
    if (step === "forward") return link.target;
    if (step === "back") return link.source;
    return neighbor(
      id,
      model.links.filter(({ source }) => source === link.source).map((sibling) => sibling.id),
      step,
    );
  }
  if (step === "forward") return model.links.find(({ source }) => source === id)?.id ?? id;
  if (step === "back") return model.links.find(({ target }) => target === id)?.id ?? id;
  return neighbor(id, order, step);
}

/**
 * @param {string} id
 * @param {string[]} ids
 * @param {Step} step
 */
function neighbor(id, ids, step) {
  return ids[ids.indexOf(id) + (step === "next" ? 1 : -1)] ?? id;
}
