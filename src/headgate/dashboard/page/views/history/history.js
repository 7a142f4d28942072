/** The history: what changed when, by whom, and what it did to requests and access. Each revision can be compared and restored. */

import { inspectPath } from "../../api.js";
import { linkTo, place } from "../../location.js";
import { currentNamespace, namespaceOptions, namespaceWords } from "../../namespace.js";
import { Command } from "../../parts/command.js";
import { SearchField, SelectField } from "../../parts/fields.js";
import { Empty, Read } from "../../parts/states.js";
import { Time } from "../../parts/time.js";
import { useReading } from "../../readings.js";
import { plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useState } from "../../vendor/preact-hooks.js";
import { Restoration } from "./restoration.js";

/**
 * @typedef {import("../../types.js").Revision} Revision
 * @typedef {import("../../types.js").ObjectChange} ObjectChange
 */

const STEP = 50;
const REASONS = {
  RecordingStarted: "Recording began",
  Written: "",
  ControllerWrote: "A controller wrote",
  NotRecorded: "Changed while no control plane recorded",
};

export function History() {
  const [, number = ""] = place.value.path;
  const namespace = currentNamespace("revisions");
  return number
    ? html`<${OneRevision} number=${number} namespace=${namespace} />`
    : html`<${AllRevisions} namespace=${namespace} />`;
}

/** @param {{number: string, namespace: string}} properties `namespace` is empty for all of them */
function OneRevision({ number, namespace }) {
  const reading = useReading(inspectPath(`revisions/${encodeURIComponent(number)}`, namespace));
  const { rollback = number } = place.value.query;
  const initial = /^\d+$/.test(rollback) ? Number(rollback) : null;
  return html`<p><a href=${linkTo(["history"])}>All revisions</a></p>
    <h1>Revision ${number}</h1>
    <${Read} reading=${reading} what="the revision">
      ${(/** @type {Revision} */ revision) => html`<ol class="revisions"><${Entry} key=${`${number} ${rollback}`} revision=${revision} namespace=${namespace} initial=${initial} /></ol>`}
    <//>
    <${Command} words=${["headgate", "history", number, ...namespaceWords(namespace)]} />`;
}

/** @param {{namespace: string}} properties */
function AllRevisions({ namespace }) {
  const [limit, setLimit] = useState(STEP);
  const reading = useReading(inspectPath("revisions", namespace), { newest: String(limit) });
  /** @type {Revision[]} */
  const revisions = [...(reading.value?.items ?? [])].reverse();
  const shown = revisions.filter((revision) => matches(revision, place.value.query.search ?? ""));
  const older = reading.value?.older ?? 0;
  return html`<div class="section-head">
      <h1>History</h1>
      <div class="filters" role="search" aria-label="Filter the history">
        <${SearchField} name="search" label="Search" />
        <${SelectField} name="namespace" label="Namespace" options=${namespaceOptions(namespacesOf(revisions))} />
      </div>
    </div>
    <${Read} reading=${reading} what="the history">
      ${() =>
        shown.length
          ? html`<ol class="revisions">${shown.map((revision) => html`<${Entry} key=${revision.revision} revision=${revision} namespace=${namespace} />`)}</ol>`
          : html`<${Empty} title=${revisions.length ? "No revision matches the search" : "Nothing has changed yet"} />`}
    <//>
    ${older ? html`<button type="button" class="more" onClick=${() => setLimit(limit + STEP)}>Show more: ${plural(older, "older revision")}</button>` : null}
    <${Command} words=${["headgate", "history", ...namespaceWords(namespace)]} />`;
}

/**
 * @param {{revision: Revision, namespace: string, initial?: number | null}} properties `initial` is the revision whose comparison is open at first
 */
function Entry({ revision, namespace, initial = null }) {
  const { revision: number, recordTime, reason, changes, effectMessages } = revision;
  const [target, setTarget] = useState(initial);
  const writers = [...new Set(changes.map(({ by }) => by).filter(Boolean))];
  const button = (/** @type {number} */ to, /** @type {string} */ title) =>
    html`<button type="button" aria-expanded=${target === to ? "true" : "false"} onClick=${() => setTarget(target === to ? null : to)}>
        ${target === to ? "Close the comparison" : title}
      </button>`;
  return html`<li class="revision">
    <div class="revision-head">
      <a href=${linkTo(["history", String(number)])}><strong>Revision ${number}</strong></a><${Time} time=${recordTime} />
      ${writers.length ? html`<span class="quiet">by ${writers.join(", ")}</span>` : null}
      ${REASONS[reason] ? html`<span class="quiet">${REASONS[reason]}</span>` : null}
    </div>
    <ul class="changes">${summary(changes).map((change) => html`<li>${change}</li>`)}</ul>
    <${Effects} messages=${effectMessages} />
    <div class="actions">
      <a href=${linkTo(["explain"], { at: String(number) })}>Explain a request at this revision</a>
      ${button(number, "What would a rollback to it write?")}
      ${reason === "RecordingStarted" ? null : button(number - 1, "What would a rollback to before it write?")}
    </div>
    ${target === null ? null : html`<${Restoration} key=${target} revision=${target} namespace=${namespace} />`}
  </li>`;
}

const MOST_EFFECTS = 5;

/** @param {{messages: string[]}} properties */
function Effects({ messages }) {
  if (!messages.length) return html`<p class="quiet">No effect on requests and access.</p>`;
  const lines = (/** @type {string[]} */ texts) =>
    html`<ul class="messages effects">${texts.map((text) => html`<li>${text}</li>`)}</ul>`;
  const further = messages.slice(MOST_EFFECTS);
  return html`<div role="group" aria-label="Effect on requests and access">
    ${lines(messages.slice(0, MOST_EFFECTS))}
    ${further.length ? html`<details><summary>${plural(further.length, "further effect")}</summary>${lines(further)}</details>` : null}
  </div>`;
}

const MOST_CHANGES = 6;

/**
 * Return a line for each change, or the first ones and how many are left.
 *
 * @param {ObjectChange[]} changes
 * @returns {string[]}
 */
export function summary(changes) {
  const lines = changes.slice(0, MOST_CHANGES).map(changeLine);
  const left = changes.length - MOST_CHANGES;
  return left > 0 ? [...lines, `and ${plural(left, "further object")}`] : lines;
}

/** @param {ObjectChange} change */
function changeLine({ object, action, fields, file, line }) {
  const place_ = file ? ` (${file}:${line})` : "";
  const changed = fields.slice(0, 3).map(({ path, before, after }) => `${path} ${text(before)} → ${text(after)}`);
  const further = fields.length > 3 ? [`and ${plural(fields.length - 3, "further field")}`] : [];
  const details = action === "Changed" ? `: ${[...changed, ...further].join(", ")}` : ` ${action.toLowerCase()}`;
  return `${refName(object)}${details}${place_}`;
}

/** @param {unknown} value */
function text(value) {
  if (value === null || value === undefined) return "nothing";
  const json = typeof value === "string" ? value : JSON.stringify(value);
  return json.length > 60 ? `${json.slice(0, 59)}…` : json;
}

/**
 * @param {Revision} revision
 * @param {string} search
 */
function matches({ revision, changes, effectMessages }, search) {
  const lines = [`revision ${revision}`, ...changes.map(changeLine), ...changes.map(({ by }) => by), ...effectMessages];
  return lines.join("\n").toLowerCase().includes(search.trim().toLowerCase());
}

/** @param {Revision[]} revisions */
function namespacesOf(revisions) {
  return revisions.flatMap(({ changes }) => changes.map(({ object }) => object.namespace));
}
