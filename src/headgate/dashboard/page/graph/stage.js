/**
 * The SVG of the graph with its controls: what is drawn, and how keys and pointers act on it.
 * @import { GraphLink, Layout, Model } from "./types.js"
 */

import { html } from "../vendor/htm-preact.js";
import { useEffect, useMemo, useRef } from "../vendor/preact-hooks.js";
import { Box, BoxName, Heads, Label, Link, labelOf, Node } from "./draw.js";
import { ALL_LABELS, NARROW } from "./places.js";
import { placeLabels, routes } from "./routes.js";
import { Viewport } from "./viewport.js";
import { nodeOrder, stepOf, walk } from "./walk.js";
import { useWeightChanges } from "./weight_changes.js";

/** The height of the drawing in pixels. */
const HEIGHT = { least: 240, most: 740 };
const ZOOM = 1.25;
const LABEL =
  "Traffic graph. Arrow keys walk along the traffic and across it, Enter selects, plus and minus zoom, 0 shows everything.";

/**
 * @param {{model: Model, layout: Layout, width: number, current: string, focused: string, selected: string, setPointed: (id: string) => void,
 *   setFocused: (id: string) => void, select: (id: string) => void, arrange: () => void}} properties
 */
export function Stage({ model, layout, width, current, focused, selected, setPointed, setFocused, select, arrange }) {
  const svg = useRef(/** @type {SVGSVGElement | null} */ (null));
  const group = useRef(/** @type {SVGGElement | null} */ (null));
  const viewport = useRef(/** @type {Viewport | undefined} */ (undefined));
  useEffect(() => {
    if (!svg.current || !group.current) return;
    viewport.current = new Viewport(svg.current, group.current);
    return () => viewport.current?.close();
  }, []);
  useEffect(() => viewport.current?.keep(layout.bounds, leastScale(width)), [layout]);
  const order = useMemo(() => nodeOrder(model, layout), [model, layout]);
  const zoomIn = () => viewport.current?.zoom(ZOOM);
  const zoomOut = () => viewport.current?.zoom(1 / ZOOM);
  const fit = () => viewport.current?.fit();
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const id = idOf(event);
    const step = stepOf(event.key, layout.vertical);
    const pick = () => select(id === selected ? "" : id);
    /** @type {Record<string, () => void>} */
    const actions = { Enter: pick, " ": pick, Escape: () => select(""), "+": zoomIn, "-": zoomOut, 0: fit };
    const action = step ? () => focusOn(svg.current, id ? walk(id, step, model, order) : order[0]) : actions[event.key];
    if (!action) return;
    action();
    event.preventDefault();
  };
  const onClick = (/** @type {Event} */ event) => {
    select(idOf(event));
    focusOn(svg.current, idOf(event));
  };
  const onFocusIn = (/** @type {FocusEvent} */ event) => {
    const id = idOf(event);
    setFocused(id);
    setPointed(""); // who walks by keys has a pointer that rests somewhere
    const place = placeOf(id, model, layout);
    if (place && !svg.current?.matches(":active")) viewport.current?.reveal(place);
  };
  return html`<div class="graph-stage">
    <svg ref=${svg} role="application" tabindex="-1" aria-roledescription="traffic graph" aria-label=${LABEL}
      style=${{ height: `${stageHeight(layout, width)}px` }} onKeyDown=${onKeyDown} onFocusIn=${onFocusIn} onFocusOut=${() => setFocused("")}
      onPointerOver=${(/** @type {PointerEvent} */ event) => event.buttons === 0 && setPointed(idOf(event))}
      onPointerLeave=${() => setPointed("")} onClick=${onClick}>
      <${Heads} />
      <g ref=${group}><${Elements} ...${{ model, layout, current, focused, selected, first: order[0] ?? "" }} /></g>
    </svg>
    <div class="graph-controls" role="group" aria-label="View of the graph">
      <button type="button" aria-label="Zoom in" title="Zoom in (+)" onClick=${zoomIn}>+</button>
      <button type="button" aria-label="Zoom out" title="Zoom out (−)" onClick=${zoomOut}>−</button>
      <button type="button" title="Show the whole graph (0)" onClick=${fit}>Fit</button>
      <button type="button" title="Place all nodes again" onClick=${arrange}>Arrange</button>
    </div>
  </div>`;
}

/**
 * @param {SVGSVGElement | null} svg
 * @param {string} [id]
 */
