/** All findings: mistakes in objects and notes about them, with what to do. */

import { inspectPath } from "../../api.js";
import { place } from "../../location.js";
import { currentNamespace, namespaceOptions } from "../../namespace.js";
import { Command } from "../../parts/command.js";
import { SearchField, SelectField } from "../../parts/fields.js";
import { bySeverity, FindingCards } from "../../parts/findings.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/** @typedef {import("../../types.js").Finding} Finding */

/** @type {[value: string, title: string][]} */
const SEVERITIES = [
  ["", "All"],
  ["Error", "Errors"],
  ["Warning", "Warnings"],
  ["Note", "Notes"],
];

export function Findings() {
  const namespace = currentNamespace("findings");
  const reading = useReading(inspectPath("findings", namespace));
  /** @type {Finding[]} */
  const findings = reading.value?.items ?? [];
  const { search = "", severity = "" } = place.value.query;
  const shown = bySeverity(findings).filter((finding) => matches(finding, search, severity));
  const namespaces = namespaceOptions(findings.map(({ object }) => object.namespace));
  return html`<div class="section-head">
      <h1>Findings</h1>
      <div class="filters" role="search" aria-label="Filter the findings">
        <${SearchField} name="search" label="Search" />
        <${SelectField} name="namespace" label="Namespace" options=${namespaces} />
        <${SelectField} name="severity" label="Severity" options=${SEVERITIES} />
      </div>
    </div>
    <${Read} reading=${reading} what="the findings">
      ${(/** @type {{objects: number}} */ { objects }) =>
        shown.length
          ? html`<${FindingCards} findings=${shown} />`
          : html`<${Empty} title=${findings.length ? "No finding matches the filter" : "No findings"}>
              <p>${findings.length ? "" : `headgate has checked ${plural(objects, "object")}.`}</p>
            <//>`}
    <//>
    <${Command} words=${["headgate", "check", ...(namespace ? ["-n", namespace] : [])]} />`;
}

/**
 * @param {Finding} finding
 * @param {string} text
 * @param {string} severity
 */
function matches(finding, text, severity) {
  const searched = `${refName(finding.object)} ${finding.reason} ${finding.field} ${finding.message}`.toLowerCase();
  return (!severity || finding.severity === severity) && searched.includes(text.trim().toLowerCase());
}
