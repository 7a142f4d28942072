/** The states of a view without what it should show: loading, empty, failed; and the notice of a value that is not current. */

import { lost } from "../api.js";
import { duration } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { Command } from "./command.js";
import { now } from "./time.js";

/**
 * @typedef {import("../readings.js").Reading<any>} Reading
 * @typedef {import("../vendor/preact.js").ComponentChildren} Children
 */

/** @param {{what: string}} properties */
export function Loading({ what }) {
  return html`<p class="state loading" role="status"><span class="spinner" aria-hidden="true"></span>Loading ${what} …</p>`;
}

/** @param {{title: string, children?: Children}} properties */
export function Empty({ title, children }) {
  return html`<div class="state empty"><p class="state-title">${title}</p>${children}</div>`;
}

/**
 * Say that a reading failed, which the page repeats; or with `outcome` that a request failed that it sends once, such as a write.
 *
 * @param {{what?: string, outcome?: string, error: import("../api.js").ApiError | null}} properties `outcome` is a sentence without its end
 */
export function Failed({ what = "", outcome = "", error }) {
  if (outcome) {
    return html`<div class="state failed" role="alert"><p class="state-title">${outcome}</p><p>${error?.message ?? ""}</p></div>`;
  }
  if (error?.status === 403 || error?.status === 401) {
    return html`<div class="state denied"><p class="state-title">You may not see ${what}</p><p>${error.message}</p></div>`;
  }
  return html`<div class="state failed" role="alert">
    <p class="state-title">${capitalized(what)} can't be read</p>
    <p>${error?.message ?? ""} The page tries again.</p>
  </div>`;
}

/**
 * Show a reading: its state while it has no value, else what `children` returns for the value.
 *
 * @param {{reading: Reading, what: string, children: (value: any) => Children}} properties
 */
export function Read({ reading, what, children }) {
  if (reading.state === "loading") return html`<${Loading} what=${what} />`;
  if (reading.state === "failed") return html`<${Failed} what=${what} error=${reading.error} />`;
  return html`<div class=${reading.state === "stale" ? "stale" : ""}>${children(reading.value)}</div>`;
}

/** @param {{reading: Pick<Reading, "error" | "updated">}} properties */
export function StaleNotice({ reading }) {
  return html`<div class="notice warning" role="status">
    <strong>Not current.</strong> The page shows the state of ${duration(now.value - reading.updated)} ago and reconnects by itself.
    ${" "}${lost.value ? "" : (reading.error?.message ?? "")}
  </div>`;
}

/** Say what to do when requests do not reach the API, with the command that does it. */
export function LostNotice() {
  const { context = "" } = document.documentElement.dataset;
  const words = ["headgate", "dashboard", ...(context ? ["--context", context] : [])];
  return html`<div class="notice warning" role="status">
    ${
      lost.value === "session"
        ? html`<strong>headgate has started again.</strong> Its page needs the URL of this start once: run the command. This page continues when
          the URL is open in another tab of this browser.`
        : html`<strong>headgate does not respond.</strong> Start it again if it was stopped${context ? "" : html` (<code>headgate up</code>)`}, then run
          the command. If the new page has this address, this one continues.`
    }
    <${Command} words=${words} />
  </div>`;
}

/** @param {string} text */
function capitalized(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
