/**
 * Place the nodes of a graph: dagre places the nodes of each namespace, then the namespaces as boxes. So a change in one
 * namespace leaves the insides of the other ones as they are. Pure: the same shape gives the same places, whatever the numbers.
 * @import { Layout, Point, Rectangle, Shape, Size } from "./types.js"
 */

import { layout as dagreLayout, Graph } from "../vendor/dagre.js";
import { BOX, boundsOf, NODE } from "./places.js";
import { kept } from "./stable.js";

/** The height of the page in pixels for which the direction of a graph is chosen. */
const SCREEN_HEIGHT = 680;
/** Beyond this number of nodes, the direction is not chosen. */
const MANY_NODES = 80;
/** The longest row or column of boxes in pixels, the most heights a long row may have, and the row of a narrow screen. */
const LONGEST = { side: 1800, ratio: 2.6, vertical: 720 };
/** Beyond this number of links dagre's better ranking takes seconds. */
const MANY_LINKS = 250;

/** @typedef {Shape & {vertical: boolean}} Directed */

/**
 * @typedef {object} Part the layout inside one box
 * @property {Map<string, Point>} nodes
 * @property {Map<string, Point[]>} routes
 * @property {Map<string, Point>} labels
 * @property {number} width
 * @property {number} height
 */

/**
 * Return the places of a shape. With a previous layout of almost the same nodes, those nodes stay where they are.
 * @param {Shape} shape
 * @param {Layout} [previous]
 * @returns {Layout}
 */
export function arrange(shape, previous) {
  const stable = previous && kept(shape, previous);
  if (stable) return stable;
  if (shape.vertical !== undefined || shape.nodes.length > MANY_NODES) return fresh(shape, shape.vertical ?? false);
  const [across, down] = [fresh(shape, false), fresh(shape, true)];
  return readable(down, shape.width) > 1.1 * readable(across, shape.width) ? down : across;
}

/**
 * Return the scale at which a layout fits the page.
 * @param {Layout} layout
 * @param {number} width
 */
function readable({ bounds }, width) {
  return Math.min(1, width / bounds.width, SCREEN_HEIGHT / bounds.height);
}

/**
 * @param {Shape} shape
 * @param {boolean} vertical
 * @returns {Layout}
 */
function fresh({ nodes, links, labels, width }, vertical) {
  const shape = { nodes, links, labels, width, vertical };
  const namespaces = new Map([...shape.nodes].sort(byId).map((node) => [node.id, node.namespace]));
  const parts = new Map([...new Set(namespaces.values())].sort().map((name) => [name, part(name, shape, namespaces)]));
  const boxes = placeBoxes(parts, shape, namespaces);
  /** @type {Layout} */
  const layout = { vertical, nodes: {}, routes: {}, labels: {}, boxes, bounds: boundsOf(Object.values(boxes)) };
  for (const [name, { nodes, routes, labels }] of parts) {
    const { x, y } = /** @type {Rectangle} */ (boxes[name]);
    const moved = (/** @type {Point} */ point) => ({ x: point.x + x, y: point.y + y });
    for (const [id, point] of nodes) layout.nodes[id] = moved(point);
    for (const [id, point] of labels) layout.labels[id] = moved(point);
    for (const [id, points] of routes) layout.routes[id] = points.map(moved);
  }
  return layout;
}

/**
 * @param {{id: string}} a
 * @param {{id: string}} b
 */
function byId(a, b) {
  return a.id < b.id ? -1 : Number(a.id > b.id);
}

/**
 * Return the layout of a namespace's nodes: those with links inside by dagre, the remaining ones in columns beside them.
 * @param {string} name
 * @param {Directed} shape
 * @param {Map<string, string>} namespaces the namespace of each node
 * @returns {Part}
 */
