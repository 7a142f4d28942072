/**
 * The lines between placed nodes: their paths, where their labels and signs stand. Pure.
 *
 * Paths are computed in the direction of the traffic ("along") and across it, then turned for a vertical graph.
 * @import { GraphLink, Layout, Model, Point, Rectangle } from "./types.js"
 */

import { BOX, NODE } from "./places.js";

/** How far a label is beside its line where the line has no free place. */
const SIDES = [-16, 16, -26, 26];
/** The distance between parallel lines of the same nodes. */
const PARALLEL = 16;

/**
 * @typedef {object} Route
 * @property {string} path the `d` of an SVG path
 * @property {Point[]} spots where its label can stand, the best place first
 */

/** @typedef {{along: number, across: number}} Spot */

/**
 * Return the route of each link.
 * @param {Model} model
 * @param {Layout} layout
 * @returns {Map<string, Route>}
 */
export function routes(model, layout) {
  const offsets = parallelOffsets(model.links);
  const starts = fans(model.links, layout);
  /** @type {Map<string, Route>} */
  const all = new Map();
  for (const link of model.links) {
    const source = layout.nodes[link.source];
    const target = layout.nodes[link.target];
    const offset = offsets.get(link.id) ?? 0;
    if (source && target)
      all.set(link.id, route(link, { layout, source, target, offset, start: starts.get(link.id) ?? offset }));
  }
  return all;
}

/**
 * Return how far each link is beside the straight line, so that several links of two nodes don't cover each other.
 * @param {GraphLink[]} links
 * @returns {Map<string, number>}
 */
function parallelOffsets(links) {
  /** @type {Map<string, GraphLink[]>} */
  const groups = new Map();
  for (const link of links) {
    const pair = [link.source, link.target].sort().join(">");
    groups.set(pair, [...(groups.get(pair) ?? []), link]);
  }
  /** @type {Map<string, number>} */
  const offsets = new Map();
  for (const group of groups.values()) {
    for (const [index, link] of group.entries()) offsets.set(link.id, (index - (group.length - 1) / 2) * PARALLEL);
  }
  return offsets;
}

/**
 * Return where the lines of a node with splits begin: side by side, in the order of their targets, like one thick arrow that fans out.
 * @param {GraphLink[]} links
 * @param {Layout} layout
 * @returns {Map<string, number>}
 */
function fans(links, layout) {
  const roots = new Set(links.filter((link) => link.share).map((link) => link.source));
  const across = (/** @type {GraphLink} */ { target }) => layout.nodes[target]?.[layout.vertical ? "x" : "y"] ?? 0;
  /** @type {Map<string, number>} */
  const starts = new Map();
  for (const root of roots) {
    const lines = links.filter((link) => link.source === root).sort((a, b) => across(a) - across(b));
    const room = (/** @type {GraphLink} */ link) => link.width + (link.share ? 0 : 6);
    let start = -lines.reduce((sum, link) => sum + room(link), 0) / 2;
    for (const link of lines) {
      starts.set(link.id, start + room(link) / 2);
      start += room(link);
    }
  }
  return starts;
}

/**
 * @param {GraphLink} link
 * @param {{layout: Layout, source: Point, target: Point, offset: number, start: number}} ends
 * @returns {Route}
 */
function route(link, { layout, source, target, offset, start }) {
  const { vertical } = layout;
  const half = vertical
    ? { along: NODE.height / 2, across: NODE.width / 2 }
    : { along: NODE.width / 2, across: NODE.height / 2 };
  const turn = (/** @type {Point} */ { x, y }) => (vertical ? { along: y, across: x } : { along: x, across: y });
  const bends = (layout.routes[link.id] ?? []).map(turn);
  const controls = curve(link, { from: turn(source), to: turn(target), half, offset, start, bends });
  const point = (/** @type {Spot} */ { along, across }) =>
    vertical ? { x: across, y: along } : { x: along, y: across };
  const points = controls.map(point);
  const middle = [0.5, 0.42, 0.58, 0.34, 0.66, 0.26, 0.74].map((share) => on(points, share));
  const beside = SIDES.flatMap((side) =>
    middle.slice(0, 5).map(({ x, y }) => (vertical ? { x: x + side * 3, y } : { x, y: y + side })),
  );
  const reserved = layout.labels[link.id];
  return { path: pathOf(points), spots: [...(reserved ? [reserved] : []), ...middle, ...beside] };
}

/**
 * Return the control points of a link's cubic curves: the start, then three for each curve.
 * @param {GraphLink} link
 * @param {{from: Spot, to: Spot, half: Spot, offset: number, start: number, bends: Spot[]}} ends
 * @returns {Spot[]}
 */
function curve(link, { from, to, half, offset, start: shift, bends }) {
  if (link.source === link.target) return loop(from, half);
  const start = { along: from.along + half.along, across: from.across + shift };
  const end = { along: to.along - half.along - 3, across: to.across + offset };
  const distance = end.along - start.along;
  if (bends.length > 0) return through(turned(from, to, half, [start, ...bends, end]));
  if (distance > 20) {
    const pull = Math.max(30, Math.min(distance / 2, 160));
    return [start, { ...start, along: start.along + pull }, { ...end, along: end.along - pull }, end];
  }
  return to.along > from.along - 2 * half.along ? bulge(from, to, half, offset) : backward(from, to, half, offset);
}

