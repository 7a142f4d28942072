/** Change weights: drag them, see the plan of the change, apply it, watch the proxies, and undo it. */

import { ApiError } from "../../api.js";
import { merge, objectPath, SPLITS, writeOver } from "../../objects.js";
import { Command } from "../../parts/command.js";
import { PlanView, usePlan } from "../../parts/plan.js";
import { Failed } from "../../parts/states.js";
import { percent } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useState } from "../../vendor/preact-hooks.js";

/**
 * @typedef {import("../../types.js").SplitObject} SplitObject
 * @typedef {SplitObject["spec"]["backends"]} Backends
 */

/** @param {{split: SplitObject}} properties */
export function Editor({ split: streamed }) {
  const [written, setWritten] = useState(/** @type {{before: string, split: SplitObject} | null} */ (null));
  const [edit, setEdit] = useState(/** @type {{base: SplitObject, draft: Backends} | null} */ (null));
  const [undo, setUndo] = useState(/** @type {{from: Backends, to: Backends} | null} */ (null));
  const [warnings, setWarnings] = useState(/** @type {string[]} */ ([]));
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  // The stream brings what this page wrote a little later than the response to the write.
  const split = written?.before === versionOf(streamed) ? written.split : streamed;
  const { backends } = split.spec;
  const draft = edit?.draft ?? backends;
  const isChanged = !same(draft, backends);
  // A status changes the version too: only other backends are a conflict.
  const isOutdated = isChanged && edit !== null && !same(edit.base.spec.backends, backends);
  const plan = usePlan(isChanged ? changeOf(split, draft) : null, split.metadata.generation);
  const discard = () => {
    setEdit(null);
    setError(null);
  };
  const write = async (/** @type {Backends} */ next, /** @type {{from: Backends, to: Backends} | null} */ way) => {
    try {
      const isSame = (/** @type {SplitObject} */ stored) => same(stored.spec.backends, backends);
      const { object, warnings: texts } = await writeOver(pathOf(split), versionOf(split), isSame, (version) =>
        merge(pathOf(split), { spec: { backends: next } }, version),
      );
      setWritten({ before: versionOf(streamed), split: object });
      setWarnings(texts);
      setUndo(way);
      discard();
    } catch (failure) {
      setError(failure instanceof ApiError ? failure : new ApiError(0, String(failure)));
    }
  };
  return html`<form class="editor" aria-label="New weights" onSubmit=${(/** @type {Event} */ event) => {
    event.preventDefault();
    if (isChanged) write(draft, { from: draft, to: backends });
  }}>
    <${Weights} backends=${draft} onChange=${(/** @type {Backends} */ next) => setEdit({ base: edit?.base ?? split, draft: next })} />
    ${isOutdated ? html`<${Outdated} backends=${backends} />` : null}
    ${isChanged ? html`<${PlanView} answer=${plan} />` : null}
    ${isChanged && !isOutdated ? html`<${Command} words=${commandOf(split, draft)} />` : null}
    <div class="actions">
      <button type="submit" class="primary" disabled=${!isChanged || isOutdated}>Apply</button>
      ${isChanged ? html`<button type="button" onClick=${discard}>Discard</button>` : null}
      ${undo && !isChanged && same(undo.from, backends) ? html`<button type="button" onClick=${() => write(undo.to, null)}>Undo: ${sharesText(undo.to)}</button>` : null}
    </div>
    ${error ? html`<${Failed} outcome="The change was not written" error=${conflictText(error)} />` : null}
    <div role="status">${warnings.map((text) => html`<p class="quiet">${text}</p>`)}</div>
  </form>`;
}

/** @param {{backends: Backends}} properties */
function Outdated({ backends }) {
  return html`<div class="notice warning" role="status">
    <strong>The weights have changed meanwhile</strong> to ${sharesText(backends)}. Discard your change, and begin with these weights.
  </div>`;
}

/** @param {{backends: Backends, onChange: (backends: Backends) => void}} properties */
function Weights({ backends, onChange }) {
  const whole = backends.reduce((sum, { weight }) => sum + weight, 0);
  const set = (/** @type {number} */ index) => (/** @type {Event} */ event) => {
    const weight = Number(/** @type {HTMLInputElement} */ (event.target).value);
    onChange(withWeight(backends, index, Math.max(0, Math.round(weight))));
  };
  const most = Math.max(whole, 100);
  return html`${backends.map(
    ({ service, weight }, index) => html`<div class="weight" key=${service}>
      <label for=${`weight-${index}`}>${service}</label>
      <input id=${`weight-${index}`} type="range" min="0" max=${most} value=${weight} onInput=${set(index)}
        aria-valuetext=${`${weight}, ${percent(weight, whole)}`} />
      <input type="number" min="0" value=${weight} onInput=${set(index)} aria-label=${`Weight of ${service}`} />
      <span class="number">${percent(weight, whole)}</span>
    </div>`,
  )}`;
}

/**
 * Return the backends with another weight of one. Of two backends the other one gets the rest, so that the sum stays.
 *
 * @param {Backends} backends
 * @param {number} index
 * @param {number} weight
 * @returns {Backends}
 */
export function withWeight(backends, index, weight) {
  const whole = backends.reduce((sum, backend) => sum + backend.weight, 0);
  const rest = backends.length === 2 ? Math.max(whole - weight, 0) : null;
  return backends.map((backend, at) => ({ ...backend, weight: at === index ? weight : (rest ?? backend.weight) }));
}

/**
 * Return the change that gives a split other backends.
 *
 * @param {SplitObject} split
 * @param {Backends} backends
 * @returns {import("../../parts/plan.js").Change}
 */
function changeOf({ apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec }, backends) {
  return {
    objects: [{ apiVersion, kind, metadata: { name, namespace, labels, annotations }, spec: { ...spec, backends } }],
  };
}

/** @param {SplitObject} split */
function pathOf({ metadata }) {
  return objectPath(SPLITS, metadata.namespace, metadata.name);
}

/** @param {SplitObject} split */
function versionOf({ metadata }) {
  return metadata.resourceVersion;
}

/**
 * @param {SplitObject} split
 * @param {Backends} backends
 */
function commandOf({ metadata }, backends) {
  const patch = JSON.stringify({ spec: { backends } });
  return ["kubectl", "patch", "trafficsplit", metadata.name, "-n", metadata.namespace, "--type", "merge", "-p", patch];
}

/** @param {Backends} backends */
function sharesText(backends) {
  return backends.map(({ service, weight }) => `${service} ${weight}`).join(", ");
}

/** @param {ApiError} error */
function conflictText(error) {
  return error.status === 409
    ? new ApiError(409, "The TrafficSplit has changed meanwhile. Look at it, and apply again.")
    : error;
}

/**
 * @param {Backends} left
 * @param {Backends} right
 */
function same(left, right) {
  return JSON.stringify(left) === JSON.stringify(right);
}
