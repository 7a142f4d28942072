/** Times that stay true while the page is open. */

import { localTime, NONE, relative } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { signal } from "../vendor/signals.js";

const TICK_MS = 5_000;

/** The current time in milliseconds since the epoch, every few seconds. */
export const now = signal(Date.now());

setInterval(() => {
  if (!document.hidden) now.value = Date.now();
}, TICK_MS);

/**
 * Show how long ago a time was, and the time itself in the reader's zone as its title.
 *
 * @param {{time: string | null | undefined}} properties
 */
export function Time({ time }) {
  if (!time) return NONE;
  return html`<time datetime=${time} title=${localTime(time)}>${relative(time, now.value)}</time>`;
}
