/**
 * The sizes of nodes and boxes, and the rectangles around them. Pure.
 * @import { GraphLink, Rectangle } from "./types.js"
 */

/** The size of each node in pixels. */
export const NODE = { width: 172, height: 50 };
/** Up to this number of lines each has its label; beyond it only those with signs, and those of the current node or line. */
export const ALL_LABELS = 70;
/** On a page with fewer pixels the traffic flows downward. */
export const NARROW = 640;
/** The room for the labels of links in pixels; their numbers don't change it. */
const LABELS = {
  traffic: { width: 136, height: 40 },
  split: { width: 118, height: 52 },
  mirror: { width: 136, height: 38 },
};

/**
 * Return the room that a link's label has.
 * @param {GraphLink} link
 */
export function labelRoom(link) {
  const { width, height } = LABELS[link.type];
  return { width: Math.max(width, link.match.length * 7), height: height + (link.match ? 14 : 0) };
}

/** The distances in and between boxes; `head` is the room of the namespace's name. */
export const BOX = { padding: 22, head: 26, gap: 28 };

/**
 * Return the smallest rectangle around rectangles.
 * @param {Rectangle[]} rectangles
 * @returns {Rectangle}
 */
export function boundsOf(rectangles) {
  if (rectangles.length === 0) return { x: 0, y: 0, width: 1, height: 1 };
  const x = Math.min(...rectangles.map((rectangle) => rectangle.x));
  const y = Math.min(...rectangles.map((rectangle) => rectangle.y));
  const right = Math.max(...rectangles.map((rectangle) => rectangle.x + rectangle.width));
  const bottom = Math.max(...rectangles.map((rectangle) => rectangle.y + rectangle.height));
  return { x, y, width: right - x, height: bottom - y };
}