function part(name, shape, namespaces) {
  const ids = [...namespaces].filter(([, namespace]) => namespace === name).map(([id]) => id);
  const inside = (/** @type {string} */ id) => namespaces.get(id) === name;
  const links = shape.links.filter((link) => link.source !== link.target && inside(link.source) && inside(link.target));
  const linked = new Set(links.flatMap((link) => [link.source, link.target]));
  const graph = directedGraph(shape.vertical, {
    nodes: 22,
    ranks: shape.labels ? 56 : shape.vertical ? 50 : 70,
    links: links.length,
  });
  for (const id of ids.filter((id) => linked.has(id))) graph.setNode(id, { ...NODE });
  for (const link of [...links].sort(byId)) {
    graph.setEdge(
      link.source,
      link.target,
      shape.labels ? { ...withEnds(link, shape.vertical), labelpos: "c" } : {},
      link.id,
    );
  }
  const placed = dagrePlaces(graph, shape.vertical);
  addColumns(
    placed,
    ids.filter((id) => !linked.has(id)),
    shape.vertical,
  );
  return framed(placed);
}

/**
 * Return the room for the label of a link, and for what must be visible of the link before and after it.
 * @param {Shape["links"][number]} link
 * @param {boolean} vertical
 */
function withEnds({ label, ends }, vertical) {
  return vertical
    ? { width: label.width, height: label.height + ends }
    : { width: label.width + ends, height: label.height };
}

/**
 * @param {boolean} vertical
 * @param {{nodes: number, ranks: number, links: number}} distances
 */
function directedGraph(vertical, { nodes, ranks, links }) {
  const graph = new Graph({ multigraph: true });
  const ranker = links > MANY_LINKS ? "longest-path" : "network-simplex";
  graph.setGraph({ rankdir: vertical ? "TB" : "LR", nodesep: nodes, edgesep: 14, ranksep: ranks, ranker });
  graph.setDefaultEdgeLabel(() => ({}));
  return graph;
}

/**
 * @param {ReturnType<typeof directedGraph>} graph
 * @param {boolean} vertical
 * @returns {Part}
 */
function dagrePlaces(graph, vertical) {
  if (graph.nodeCount() === 0) return { nodes: new Map(), routes: new Map(), labels: new Map(), width: 0, height: 0 };
  dagreLayout(graph);
  const nodes = new Map(graph.nodes().map((id) => [id, { x: graph.node(id).x, y: graph.node(id).y }]));
  /** @type {Map<string, Point[]>} */
  const routes = new Map();
  /** @type {Map<string, Point>} */
  const labels = new Map();
  for (const edge of graph.edges()) {
    const { points = [], width = 0, height = 0, x = 0, y = 0 } = graph.edge(edge);
    if (width > 0) labels.set(String(edge.name), { x, y });
    const bends = straightened(points, vertical, { width, height });
    if (bends.length > 0) routes.set(String(edge.name), bends);
  }
  const { width = 0, height = 0 } = graph.graph();
  return { nodes, routes, labels, width, height };
}

/**
 * Return the bends of a link, which runs straight past the nodes of each rank and below its label. Dagre has a bend for each rank and one
 * between two of them.
 * @param {Point[]} points with the ends
 * @param {boolean} vertical
 * @param {Size} label
 * @returns {Point[]}
 */
function straightened(points, vertical, label) {
  const [first, last] = [points[0], points.at(-1)];
  if (!first || !last) return [];
  const bends = points.slice(1, -1);
  const sign = (vertical ? last.y < first.y : last.x < first.x) ? -1 : 1;
  const middle = (bends.length - 1) / 2;
  return bends.flatMap(({ x, y }, index) => {
    const size = index === middle ? label : index % 2 === 1 ? NODE : { width: 0, height: 0 };
    const half = (sign * (vertical ? size.height : size.width)) / 2;
    if (half === 0) return [];
    return vertical
      ? [
          { x, y: y - half },
          { x, y: y + half },
        ]
      : [
          { x: x - half, y },
          { x: x + half, y },
        ];
  });
}

/**
 * Add nodes without links inside their namespace, in columns after the other ones.
 * @param {Part} placed
 * @param {string[]} ids
 * @param {boolean} vertical
 */
