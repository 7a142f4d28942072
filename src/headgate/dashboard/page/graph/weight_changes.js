/**
 * Changes to the weights of splits, which stay visible for a while.
 * @import { Model } from "./types.js"
 */

import { percent } from "../units.js";
import { useEffect, useRef, useState } from "../vendor/preact-hooks.js";

const SHOWN_MS = 12_000;

/**
 * Return the wanted share of each backend before it changed, for 12 seconds after the change.
 * @param {Model} model
 * @returns {Map<string, string>}
 */
export function useWeightChanges(model) {
  const [changes, setChanges] = useState(/** @type {Map<string, string>} */ (new Map()));
  const shares = useRef(/** @type {Map<string, number>} */ (new Map()));
  useEffect(() => {
    const before = shares.current;
    shares.current = new Map(model.links.flatMap(({ id, share }) => (share ? [[id, share.wanted]] : [])));
    const changed = changedShares(before, shares.current);
    if (changed.size === 0) return;
    setChanges((shown) => new Map([...shown, ...changed]));
    setTimeout(() => setChanges((shown) => without(shown, changed)), SHOWN_MS);
  }, [model]);
  return changes;
}

/**
 * Return the former shares of backends whose wanted share differs.
 * @param {Map<string, number>} before
 * @param {Map<string, number>} now
 */
export function changedShares(before, now) {
  const changed = [...now].filter(([id, share]) => before.has(id) && before.get(id) !== share);
  return new Map(changed.map(([id]) => [id, percent(before.get(id) ?? 0, 1)]));
}

/**
 * @param {Map<string, string>} shown
 * @param {Map<string, string>} ended
 */
function without(shown, ended) {
  return new Map([...shown].filter(([id, text]) => ended.get(id) !== text));
}
