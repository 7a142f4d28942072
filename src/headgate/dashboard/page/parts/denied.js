/** The requests that access rules denied, and those that they would deny without audit mode. */

import { count } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { Badge } from "./badge.js";

/** @param {{denied: number, audited: number}} properties */
export function Denied({ denied, audited }) {
  if (!denied && !audited) return "0";
  return html`${denied ? html`<${Badge} level="warning">${count(denied)}<//>` : null}${denied && audited ? " " : ""}
    ${audited ? html`<${Badge} level="warning">audit: ${count(audited)}<//>` : null}`;
}
