/**
 * The numbers of a node or a line, and what the signs of the graph mean.
 * @import { GraphLink, GraphNode, Mark } from "./types.js"
 */

import { count, latency, NONE, percent } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { InlineSign } from "./signs.js";

/**
 * @typedef {object} Properties
 * @property {GraphNode | GraphLink | undefined} element
 * @property {boolean} isSelected
 * @property {() => void} onClear
 * @property {(id: string) => void} onNeighborhood
 */

/** @param {Properties} properties */
export function Panel({ element, isSelected, onClear, onNeighborhood }) {
  return html`<aside class="graph-panel" aria-label="Numbers of the graph">
    ${element ? html`<${Numbers} ...${{ element, isSelected, onClear, onNeighborhood }} />` : html`<p class="hint">Point at a node or a line, or select it, to see its numbers.</p>`}
    <${Legend} />
  </aside>`;
}

/** @param {Properties & {element: GraphNode | GraphLink}} properties */
function Numbers({ element, isSelected, onClear, onNeighborhood }) {
  const node = "source" in element ? undefined : element;
  const link = "source" in element ? element : undefined;
  const details = node ? nodeDetails(node) : (link?.details() ?? []);
  return html`<h3>${link ? `${link.sourceName} → ${link.targetName}` : node?.name}</h3>
    <p class="subject">${link ? linkSubject(link) : `${node?.kind} ${node?.namespace ? `in ${node.namespace}` : ""}`}</p>
    <${Marks} marks=${element.marks} />
    <dl>
      ${details.map(([name, value]) => html`<div key=${name}>${name ? html`<dt>${name}</dt>` : null}<dd>${value}</dd></div>`)}
    </dl>
    ${
      isSelected
        ? html`<p class="actions">
            ${node ? html`<button type="button" onClick=${() => onNeighborhood(node.id)}>Show only its neighbors</button>` : null}
            <button type="button" onClick=${onClear}>Clear the selection</button>
          </p>`
        : null
    }`;
}

/** @param {GraphLink} link */
function linkSubject(link) {
  if (link.type === "split") return `Split by ${link.object}`;
  if (link.type === "mirror") return `Mirror of ${link.object}`;
  return link.copy ? "Copies of requests" : "Traffic";
}

/** @param {{marks: Mark[]}} properties */
function Marks({ marks }) {
  if (marks.length === 0) return null;
  return html`<ul class="marks">
    ${marks.map(({ shape, text }) => html`<li key=${text} class=${`mark-${shape}`}><${InlineSign} shape=${shape} />${text}</li>`)}
  </ul>`;
}

/**
 * @param {GraphNode} node
 * @returns {[string, string][]}
 */
function nodeDetails(node) {
  const received = node.total > 0;
  /** @type {[string, string][]} */
  const details = node.outside ? [] : [["Pods in the mesh", `${node.meshed} of ${node.pods}`]];
  details.push(["Received", count(node.total)]);
  details.push(["Success", received ? percent(node.total - node.failed, node.total) : NONE]);
  if (node.split > 0) details.push(["Received by splits", count(node.split)]);
  if (node.failed > 0) details.push(["Failed", count(node.failed)]);
  if (node.denied > 0) details.push(["Denied", count(node.denied)]);
  if (node.p99 !== null) details.push(["p99 of the slowest caller", latency(node.p99)]);
  return details;
}

/** @type {[import("./types.js").MarkShape | "lock", string][]} */
const SIGNS = [
  ["failing", "1 % or more of the requests fail"],
  ["denied", "access rules deny requests"],
  ["error", "findings that are errors"],
  ["warning", "findings that are warnings"],
  ["fits", "the share is in its 3-sigma band"],
  ["band", "the share is outside its band"],
  ["lock", "mutual TLS on all requests"],
];

function Legend() {
  const line = (/** @type {string} */ type) =>
    html`<svg class="inline-line" viewBox="0 0 34 14" aria-hidden="true" focusable="false">
      <g class=${`link link-${type}`}><path class="line" d="M1 7H33" /><path class="core" d="M1 7H33" /></g>
    </svg>`;
  return html`<details class="legend">
    <summary>Legend</summary>
    <ul>
      <li>${line("traffic")}traffic, thicker with more requests</li>
      <li>${line("traffic refused")}all requests denied</li>
      <li>${line("split")}a split: the band is the wanted share, the core the observed one</li>
      <li>${line("mirror copy")}copies by a mirror</li>
      ${SIGNS.map(([shape, text]) => html`<li key=${shape}><span class="legend-sign"><${InlineSign} shape=${shape} /></span>${text}</li>`)}
    </ul>
  </details>`;
}
