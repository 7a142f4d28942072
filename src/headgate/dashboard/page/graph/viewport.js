/**
 * What part of the graph is visible: pan by dragging or keys, zoom by buttons, pinching or Ctrl with the wheel. It moves one SVG group
 * directly, without drawing the graph again.
 * @import { Point, Rectangle } from "./types.js"
 */

const SCALE = { least: 0.06, most: 2.5 };
/** The room around a whole graph, for lines outside its boxes and the controls below. */
const MARGIN = { side: 40, controls: 36 };
/** Below these scales, labels and then the small texts of nodes can't be read, and are not drawn. */
const FAR = 0.5;
const FARTHEST = 0.28;

/** Move and scale a group inside its SVG. Call `close` at the end. */
export class Viewport {
  scale = 1;
  x = 0;
  y = 0;
  #svg;
  #group;
  #fitted = true;
  #least = SCALE.least;
  /** @type {Rectangle} */
  #bounds = { x: 0, y: 0, width: 1, height: 1 };
  /** @type {Map<number, Point>} */
  #pointers = new Map();
  #dragged = false;
  #observer = new ResizeObserver(() => this.#fitted && this.fit(this.#least));
  #abort = new AbortController();

  /**
   * @param {SVGSVGElement} svg
   * @param {SVGGElement} group
   */
  constructor(svg, group) {
    this.#svg = svg;
    this.#group = group;
    const { signal } = this.#abort;
    svg.addEventListener("wheel", (event) => this.#wheel(event), { passive: false, signal });
    svg.addEventListener("pointerdown", (event) => this.#press(event), { signal });
    svg.addEventListener("pointermove", (event) => this.#move(event), { signal });
    for (const name of /** @type {const} */ (["pointerup", "pointercancel"])) {
      svg.addEventListener(name, (event) => this.#pointers.delete(event.pointerId), { signal });
    }
    svg.addEventListener("click", (event) => this.#dragged && event.stopPropagation(), { capture: true, signal });
    this.#observer.observe(svg);
  }

  close() {
    this.#abort.abort();
    this.#observer.disconnect();
  }

  /**
   * Show the whole graph, or from its start what fits at the least scale.
   * @param {number} [least]
   */
  fit(least = SCALE.least) {
    const bounds = this.#bounds;
    this.#fitted = true;
    this.#least = least;
    const { clientWidth: width, clientHeight: height } = this.#svg;
    if (width === 0) return;
    const scale = Math.min(
      1.1,
      (width - MARGIN.side) / bounds.width,
      (height - MARGIN.side - MARGIN.controls) / bounds.height,
    );
    this.scale = Math.max(least, scale);
    this.x = Math.max(width / 2 - (bounds.x + bounds.width / 2) * this.scale, MARGIN.side / 2 - bounds.x * this.scale);
    this.y = Math.max(
      (height - MARGIN.controls) / 2 - (bounds.y + bounds.height / 2) * this.scale,
      MARGIN.side / 2 - bounds.y * this.scale,
    );
    this.#apply();
  }

  /**
   * Take the new bounds of the graph. What is visible stays, unless it was never moved.
   * @param {Rectangle} bounds
   * @param {number} least the scale at first
   */
  keep(bounds, least) {
    this.#bounds = bounds;
    if (this.#fitted) this.fit(least);
  }

  /**
   * Scale by a factor around a point of the SVG, its center by default.
   * @param {number} factor
   * @param {Point} [center]
   */
  zoom(factor, center = { x: this.#svg.clientWidth / 2, y: this.#svg.clientHeight / 2 }) {
    const scale = Math.min(SCALE.most, Math.max(SCALE.least, this.scale * factor));
    this.x = center.x - ((center.x - this.x) * scale) / this.scale;
    this.y = center.y - ((center.y - this.y) * scale) / this.scale;
    this.scale = scale;
    this.#fitted = false;
    this.#apply();
  }

  /**
   * @param {number} dx pixels
   * @param {number} dy
   */
  pan(dx, dy) {
    this.x += dx;
    this.y += dy;
    this.#fitted = false;
    this.#apply();
  }

  /**
   * Move a point of the graph into the visible part, if it is outside.
   * @param {Point} point
   */
  reveal(point) {
    const { clientWidth: width, clientHeight: height } = this.#svg;
    const margin = Math.min(110, width / 4);
    const shift = (/** @type {number} */ at, /** @type {number} */ size) =>
      at < margin ? margin - at : at > size - margin ? size - margin - at : 0;
    const dx = shift(point.x * this.scale + this.x, width);
    const dy = shift(point.y * this.scale + this.y, height);
    if (dx !== 0 || dy !== 0) this.pan(dx, dy);
  }

  #apply() {
    this.#group.setAttribute("transform", `translate(${this.x} ${this.y}) scale(${this.scale})`);
    this.#svg.classList.toggle("far", this.scale < FAR);
    this.#svg.classList.toggle("farthest", this.scale < FARTHEST);
  }

  /** @param {WheelEvent} event */
  #wheel(event) {
    if (!event.ctrlKey && !event.metaKey) return; // the wheel alone scrolls the page
    event.preventDefault();
    this.zoom(Math.exp(-event.deltaY / 300), this.#local(event));
  }

  /** @param {PointerEvent} event */
  #press(event) {
    if (event.button !== 0) return;
    this.#pointers.set(event.pointerId, this.#local(event));
    this.#dragged = false;
  }

  /** @param {PointerEvent} event */
  #move(event) {
    const before = this.#pointers.get(event.pointerId);
    if (!before) return;
    const now = this.#local(event);
    const other = [...this.#pointers].find(([id]) => id !== event.pointerId)?.[1];
    if (!this.#dragged && Math.hypot(now.x - before.x, now.y - before.y) < 4) return;
    if (!this.#dragged) this.#svg.setPointerCapture(event.pointerId);
    this.#dragged = true;
    this.#pointers.set(event.pointerId, now);
    this.pan((now.x - before.x) / this.#pointers.size, (now.y - before.y) / this.#pointers.size);
    if (other) this.zoom(distance(now, other) / Math.max(1, distance(before, other)), middle(now, other));
  }

  /** @param {MouseEvent} event */
  #local(event) {
    const { left, top } = this.#svg.getBoundingClientRect();
    return { x: event.clientX - left, y: event.clientY - top };
  }
}

/**
 * @param {Point} a
 * @param {Point} b
 */
function distance(a, b) {
  return Math.hypot(a.x - b.x, a.y - b.y);
}

/**
 * @param {Point} a
 * @param {Point} b
 */
function middle(a, b) {
  return { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
}
