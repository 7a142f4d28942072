/** A rollback to a revision: what it would write, what that does, the writes themselves under the caller's rights, and the way back. */

import { inspectPath, request } from "../../api.js";
import { differences } from "../../differences.js";
import { namespaceWords } from "../../namespace.js";
import { discoveredTypeOf } from "../../objects.js";
import { Command } from "../../parts/command.js";
import { PlanView, usePlan } from "../../parts/plan.js";
import { Empty, Failed, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { may } from "../../rights.js";
import { plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useState } from "../../vendor/preact-hooks.js";
import { rollBack } from "./rollback.js";

/**
 * @typedef {import("../../types.js").RestorationStep} RestorationStep
 * @typedef {{names: string[], newest: number, steps: string}} Written the written objects, the newest revision before, and the steps as JSON if
 *   all of them were written
 */

/** @param {{revision: number, namespace: string}} properties `namespace` is empty for all of them */
export function Restoration({ revision, namespace }) {
  const reading = useReading(inspectPath(`revisions/${revision}/restoration`, namespace));
  const [written, setWritten] = useState(/** @type {Written | null} */ (null));
  const command = ["headgate", "rollback", String(revision), ...namespaceWords(namespace)];
  return html`<div class="restoration">
    <${Read} reading=${reading} what="the comparison">
      ${(/** @type {{steps: RestorationStep[]}} */ { steps }) =>
        steps.length
          ? html`<ul class="steps">${steps.map((step) => html`<${Step} step=${step} />`)}</ul>
              ${JSON.stringify(due(steps)) === written?.steps ? null : html`<${Rollback} title=${`Roll back to revision ${revision}`} steps=${due(steps)} namespace=${namespace} onWritten=${setWritten} />`}`
          : html`<${Empty} title="The objects are as they were at this revision" />`}
    <//>
    ${written ? html`<${Undo} written=${written} namespace=${namespace} onUndone=${() => setWritten(null)} />` : null}
    <${Command} words=${[...command, "--dry-run"]} />
    <${Command} words=${command} />
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
        ? html`<div class="table-frame" role="region" aria-label=${`Fields of ${refName(object)}`} tabindex="0"><table class="difference">
          <thead><tr><th scope="col">Field</th><th scope="col">Now</th><th scope="col">At the revision</th></tr></thead>
          <tbody>${fields.map(
            ([path, now, then]) =>
              html`<tr><th scope="row"><code>${path}</code></th><td><code>${now}</code></td><td><code>${then}</code></td></tr>`,
          )}</tbody>
        </table></div>`
        : null
    }
  </li>`;
}

/**
 * The effect of steps and the button that writes them.
 *
 * @param {{title: string, steps: RestorationStep[], namespace: string, onWritten: (written: Written) => void}} properties
 */
function Rollback({ title, steps, namespace, onWritten }) {
  const [isWriting, setWriting] = useState(false);
  const [error, setError] = useState(/** @type {import("../../api.js").ApiError | null} */ (null));
  const plan = usePlan(steps.length ? changeOf(steps) : null);
  const isDenied = useDenied(steps);
  if (!steps.length) return html`<p class="quiet">Nothing is left to write.</p>`;
  const write = async () => {
    setWriting(true);
    const newest = await newestRevision(namespace);
    const { written, error: failure } = newest.error ? { written: [], error: newest.error } : await rollBack(steps);
    setError(failure);
    const names = written.map(({ object }) => refName(object));
    if (names.length) onWritten({ names, newest: newest.number, steps: failure ? "" : JSON.stringify(steps) });
    setWriting(false);
  };
  return html`<${PlanView} answer=${plan} />
    ${
      isDenied
        ? html`<p class="quiet">You may not write these objects.</p>`
        : html`<div class="actions"><button type="button" class="primary" disabled=${isWriting} onClick=${write}>${title}: ${plural(steps.length, "object")}</button></div>`
    }
    ${error ? html`<${Failed} outcome="The rollback failed" error=${error} />` : null}`;
}

/**
 * Say what a rollback wrote, and offer what restores the same objects.
 *
 * @param {{written: Written, namespace: string, onUndone: () => void}} properties
 */
function Undo({ written: { names, newest }, namespace, onUndone }) {
  const reading = useReading(inspectPath(`revisions/${newest}/restoration`, namespace));
  /** @type {RestorationStep[]} */
  const steps = due(reading.value?.steps ?? []).filter(({ object }) => names.includes(refName(object)));
  return html`<div class="undo" role="group" aria-label="Undo the rollback">
    <p role="status">Restored: ${names.join(", ")}.</p>
    ${steps.length ? html`<${Rollback} title="Undo the rollback" steps=${steps} namespace=${namespace} onWritten=${onUndone} />` : null}
  </div>`;
}

/** @param {RestorationStep[]} steps */
function due(steps) {
  return steps.filter(({ skipMessage }) => !skipMessage);
}

/**
 * @param {RestorationStep[]} steps
 * @returns {import("../../parts/plan.js").Change}
 */
function changeOf(steps) {
  return {
    objects: steps.flatMap(({ wanted }) => (wanted ? [wanted] : [])),
    deleted: steps.flatMap(({ wanted, object }) => (wanted ? [] : [object])),
  };
}

/**
 * Return whether the caller may not do one of the steps.
 *
 * @param {RestorationStep[]} steps
 */
function useDenied(steps) {
  const [rights, setRights] = useState(/** @type {import("../../rights.js").Right[]} */ ([]));
  const id = steps.map(({ verb, object }) => `${verb} ${refName(object)}`).join();
  useEffect(() => {
    let isCurrent = true;
    Promise.all(steps.map(rightFor)).then(
      (needed) => isCurrent && setRights(needed),
      () => {}, // the rollback itself reports what the API server says
    );
    return () => {
      isCurrent = false;
    };
  }, [id]);
  return rights.filter((right) => may(right) === false).length > 0;
}

/**
 * @param {RestorationStep} step
 * @returns {Promise<import("../../rights.js").Right>}
 */
async function rightFor(step) {
  const { group, resource } = await discoveredTypeOf(step);
  const verb = step.verb === "update" ? "patch" : step.verb;
  return { verb, group, resource, namespace: step.object.namespace };
}

/**
 * Return the number of the newest revision, or the error.
 *
 * @param {string} namespace
 * @returns {Promise<{number: number, error: import("../../api.js").ApiError | null}>}
 */
async function newestRevision(namespace) {
  try {
    const { items } = await request(inspectPath("revisions", namespace), { query: { newest: "1" } });
    return { number: items.at(-1)?.revision ?? 0, error: null };
  } catch (error) {
    return { number: 0, error: /** @type {import("../../api.js").ApiError} */ (error) };
  }
}
