/**
 * Keep the places of a layout while nodes come and go: only new nodes get a place, beside their neighbors. Pure.
 * @import { Layout, Point, Rectangle, Shape } from "./types.js"
 */

import { BOX, boundsOf, NODE } from "./places.js";

/** The least share of nodes that must have a place already; below it, a fresh layout is better to read. */
const SHARE = 0.75;
const STEP = { x: NODE.width + 100, y: NODE.height + 24 };

/**
 * Return the layout of a shape in which the nodes of a previous layout stay, or undefined if too few of them remain.
 * @param {Shape} shape
 * @param {Layout} previous
 * @returns {Layout | undefined}
 */
export function kept(shape, previous) {
  const old = shape.nodes.filter((node) => previous.nodes[node.id]);
  const most = Math.max(shape.nodes.length, Object.keys(previous.nodes).length);
  const { vertical } = previous;
  if (vertical !== (shape.vertical ?? vertical) || old.length === 0 || old.length < SHARE * most) return undefined;
  /** @type {Record<string, Point>} */
  const nodes = Object.fromEntries(old.map(({ id }) => [id, /** @type {Point} */ (previous.nodes[id])]));
  for (const node of shape.nodes.filter((node) => !nodes[node.id]).sort((a, b) => (a.id < b.id ? -1 : 1))) {
    nodes[node.id] = freePlace(node, nodes, shape.links, previous);
  }
  const groups = new Map(shape.nodes.map((node) => [node.namespace, /** @type {Point[]} */ ([])]));
  for (const node of shape.nodes) groups.get(node.namespace)?.push(/** @type {Point} */ (nodes[node.id]));
  const boxes = Object.fromEntries(
    [...groups].map(([name, points]) => [name, boxAround(points, previous.boxes[name])]),
  );
  const routes = Object.fromEntries(
    Object.entries(previous.routes).filter(([id]) => shape.links.some((link) => link.id === id)),
  );
  return { vertical, nodes, routes, labels: previous.labels, boxes, bounds: boundsOf(Object.values(boxes)) };
}

/**
 * Return the free place for a node that is nearest to where it belongs: after its callers, before its callees, in its box.
 * @param {{id: string, namespace: string}} node
 * @param {Record<string, Point>} nodes
 * @param {Shape["links"]} links
 * @param {Layout} previous
 * @returns {Point}
 */
function freePlace(node, nodes, links, previous) {
  const own = previous.boxes[node.namespace];
  const { start, ahead } = anchor(node.id, nodes, links);
  const fallback = own ? { x: own.x + BOX.padding + NODE.width / 2, y: own.y + own.height } : below(previous.bounds);
  const goal = start
    ? { x: start.x + (previous.vertical ? 0 : ahead * STEP.x), y: start.y + (previous.vertical ? ahead * STEP.y : 0) }
    : fallback;
  const inside = own ? clamped(goal, own) : goal;
  const barred = Object.entries(previous.boxes)
    .filter(([name]) => name !== node.namespace)
    .map(([, box]) => box);
  const taken = Object.values(nodes);
  for (let distance = 0; ; distance += 1) {
    for (const place of ring(inside, distance)) if (isFree(place, taken, barred)) return place;
  }
}

/**
 * Return the mean place of the neighbors of a node, and the step from there: 1 after callers, -1 before callees.
 * @param {string} id
 * @param {Record<string, Point>} nodes
 * @param {Shape["links"]} links
 */
function anchor(id, nodes, links) {
  const places = (/** @type {(string | undefined)[]} */ ids) => ids.flatMap((other) => (other && nodes[other]) || []);
  const callers = places(links.map((link) => (link.target === id ? link.source : undefined)));
  const callees = places(links.map((link) => (link.source === id ? link.target : undefined)));
  const neighbors = callers.length > 0 ? callers : callees;
  const mean = (/** @type {"x" | "y"} */ axis) =>
    neighbors.reduce((sum, point) => sum + point[axis], 0) / neighbors.length;
  const start = neighbors.length > 0 ? { x: mean("x"), y: mean("y") } : undefined;
  return { start, ahead: callers.length > 0 ? 1 : -1 };
}

/** @param {Rectangle} bounds */
function below(bounds) {
  return {
    x: bounds.x + BOX.padding + NODE.width / 2,
    y: bounds.y + bounds.height + BOX.gap + BOX.head + BOX.padding + NODE.height / 2,
  };
}

/**
 * Return the nearest point of a box for the center of a node; its end may grow by a row or column.
 * @param {Point} point
 * @param {Rectangle} box
 */
function clamped(point, box) {
  const [left, top] = [box.x + BOX.padding + NODE.width / 2, box.y + BOX.padding + BOX.head + NODE.height / 2];
  const [right, bottom] = [box.x + box.width - BOX.padding - NODE.width / 2, box.y + box.height + STEP.y / 2];
  return { x: Math.min(right, Math.max(left, point.x)), y: Math.min(bottom, Math.max(top, point.y)) };
}

/**
 * Yield the places on a ring around a point: first in the same column.
 * @param {Point} center
 * @param {number} distance
 */
function* ring(center, distance) {
  for (let column = 0; column <= distance; column += 1) {
    for (const [dx, dy] of [
      [column, distance],
      [column, -distance],
      [-column, distance],
      [-column, -distance],
      [distance, column],
      [-distance, column],
    ]) {
      yield { x: center.x + (dx ?? 0) * STEP.x, y: center.y + (dy ?? 0) * STEP.y };
    }
  }
}

/**
 * @param {Point} place
 * @param {Point[]} taken
 * @param {Rectangle[]} barred
 */
function isFree(place, taken, barred) {
  const apart = taken.every(
    (point) => Math.abs(point.x - place.x) >= NODE.width + 20 || Math.abs(point.y - place.y) >= NODE.height + 14,
  );
  return apart && barred.every((box) => !overlaps(boxAround([place]), box));
}

/**
 * @param {Rectangle} a
 * @param {Rectangle} b
 */
function overlaps(a, b) {
  return a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height;
}

/**
 * Return the box around the centers of nodes, at least as large as the previous box.
 * @param {Point[]} points
 * @param {Rectangle} [previous]
 * @returns {Rectangle}
 */
function boxAround(points, previous) {
  const { padding, head } = BOX;
  const rectangles = points.map(({ x, y }) => ({
    x: x - NODE.width / 2 - padding,
    y: y - NODE.height / 2 - padding - head,
    width: NODE.width + 2 * padding,
    height: NODE.height + 2 * padding + head,
  }));
  return boundsOf(previous ? [...rectangles, previous] : rectangles);
}
