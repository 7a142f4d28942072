/**
 * Readings of the API that stay current: a list or an object, watched as a stream. A lost stream reconnects with growing pauses, and
 * the last value stays, marked as stale. A hidden page has no streams, and further pages than streams allow read values every few seconds.
 */

import { ApiError, lines, request } from "./api.js";
import { repeated, withStream } from "./streams.js";
import { useEffect } from "./vendor/preact-hooks.js";
import { signal } from "./vendor/signals.js";

/**
 * `loading`: no value yet. `live`: a stream keeps the value current; `polled`: it is read every few seconds, because the API has no stream of
 * it, or other pages have the most streams. `stale`: the connection is lost; `error` says why. `failed`: there is no value, and `error` says why.
 *
 * @template T
 * @typedef {object} Reading
 * @property {"loading" | "live" | "polled" | "stale" | "failed"} state
 * @property {T | undefined} value
 * @property {ApiError | null} error
 * @property {number} updated milliseconds since the epoch, 0 without a value
 */

const POLL_MS = 3_000;
const COALESCE_MS = 100;
/** Statuses of an API that has no watch on the resource, or of a caller who may only read it. */
const NO_WATCH = new Set([400, 403, 405, 406, 501]);

/** @type {Reading<any>} */
const LOADING = { state: "loading", value: undefined, error: null, updated: 0 };

/** @param {{metadata?: {namespace?: string, name?: string}}} object */
function keyOf({ metadata = {} }) {
  return `${metadata.namespace ?? ""}/${metadata.name ?? ""}`;
}

/** A list or an object at a path, shared by all components that show it. It has a stream while at least one of them does. */
class Source {
  /**
   * @param {string} path
   * @param {Record<string, string>} query
   */
  constructor(path, query) {
    this.path = path;
    this.query = query;
    this.reading = signal(LOADING);
    this.readers = 0;
    this.watches = true;
    /** @type {AbortController | null} */
    this.running = null;
    /** @type {Map<string, any>} */
    this.objects = new Map();
    /** @type {Record<string, any> | null} what a list has beside its items; null if the path is that of an object */
    this.list = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.publishing = undefined;
  }

  update() {
    const wanted = this.readers > 0 && !document.hidden;
    if (wanted && !this.running) {
      this.running = new AbortController();
      this.run(this.running.signal);
    } else if (!wanted && this.running) {
      this.running.abort();
      this.running = null;
    }
  }

  /** @param {AbortSignal} abort */
  run(abort) {
    const attempt = async (/** @type {() => void} */ connected) => {
      if (await this.stream(abort, connected)) return undefined;
      await this.poll(abort);
      return POLL_MS;
    };
    return repeated(abort, attempt, (error) => this.fail(error));
  }

  /**
   * Follow the stream to its end and return true; or return false if there is no stream for this value.
   *
   * @param {AbortSignal} abort
   * @param {() => void} connected
   */
  async stream(abort, connected) {
    if (!this.watches) return false;
    try {
      return await withStream("reading", abort, () => this.follow(abort, connected));
    } catch (error) {
      if (!(error instanceof ApiError && NO_WATCH.has(error.status))) throw error;
      this.watches = false;
      return false;
    }
  }

  /**
   * Open the stream, then read the whole value, then apply the events of the stream. In this order no change is lost: the read waits for the
   * stream's response to begin, because the API may receive two requests in any order.
   *
   * @param {AbortSignal} abort
   * @param {() => void} connected
   */
  async follow(abort, connected) {
    const own = new AbortController();
    const end = () => own.abort();
    abort.addEventListener("abort", end);
    try {
      const events = await lines(this.path, { query: { ...this.query, watch: "true" }, signal: own.signal });
      this.replace(await request(this.path, { query: this.query, signal: own.signal }));
      this.publish("live");
      connected();
      for await (const event of events) this.apply(event);
    } finally {
      abort.removeEventListener("abort", end);
      own.abort();
    }
  }

  /** @param {AbortSignal} abort */
  async poll(abort) {
    this.replace(await request(this.path, { query: this.query, signal: abort }));
    this.publish("polled");
  }

  /** @param {any} answer */
  replace(answer) {
    const { items, ...rest } = answer;
    this.list = Array.isArray(items) ? rest : null;
    this.objects = new Map((this.list ? items : [answer]).map((/** @type {any} */ object) => [keyOf(object), object]));
  }

  /** @param {{type: string, object: any}} event */
  apply({ type, object }) {
    if (type === "ERROR")
      throw new ApiError(object?.code ?? 0, object?.message ?? "The stream failed.", object?.reason);
    if (type === "BOOKMARK") return;
    if (type === "DELETED") this.objects.delete(keyOf(object));
    else this.objects.set(keyOf(object), object);
    this.publishing ??= setTimeout(() => this.publish("live"), COALESCE_MS);
  }

  /** @param {"live" | "polled"} state */
  publish(state) {
    clearTimeout(this.publishing);
    this.publishing = undefined;
    const objects = [...this.objects.values()];
    const value = this.list ? { ...this.list, items: objects } : objects[0];
    this.reading.value = { state, value, error: null, updated: Date.now() };
    updateOldestStale();
  }

  /** @param {ApiError} error */
  fail(error) {
    clearTimeout(this.publishing);
    this.publishing = undefined;
    const last = this.reading.peek();
    this.reading.value = { ...last, state: last.value === undefined ? "failed" : "stale", error };
    updateOldestStale();
  }
}

/** @type {Map<string, Source>} */
const sources = new Map();

/** The oldest of the stale readings on the page, for the frame; null while all are current. */
export const oldestStale = signal(/** @type {Reading<any> | null} */ (null));

function updateOldestStale() {
  const readings = [...sources.values()].map(({ reading }) => reading.peek()).filter(({ state }) => state === "stale");
  oldestStale.value = readings.sort((left, right) => left.updated - right.updated)[0] ?? null;
}

document.addEventListener("visibilitychange", () => {
  for (const source of sources.values()) source.update();
});

/**
 * Return the current value at a path, and keep it current while the component is shown.
 *
 * @param {string} path
 * @param {Record<string, string>} [query]
 * @returns {Reading<any>}
 */
export function useReading(path, query = {}) {
  const id = `${path}?${new URLSearchParams(query)}`;
  const source = sources.get(id) ?? new Source(path, query);
  sources.set(id, source);
  useEffect(() => {
    sources.set(id, source);
    source.readers += 1;
    source.update();
    return () => {
      source.readers -= 1;
      // The next view may show the same: its effects run after this one.
      setTimeout(() => {
        source.update();
        if (source.readers === 0 && sources.get(id) === source) sources.delete(id);
        updateOldestStale();
      });
    };
  }, [id]);
  return source.reading.value;
}
