/** The access rules that denied callers need, as the API server generates them: their YAML, their effect, the write, and the way back. */

import { ApiError, request } from "../api.js";
import { differences } from "../differences.js";
import { create, objectPath, remove, typeOf } from "../objects.js";
import { may } from "../rights.js";
import { refName } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { useState } from "../vendor/preact-hooks.js";
import { toYaml } from "../yaml.js";
import { Command } from "./command.js";
import { ObjectLink } from "./object_link.js";
import { PlanView, usePlan } from "./plan.js";
import { Failed } from "./states.js";

/**
 * @typedef {any[]} RuleObjects the objects of a rule in the order to create them; the last one is the rule
 * @typedef {RuleObjects[]} Variants the rule in one or more variants, the narrowest first
 */

/**
 * Offer each missing rule once. An open draft and a written rule stay, with the way back, when the answer no longer has them.
 *
 * @param {{offers: Variants[], revision?: number, onDrafts?: (hasDrafts: boolean) => void, onBegin?: (namespace: string) => void,
 *   onWrite?: () => void}} properties `revision`: the newest one, after which effects are planned again; `onDrafts` is called when drafts open
 *   and close, `onBegin` before a rule is written or deleted in a namespace, and `onWrite` after it
 */
export function MissingRules({ offers, revision = 0, onDrafts = () => {}, onBegin = () => {}, onWrite = () => {} }) {
  const [drafts, setDrafts] = useState(/** @type {Map<string, Variants>} */ (new Map()));
  const change = (/** @type {Map<string, Variants>} */ next) => {
    setDrafts(next);
    onDrafts(next.size > 0);
  };
  const close = (/** @type {string} */ id) => change(new Map([...drafts].filter(([other]) => other !== id)));
  const closed = [...new Map(offers.map((variants) => [idOf(variants), variants]))].filter(([id]) => !drafts.has(id));
  return html`${closed.map(([id, variants]) => html`<${Offer} key=${id} objects=${variants[0]} onOpen=${() => change(new Map([...drafts, [id, variants]]))} />`)}
    ${[...drafts].map(([id, variants]) => html`<${Draft} key=${id} variants=${variants} revision=${revision} onClose=${() => close(id)} onBegin=${onBegin} onWrite=${onWrite} />`)}`;
}

/**
 * Return the name of a rule, which all variants have.
 *
 * @param {Variants} variants
 */
function idOf([objects = []]) {
  return refName(refOf(objects.at(-1)));
}

/** @param {{objects: RuleObjects, onOpen: () => void}} properties */
function Offer({ objects, onOpen }) {
  const rights = objects.map(mayCreate);
  if (rights.includes(false))
    return html`<p class="quiet">You may not create the ${objects.at(-1).kind} that is missing.</p>`;
  if (rights.includes(undefined)) return null;
  return html`<div>
    <p><button type="button" onClick=${onOpen}>Write the missing ${objects.at(-1).kind}</button></p>
    <p class="quiet">${scopeOf(objects)}</p>
  </div>`;
}

/**
 * Return what a rule allows, as a sentence.
 *
 * @param {RuleObjects} objects
 */
function scopeOf(objects) {
  const { destination } = objects.at(-1).spec;
  return `It allows ${callsOf(objects)} of this caller to port ${destination.port} of ServiceAccount ${destination.name}.`;
}

/** @param {RuleObjects} objects */
function callsOf(objects) {
  const [rule] = objects.at(-1).spec.rules ?? [];
  if (rule?.kind === "TCPRoute") return "all connections";
  const { methods = [], pathRegex = "" } = objects.length > 1 ? (objects[0].spec.matches?.[0] ?? {}) : {};
  if (pathRegex) return `the requests ${methods.join(", ")} ${pathRegex}`;
  if (rule?.matches) return `the requests of match ${rule.matches.join(", ")} of HTTPRouteGroup ${rule.name}`;
  return "all requests, with any method and path,";
}

/** @param {any} object */
function mayCreate(object) {
  const { group, resource } = typeOf(object);
  return may({ verb: "create", group, resource, namespace: object.metadata.namespace });
}

