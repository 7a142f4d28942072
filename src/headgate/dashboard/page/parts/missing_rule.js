/** The access rule that a denied caller needs, as the API server generates it: its YAML, its effect, the write, and the way back. */

import { ApiError, answered, INSPECT } from "../api.js";
import { create, remove, typeOf } from "../objects.js";
import { may } from "../rights.js";
import { html } from "../vendor/htm-preact.js";
import { useEffect, useState } from "../vendor/preact-hooks.js";
import { toYaml } from "../yaml.js";
import { Command } from "./command.js";
import { ObjectLink } from "./object_link.js";
import { PlanView } from "./plan.js";
import { Failed } from "./states.js";

/** @typedef {import("./plan.js").PlanAnswer} PlanAnswer */

/** @param {{objects: any[]}} properties in the order to create them; the last one is the rule */
export function MissingRule({ objects }) {
  const [isOpen, setOpen] = useState(false);
  if (!objects.every(mayCreate)) return null;
  if (!isOpen)
    return html`<p><button type="button" onClick=${() => setOpen(true)}>Write the missing ${objects.at(-1).kind}</button></p>`;
  return html`<${Draft} objects=${objects} onClose=${() => setOpen(false)} />`;
}

/** @param {any} object */
function mayCreate(object) {
  const { group, resource } = typeOf(object);
  return may({ verb: "create", group, resource, namespace: object.metadata.namespace }) === true;
}

/** @param {{objects: any[], onClose: () => void}} properties */
function Draft({ objects, onClose }) {
  const plan = usePlan(objects);
  const [written, setWritten] = useState(/** @type {any} */ (null));
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState(/** @type {{outcome: string, error: ApiError} | null} */ (null));
  const act = async (/** @type {string} */ outcome, /** @type {() => Promise<any>} */ work) => {
    setBusy(true);
    setFailure(null);
    try {
      setWritten(await work());
    } catch (error) {
      setFailure({ outcome, error: error instanceof ApiError ? error : new ApiError(0, String(error)) });
    }
    setBusy(false);
  };
  const apply = () => act("The rule was not written", () => createdAll(objects));
  const undo = () => act("The rule was not deleted", () => remove(written).then(() => null));
  return html`<div class="missing-rule">
    <pre class="yaml-text" tabindex="0" role="region" aria-label="YAML of the missing rule">${objects.map(toYaml).join("---\n")}</pre>
    ${
      written
        ? html`<p role="status">Written: <${ObjectLink} object=${refOf(written)} />. Proxies receive it now.</p>`
        : html`<${PlanView} answer=${plan} />
          <div><p class="quiet">The same, with this text in a file:</p><${Command} words=${["kubectl", "apply", "-f", `${objects.at(-1).metadata.name}.yaml`]} /></div>`
    }
    <div class="actions">
      ${
        written
          ? html`<button type="button" disabled=${isBusy} onClick=${undo}>Undo: delete the ${written.kind}</button>`
          : html`<button type="button" class="primary" disabled=${isBusy || !(plan.status || plan.error)} onClick=${apply}>Apply</button>
            <button type="button" disabled=${isBusy} onClick=${onClose}>Discard</button>`
      }
    </div>
    ${failure ? html`<${Failed} ...${failure} />` : null}
  </div>`;
}

/**
 * Create objects in their order, and return the last one. If one fails, those before it are deleted again. Throws ApiError.
 *
 * @param {any[]} objects
 */
async function createdAll(objects) {
  /** @type {any[]} */
  const created = [];
  try {
    for (const object of objects)
      created.push({ ...(await create(object)), apiVersion: object.apiVersion, kind: object.kind });
  } catch (error) {
    await Promise.allSettled(created.map(remove));
    throw error;
  }
  return created.at(-1);
}

/** @param {any} object */
function refOf({ apiVersion, kind, metadata: { namespace, name } }) {
  return { group: apiVersion.split("/", 1)[0], kind, namespace, name };
}

/**
 * Return the plan of new objects.
 *
 * @param {any[]} objects
 * @returns {PlanAnswer}
 */
function usePlan(objects) {
  const [answer, setAnswer] = useState(/** @type {PlanAnswer} */ ({ status: null, error: null }));
  useEffect(() => {
    const abort = new AbortController();
    const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Plan", spec: { objects } };
    answered(`${INSPECT}/plans`, { method: "POST", body, signal: abort.signal }).then(
      (next) => !abort.signal.aborted && setAnswer(next),
    );
    return () => abort.abort();
  }, [JSON.stringify(objects)]);
  return answer;
}
