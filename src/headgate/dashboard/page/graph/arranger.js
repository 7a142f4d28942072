/**
 * Request layouts from the worker: one at a time, and then only for the newest shape.
 * @import { Layout, Shape } from "./types.js"
 */

/** Request layouts from a worker; `onLayout` gets each one that is not outdated. Call `close` at the end. */
export class Arranger {
  /** @type {{shape: Shape, previous: Layout | undefined} | undefined} */
  #waiting;
  #ticket = 0;
  #busy = false;
  #worker = new Worker(new URL("./layout_worker.js", import.meta.url), { type: "module" });

  /**
   * @param {(layout: Layout) => void} onLayout
   * @param {(message: string) => void} onError
   */
  constructor(onLayout, onError) {
    this.#worker.onmessage = ({ data }) => {
      this.#busy = false;
      if (data.ticket === this.#ticket) onLayout(data.layout);
      this.#next();
    };
    this.#worker.onerror = (event) => {
      this.#busy = false;
      onError(event.message || "the layout's worker did not start");
    };
  }

  /**
   * Request the layout of a shape. An earlier request that has no answer yet gets none.
   * @param {Shape} shape
   * @param {Layout} [previous]
   */
  request(shape, previous) {
    this.#ticket += 1;
    this.#waiting = { shape, previous };
    this.#next();
  }

  /** End the worker. */
  close() {
    this.#worker.terminate();
  }

  #next() {
    if (this.#busy || !this.#waiting) return;
    this.#busy = true;
    this.#worker.postMessage({ ticket: this.#ticket, ...this.#waiting });
    this.#waiting = undefined;
  }
}