/** @param {{variants: Variants, revision: number, onClose: () => void, onBegin: (namespace: string) => void, onWrite: () => void}} properties */
function Draft({ variants, revision, onClose, onBegin, onWrite }) {
  const [chosen, setChosen] = useState(0);
  const [written, setWritten] = useState(/** @type {{rule: any, objects: RuleObjects} | null} */ (null));
  const objects = written?.objects ?? variants[chosen] ?? [];
  const plan = usePlan(written ? null : { objects }, revision);
  const [isBusy, setBusy] = useState(false);
  const [failure, setFailure] = useState(/** @type {{outcome: string, error: ApiError} | null} */ (null));
  const act = async (/** @type {string} */ outcome, /** @type {() => Promise<typeof written>} */ work) => {
    setBusy(true);
    setFailure(null);
    onBegin(objects.at(-1).metadata.namespace);
    try {
      setWritten(await work());
      onWrite();
    } catch (error) {
      setFailure({ outcome, error: error instanceof ApiError ? error : new ApiError(0, String(error)) });
    }
    setBusy(false);
  };
  const apply = () => act("The rule was not written", async () => ({ rule: await createdAll(objects), objects }));
  const undo = () => act("The rule was not deleted", () => remove(written?.rule).then(() => null));
  return html`<div class="missing-rule">
    ${variants.length > 1 && !written ? html`<${Scope} variants=${variants} chosen=${chosen} isBusy=${isBusy} onChoose=${setChosen} />` : null}
    <pre class="yaml-text" tabindex="0" role="region" aria-label="YAML of the missing rule">${objects.map(toYaml).join("---\n")}</pre>
    ${
      written
        ? html`<p role="status">Written: <${ObjectLink} object=${refOf(written.rule)} />. Proxies receive it now.</p>`
        : html`<p class="quiet">${scopeOf(objects)}</p>
          <${PlanView} answer=${plan} />
          <div><p class="quiet">The same, with this text in a file:</p><${Command} words=${["kubectl", "apply", "-f", `${objects.at(-1).metadata.name}.yaml`]} /></div>`
    }
    <div class="actions">
      ${
        written
          ? html`<button type="button" disabled=${isBusy} onClick=${undo}>Undo: delete the ${written.rule.kind}</button>`
          : html`<button type="button" class="primary" disabled=${isBusy || !(plan.status || plan.error)} onClick=${apply}>Apply</button>
            <button type="button" disabled=${isBusy} onClick=${onClose}>Discard</button>`
      }
    </div>
    ${failure ? html`<${Failed} ...${failure} />` : null}
  </div>`;
}

/** @param {{variants: Variants, chosen: number, isBusy: boolean, onChoose: (variant: number) => void}} properties */
function Scope({ variants, chosen, isBusy, onChoose }) {
  const name = `scope-${idOf(variants)}`;
  return html`<fieldset disabled=${isBusy}>
    <legend>The rule allows this caller</legend>
    ${["only this method and path", "all requests"].map(
      (text, index) =>
        html`<label key=${text}><input type="radio" name=${name} checked=${index === chosen} onChange=${() => onChoose(index)} />${text}</label>`,
    )}
  </fieldset>`;
}

/**
 * Create a rule and the routes that it needs, and return the rule. A route that exists with an equal spec is used. If a write fails, the
 * objects that this created are deleted again. Throws ApiError.
 *
 * @param {RuleObjects} objects
 */
async function createdAll(objects) {
  /** @type {any[]} */
  const created = [];
  try {
    for (const object of objects) {
      const isRoute = object !== objects.at(-1);
      const answer = await create(object).catch(async (error) => {
        if (isRoute && error.status === 409 && (await exists(object))) return null;
        throw error;
      });
      if (answer) created.push({ ...answer, apiVersion: object.apiVersion, kind: object.kind });
    }
  } catch (error) {
    await Promise.allSettled(created.map(remove));
    throw error;
  }
  return created.at(-1);
}

/**
 * Return whether the API has an object of this name with an equal spec. Another draft, or the one before an undo, may have created it.
 *
 * @param {any} object
 */
async function exists(object) {
  const { namespace, name } = object.metadata;
  const present = await request(objectPath(typeOf(object), namespace, name)).catch(() => null);
  return differences(present?.spec, object.spec).length === 0;
}

/** @param {any} object */
function refOf({ apiVersion, kind, metadata: { namespace, name } }) {
  return { group: apiVersion.split("/", 1)[0], kind, namespace, name };
}