function addColumns(placed, ids, vertical) {
  const rows = vertical ? Math.ceil(ids.length / 2) : Math.max(4, Math.ceil(Math.sqrt(ids.length * 2)));
  const start = placed.nodes.size > 0 ? (vertical ? placed.height : placed.width) + 40 : 0;
  for (const [index, id] of ids.entries()) {
    const column = Math.floor(index / rows) * (NODE.width + 30);
    const row = (index % rows) * (NODE.height + 22);
    const x = column + NODE.width / 2 + (vertical ? 0 : start);
    const y = row + NODE.height / 2 + (vertical ? start : 0);
    placed.nodes.set(id, { x, y });
    placed.width = Math.max(placed.width, x + NODE.width / 2);
    placed.height = Math.max(placed.height, y + NODE.height / 2);
  }
}

/**
 * Return a part inside its box: with the padding and the room for the name.
 * @param {Part} placed
 * @returns {Part}
 */
function framed({ nodes, routes, labels, width, height }) {
  const moved = (/** @type {Point} */ { x, y }) => ({ x: x + BOX.padding, y: y + BOX.padding + BOX.head });
  return {
    nodes: new Map([...nodes].map(([id, point]) => [id, moved(point)])),
    routes: new Map([...routes].map(([id, points]) => [id, points.map(moved)])),
    labels: new Map([...labels].map(([id, point]) => [id, moved(point)])),
    width: width + 2 * BOX.padding,
    height: height + 2 * BOX.padding + BOX.head,
  };
}

/**
 * @param {Map<string, Part>} parts
 * @param {Directed} shape
 * @param {Map<string, string>} namespaces
 * @returns {Record<string, Rectangle>}
 */
function placeBoxes(parts, shape, namespaces) {
  const graph = directedGraph(shape.vertical, {
    nodes: BOX.gap,
    ranks: shape.labels ? (shape.vertical ? 84 : 190) : 110,
    links: 0,
  });
  for (const [name, { width, height }] of parts) graph.setNode(`box ${name}`, { width, height });
  for (const link of [...shape.links].sort(byId)) {
    const [source, target] = [namespaces.get(link.source), namespaces.get(link.target)];
    if (source === undefined || target === undefined || source === target) continue;
    const weight = graph.edge(`box ${source}`, `box ${target}`)?.weight ?? 0;
    graph.setEdge(`box ${source}`, `box ${target}`, { weight: weight + 1 });
  }
  const { nodes } = dagrePlaces(graph, shape.vertical);
  /** @type {Record<string, Rectangle>} */
  const boxes = {};
  for (const [name, { width, height }] of parts) {
    const { x, y } = /** @type {Point} */ (nodes.get(`box ${name}`));
    boxes[name] = { x: x - width / 2, y: y - height / 2, width, height };
  }
  return inRows(boxes, shape);
}

/**
 * Return boxes in rows, in the order of the traffic, if dagre's places are much longer than a screen in one direction.
 * @param {Record<string, Rectangle>} boxes
 * @param {Directed} shape
 */
function inRows(boxes, { vertical, labels }) {
  const { width, height } = boundsOf(Object.values(boxes));
  const limit = vertical ? LONGEST.vertical : LONGEST.side;
  if (width <= limit && (vertical || height <= LONGEST.side)) return boxes;
  if (!vertical && width <= LONGEST.ratio * height && height <= width) return boxes;
  const gap = labels ? 130 : 90;
  const sorted = Object.values(boxes).sort(
    vertical ? (a, b) => a.y - b.y || a.x - b.x : (a, b) => a.x - b.x || a.y - b.y,
  );
  const area = sorted.reduce((sum, box) => sum + (box.width + gap) * (box.height + gap), 0);
  const length = vertical ? limit : Math.max(limit, Math.sqrt(area * 1.9));
  let [x, y, tallest] = [0, 0, 0];
  for (const box of sorted) {
    if (x > 0 && x + box.width > length) [x, y, tallest] = [0, y + tallest + gap, 0];
    Object.assign(box, { x, y });
    x += box.width + gap;
    tallest = Math.max(tallest, box.height);
  }
  return boxes;
}