function focusOn(svg, id = "") {
  const element = svg?.querySelector(`g.link[data-id="${CSS.escape(id)}"], g.node[data-id="${CSS.escape(id)}"] .card`);
  if (element instanceof SVGElement) element.focus({ preventScroll: true });
}

/**
 * Return the center of a node, or the middle between the nodes of a line.
 * @param {string} id
 * @param {Model} model
 * @param {Layout} layout
 */
function placeOf(id, model, layout) {
  const link = model.links.find((candidate) => candidate.id === id);
  const [source, target] = link
    ? [layout.nodes[link.source], layout.nodes[link.target]]
    : [layout.nodes[id], layout.nodes[id]];
  return source && target && { x: (source.x + target.x) / 2, y: (source.y + target.y) / 2 };
}

/** @param {Event} event */
function idOf({ target }) {
  return (target instanceof Element && target.closest("[data-id]")?.getAttribute("data-id")) || "";
}

/**
 * Return the height in pixels in which a layout fits the width of the page.
 * @param {Layout} layout
 * @param {number} width
 */
function stageHeight({ bounds }, width) {
  const height = bounds.height * Math.max(leastScale(width), Math.min(1, width / bounds.width));
  return Math.round(Math.min(HEIGHT.most, Math.max(HEIGHT.least, height + 80)));
}

/**
 * Return the least scale at which a layout is shown at first: then names can be read, and the remaining graph is beside it.
 * @param {number} width
 */
function leastScale(width) {
  return width < NARROW ? 0.6 : 0.4;
}

/**
 * @param {{model: Model, layout: Layout, current: string, focused: string, selected: string, first: string}} properties `first` is
 *   the node that the Tab key reaches, unless a node or a line is focused or selected
 */
function Elements({ model, layout, current, focused, selected, first }) {
  const paths = useMemo(() => routes(model, layout), [model, layout]);
  const changes = useWeightChanges(model);
  const labels = useMemo(() => shownLabels(model, current), [model, current]);
  const places = useMemo(() => {
    const sizes = labels.map((link) => ({ id: link.id, ...labelOf(link, changes.get(link.id)) }));
    return placeLabels(sizes, paths, layout);
  }, [labels, paths, changes]);
  const reachable = [focused, selected].find((id) => layout.nodes[id] || paths.has(id)) ?? first;
  const near = useMemo(() => new Set(peers(model, current)), [model, current]);
  return html`
    ${Object.entries(layout.boxes).map(([name, place]) => html`<${Box} key=${name} name=${name} place=${place} />`)}
    ${model.links.map(
      (link) =>
        paths.has(link.id) &&
        html`<${Link} key=${link.id} link=${link} route=${paths.get(link.id)} current=${near.has(link.id)}
          selected=${link.id === selected} reachable=${link.id === reachable} />`,
    )}
    ${Object.entries(layout.boxes).map(([name, place]) => html`<${BoxName} key=${name} name=${name} place=${place} />`)}
    ${labels.map(
      (link) =>
        places.has(link.id) &&
        html`<${Label} key=${link.id} link=${link} place=${places.get(link.id)} before=${changes.get(link.id) ?? ""} />`,
    )}
    ${model.nodes.map(
      (node) =>
        layout.nodes[node.id] &&
        html`<${Node} key=${node.id} node=${node} place=${layout.nodes[node.id]} current=${near.has(node.id)}
          selected=${node.id === selected} reachable=${node.id === reachable} />`,
    )}`;
}

/**
 * Return the links whose labels are drawn, the important ones first.
 * @param {Model} model
 * @param {string} current
 */
function shownLabels(model, current) {
  const near = new Set(peers(model, current));
  const rank = (/** @type {GraphLink} */ link) => (near.has(link.id) ? 0 : link.marks.length > 0 ? 1 : 2);
  const most = model.links.length <= ALL_LABELS ? 2 : 1;
  const labeled = model.links.filter((link) => rank(link) <= most && link.lines.length + link.marks.length > 0);
  return labeled.sort((a, b) => rank(a) - rank(b));
}

/**
 * Return the ids of a node with its lines, or of a line with its nodes.
 * @param {Model} model
 * @param {string} id
 */
function peers(model, id) {
  if (!id) return [];
  const touching = model.links.filter((link) => link.id === id || link.source === id || link.target === id);
  const link = touching.find((candidate) => candidate.id === id);
  return link ? [id, link.source, link.target] : [id, ...touching.map((candidate) => candidate.id)];
}
