/** A state as a sign and a word: the sign and the word differ between states, not the color alone. */

import { html } from "../vendor/htm-preact.js";

/** @typedef {"good" | "warning" | "bad" | "neutral"} Level */

/** @type {Record<Level, string>} */
const SIGNS = { good: "✓", warning: "!", bad: "✕", neutral: "i" };

/** @param {{level: Level, children?: import("../vendor/preact.js").ComponentChildren}} properties */
export function Badge({ level, children }) {
  return html`<span class=${`badge ${level}`}><span class="sign" aria-hidden="true">${SIGNS[level]}</span>${children}</span>`;
}

/** @type {Record<import("../types.js").Severity, Level>} */
export const LEVEL_OF_SEVERITY = { Error: "bad", Warning: "warning", Note: "neutral" };

/** @type {Record<import("../types.js").ProxyState, Level>} */
export const LEVEL_OF_PROXY = { InSync: "good", Lagging: "warning", Refused: "bad", Disconnected: "bad" };
