/** Findings: what is wrong with an object, where, and what to do. */

import { plural, refName } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { Badge, LEVEL_OF_SEVERITY } from "./badge.js";
import { ObjectLink } from "./object_link.js";

/** @typedef {import("../types.js").Finding} Finding */

/** @type {import("../types.js").Severity[]} */
const ORDER = ["Error", "Warning", "Note"];

/**
 * Return findings with errors first, then by their objects.
 *
 * @param {Finding[]} findings
 */
export function bySeverity(findings) {
  const key = (/** @type {Finding} */ { severity, object }) => `${ORDER.indexOf(severity)} ${refName(object)}`;
  return [...findings].sort((left, right) => key(left).localeCompare(key(right)));
}

/** @param {{findings: Finding[]}} properties */
export function FindingCards({ findings }) {
  const card = (/** @type {Finding} */ finding) => html`<li
    class=${`finding ${LEVEL_OF_SEVERITY[finding.severity]}`}
    key=${`${finding.metadata.namespace}/${finding.metadata.name}`}
  >
    <div class="finding-head">
      <${Badge} level=${LEVEL_OF_SEVERITY[finding.severity]}>${finding.severity}<//>
      <strong>${finding.reason}</strong><span class="object"><${ObjectLink} object=${finding.object} /></span>
    </div>
    <p>${finding.field ? html`<code>${finding.field}</code>${" "}` : null}${finding.message}</p>
  </li>`;
  return html`<ul class="findings" aria-label=${plural(findings.length, "finding")}>${findings.map(card)}</ul>`;
}
