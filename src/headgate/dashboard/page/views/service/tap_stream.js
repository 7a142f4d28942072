/** The stream of a tap, while a component shows it and the page is visible. The control plane ends the tap with the connection. */

import { inspectPath, lines } from "../../api.js";
import { repeated, withStream } from "../../streams.js";
import { useEffect, useState } from "../../vendor/preact-hooks.js";
import { NOTHING, withLines } from "./tap_events.js";

/**
 * @typedef {import("./tap_events.js").Tapped} Tapped
 * @typedef {import("./tap_events.js").TapEvent | import("./tap_events.js").TapNotice} Line
 * @typedef {"connecting" | "live" | "full" | "lost"} State `full`: pages of this browser have the most streams
 * @typedef {{state: State, error: import("../../api.js").ApiError | null, tapped: Tapped}} Tap
 */

const COALESCE_MS = 250;

/**
 * Tap a Service and return its newest requests.
 *
 * @param {string} namespace
 * @param {string} name
 * @param {boolean} values whether to request the values of headers and queries
 * @returns {Tap}
 */
export function useTap(namespace, name, values) {
  const [tap, setTap] = useState(/** @type {Tap} */ ({ state: "connecting", error: null, tapped: NOTHING }));
  useEffect(() => {
    setTap({ state: "connecting", error: null, tapped: NOTHING });
    const path = `${inspectPath("services", namespace)}/${encodeURIComponent(name)}/${values ? "tapvalues" : "tap"}`;
    /** @type {AbortController | null} */
    let running = null;
    const update = () => {
      if (document.hidden) {
        running?.abort();
        running = null;
      } else if (!running) {
        running = new AbortController();
        follow(path, running.signal, (change) => setTap(change));
      }
    };
    update();
    document.addEventListener("visibilitychange", update);
    return () => {
      document.removeEventListener("visibilitychange", update);
      running?.abort();
    };
  }, [namespace, name, values]);
  return tap;
}

/**
 * Follow a tap until `abort`, and reconnect when the connection is lost. Requests that arrive within a short time change the state once.
 *
 * @param {string} path
 * @param {AbortSignal} abort
 * @param {(change: (tap: Tap) => Tap) => void} change
 */
function follow(path, abort, change) {
  /** @type {Line[]} */
  let arrived = [];
  const publish = () => {
    const next = arrived;
    arrived = [];
    if (!abort.aborted) change((tap) => ({ ...tap, tapped: withLines(tap.tapped, next) }));
  };
  const attempt = async (/** @type {() => void} */ connected) => {
    const ran = await withStream("tap", abort, async () => {
      const tapped = await lines(path, { signal: abort });
      connected();
      change((tap) => ({ ...tap, state: "live", error: null }));
      for await (const line of tapped) {
        if (!arrived.length) setTimeout(publish, COALESCE_MS);
        arrived.push(line);
      }
    });
    if (!abort.aborted) change((tap) => ({ ...tap, state: ran ? "connecting" : "full", error: null }));
    return undefined;
  };
  repeated(abort, attempt, (error) => change((tap) => ({ ...tap, state: "lost", error })));
}