/**
 * Return the points of a link, whose ends change sides if it runs against the direction of the graph.
 * @param {Spot} from
 * @param {Spot} to
 * @param {Spot} half
 * @param {Spot[]} spots
 */
function turned(from, to, half, spots) {
  if (to.along > from.along) return spots;
  const start = { along: from.along - half.along, across: from.across };
  const end = { along: to.along + half.along + 3, across: to.across };
  return [start, ...spots.slice(1, -1), end];
}

/**
 * Return a curve between nodes of the same rank: out and in at the same side.
 * @param {Spot} from
 * @param {Spot} to
 * @param {Spot} half
 * @param {number} offset
 */
function bulge(from, to, half, offset) {
  const side = Math.max(from.along, to.along) + half.along + 56 + Math.abs(offset);
  const start = { along: from.along + half.along, across: from.across + offset };
  const end = { along: to.along + half.along + 3, across: to.across + offset };
  return [start, { along: side, across: start.across }, { along: side, across: end.across }, end];
}

/**
 * Return a curve against the direction of the graph: below both nodes.
 * @param {Spot} from
 * @param {Spot} to
 * @param {Spot} half
 * @param {number} offset
 */
function backward(from, to, half, offset) {
  const depth = Math.max(from.across, to.across) + half.across + 44 + Math.abs(offset);
  const start = { along: from.along - 20 + offset, across: from.across + half.across };
  const end = { along: to.along + 20 + offset, across: to.across + half.across + 3 };
  return [start, { along: start.along, across: depth }, { along: end.along, across: depth }, end];
}

/**
 * @param {Spot} from
 * @param {Spot} half
 */
function loop(from, half) {
  const top = from.across - half.across;
  return [
    { along: from.along + half.along / 2, across: top },
    { along: from.along + half.along + 10, across: top - 60 },
    { along: from.along - half.along - 10, across: top - 60 },
    { along: from.along - half.along / 2, across: top - 3 },
  ];
}

/**
 * Return a smooth curve through points, whose ends run along the graph.
 * @param {Spot[]} spots
 */
function through(spots) {
  const curves = [/** @type {Spot} */ (spots[0])];
  for (const [index, spot] of spots.slice(1).entries()) {
    const before = /** @type {Spot} */ (spots[index]);
    const pull = (spot.along - before.along) / 2.4;
    curves.push(
      { along: before.along + pull, across: before.across },
      { along: spot.along - pull, across: spot.across },
      spot,
    );
  }
  return curves;
}

/** @param {Point[]} points */
function pathOf(points) {
  const [start, ...rest] = points.map(({ x, y }) => `${Math.round(x * 10) / 10} ${Math.round(y * 10) / 10}`);
  return `M${start}C${rest.join(" ")}`;
}

/**
 * Return the point at a share of a chain of cubic curves.
 * @param {Point[]} points
 * @param {number} share
 * @returns {Point}
 */
export function on(points, share) {
  const curves = (points.length - 1) / 3;
  const index = Math.min(curves - 1, Math.floor(share * curves));
  const t = share * curves - index;
  const [a, b, c, d] = /** @type {[Point, Point, Point, Point]} */ (points.slice(3 * index, 3 * index + 4));
  const [p, q, r, s] = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t ** 2 * (1 - t), t ** 3];
  return { x: p * a.x + q * b.x + r * c.x + s * d.x, y: p * a.y + q * b.y + r * c.y + s * d.y };
}

/**
 * Return the places of labels: each at the first of its spots where it covers no node, no name of a namespace and no earlier label.
 * @param {{id: string, width: number, height: number}[]} labels the important ones first
 * @param {Map<string, Route>} paths
 * @param {Layout} layout
 * @returns {Map<string, Point>}
 */
export function placeLabels(labels, paths, layout) {
  const taken = [
    ...Object.values(layout.nodes).map((center) => around(center, NODE)),
    ...Object.values(layout.boxes).map((box) => ({ ...box, height: BOX.head })),
  ];
  /** @type {Map<string, Point>} */
  const places = new Map();
  for (const { id, width, height } of labels) {
    const path = paths.get(id);
    if (!path) continue;
    const free = path.spots.find((spot) => taken.every((other) => !overlap(around(spot, { width, height }), other)));
    const spot = free ?? path.spots[0];
    if (!spot) continue;
    places.set(id, spot);
    taken.push(around(spot, { width, height }));
  }
  return places;
}

/**
 * @param {Point} center
 * @param {{width: number, height: number}} size
 * @returns {Rectangle}
 */
function around({ x, y }, { width, height }) {
  return { x: x - width / 2, y: y - height / 2, width, height };
}

/**
 * @param {Rectangle} a
 * @param {Rectangle} b
 */
function overlap(a, b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}
