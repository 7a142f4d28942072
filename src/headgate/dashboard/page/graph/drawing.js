/**
 * The drawing of a graph with its controls and the numbers of what is pointed at, focused or selected.
 * @import { GraphLink, GraphNode, Layout, Model } from "./types.js"
 */

import { Loading } from "../parts/states.js";
import { html } from "../vendor/htm-preact.js";
import { useEffect, useRef, useState } from "../vendor/preact-hooks.js";
import { Arranger } from "./arranger.js";
import { Panel } from "./panel.js";
import { ALL_LABELS, labelRoom, NARROW } from "./places.js";
import { Stage } from "./stage.js";

/**
 * @typedef {object} Properties
 * @property {Model} model
 * @property {string} selected
 * @property {(id: string, element: GraphNode | GraphLink | undefined) => void} onSelect
 * @property {(id: string) => void} onNeighborhood
 */

/** @param {Properties} properties */
export function Drawing({ model, selected, onSelect, onNeighborhood }) {
  const frame = useRef(/** @type {HTMLElement | null} */ (null));
  const width = useWidth(frame);
  const { layout, error, arrange } = useLayout(model, width);
  const [pointed, setPointed] = useState("");
  const [focused, setFocused] = useState("");
  const current = pointed || focused || selected;
  const element = elementOf(model, current);
  const select = (/** @type {string} */ id) => onSelect(id, elementOf(model, id));
  const stage = layout
    ? html`<${Stage} ...${{ model, layout, width, current, focused, selected, setPointed, setFocused, select, arrange }} />`
    : html`<div class="graph-stage waiting">
        ${error ? html`<p class="state failed" role="alert">The graph can't be arranged: ${error}</p>` : html`<${Loading} what="the layout" />`}
      </div>`;
  return html`<div class="graph-frame" ref=${frame}>
    ${stage}
    <${Panel} element=${element} isSelected=${selected !== "" && current === selected} onClear=${() => select("")}
      onNeighborhood=${onNeighborhood} />
  </div>`;
}

/**
 * @param {Model} model
 * @param {string} id
 */
function elementOf(model, id) {
  if (!id) return undefined;
  return model.nodes.find((node) => node.id === id) ?? model.links.find((link) => link.id === id);
}

/**
 * Return the width of the drawing in pixels, in steps so that the layout does not depend on each pixel; 0 before it is known.
 * @param {{current: HTMLElement | null}} frame
 */
function useWidth(frame) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!frame.current) return;
    const observer = new ResizeObserver(([entry]) => {
      const { clientWidth } = entry?.target.firstElementChild ?? document.body;
      setWidth(Math.max(320, Math.floor(clientWidth / 160) * 160));
    });
    observer.observe(frame.current);
    return () => observer.disconnect();
  }, []);
  return width;
}

/**
 * Return the layout of a model from the worker. It changes only when nodes or lines come or go.
 * @param {Model} model
 * @param {number} width 0 before it is known
 */
function useLayout(model, width) {
  const [state, setState] = useState(/** @type {{layout?: Layout, error?: string}} */ ({}));
  const arranger = useRef(/** @type {Arranger | undefined} */ (undefined));
  const last = useRef(/** @type {Layout | undefined} */ (undefined));
  useEffect(() => {
    arranger.current = new Arranger(
      (layout) => {
        last.current = layout;
        setState({ layout });
      },
      (error) => setState({ error }),
    );
    return () => arranger.current?.close();
  }, []);
  const shape = {
    nodes: model.nodes.map(({ id, namespace }) => ({ id, namespace })),
    links: model.links.map((link) => ({
      id: link.id,
      source: link.source,
      target: link.target,
      label: labelRoom(link),
      ends: link.share ? 70 : 0,
    })),
    vertical: width < NARROW || undefined,
    width,
    labels: model.links.length <= ALL_LABELS,
  };
  const key = width === 0 ? "" : JSON.stringify(shape);
  useEffect(() => {
    if (key) arranger.current?.request(shape, last.current);
  }, [key]);
  return { ...state, arrange: () => arranger.current?.request(shape) };
}
