/** What a rollback to a revision would write: the objects that differ, with their fields now and then. */

import { inspectPath } from "../../api.js";
import { namespaceWords } from "../../namespace.js";
import { Command } from "../../parts/command.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/** @typedef {import("../../types.js").RestorationStep} RestorationStep */

/** @param {{revision: number, namespace: string}} properties `namespace` is empty for all of them */
export function Restoration({ revision, namespace }) {
  const reading = useReading(inspectPath(`revisions/${revision}/restoration`, namespace));
  const rollback = ["headgate", "rollback", String(revision), ...namespaceWords(namespace)];
  return html`<div class="restoration">
    <${Read} reading=${reading} what="the comparison">
      ${(/** @type {{steps: RestorationStep[]}} */ { steps }) =>
        steps.length
          ? html`<ul class="steps">${steps.map((step) => html`<${Step} step=${step} />`)}</ul>`
          : html`<${Empty} title="The objects are as they were at this revision" />`}
    <//>
    <${Command} words=${[...rollback, "--dry-run"]} />
    <${Command} words=${rollback} />
  </div>`;
}

/** @param {{step: RestorationStep}} properties */
function Step({ step }) {
  const { verb, object, present, wanted, skipMessage } = step;
  const fields = differences(present, wanted);
  return html`<li>
    <p><strong>${verb} ${refName(object)}</strong>${skipMessage ? ` is left out: ${skipMessage}` : ""}</p>
    ${
      verb === "update"
        ? html`<table class="difference">
          <thead><tr><th scope="col">Field</th><th scope="col">Now</th><th scope="col">At the revision</th></tr></thead>
          <tbody>${fields.map(
            ([path, now, then]) =>
              html`<tr><th scope="row"><code>${path}</code></th><td><code>${now}</code></td><td><code>${then}</code></td></tr>`,
          )}</tbody>
        </table>`
        : null
    }
  </li>`;
}

/**
 * Return the fields that differ between two objects, as their path and both values in JSON.
 *
 * @param {unknown} left
 * @param {unknown} right
 * @param {string} [path]
 * @returns {[path: string, left: string, right: string][]}
 */
export function differences(left, right, path = "") {
  if (JSON.stringify(left) === JSON.stringify(right)) return [];
  if (!isObject(left) || !isObject(right)) return [[path, shown(left), shown(right)]];
  const names = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  return names.flatMap((name) => differences(left[name], right[name], joined(path, name, Array.isArray(left))));
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isObject(value) {
  return typeof value === "object" && value !== null;
}

/**
 * @param {string} path
 * @param {string} name
 * @param {boolean} isIndex
 */
function joined(path, name, isIndex) {
  if (isIndex) return `${path}[${name}]`;
  return path ? `${path}.${name}` : name;
}

/** @param {unknown} value */
function shown(value) {
  return value === undefined ? "–" : JSON.stringify(value);
}
