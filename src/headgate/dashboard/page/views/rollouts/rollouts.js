/** The rollouts of Canaries: the step, the evidence as it grows, the decision with its reason, and the actions of a user. */

import { ApiError, inspectPath } from "../../api.js";
import { linkTo, place } from "../../location.js";
import { currentNamespace, namespaceOptions, namespaceWords } from "../../namespace.js";
import { CANARIES, conditionOf, merge, objectPath } from "../../objects.js";
import { Badge } from "../../parts/badge.js";
import { Command, commandText } from "../../parts/command.js";
import { SelectField } from "../../parts/fields.js";
import { Empty, Failed, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { may } from "../../rights.js";
import { count, percent } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useRef, useState } from "../../vendor/preact-hooks.js";
import { actionsOf, stateOf } from "./actions.js";

/** @typedef {import("../../types.js").CanaryObject} CanaryObject */

export function Rollouts() {
  const [, chosen = "", name = ""] = place.value.path;
  const all = currentNamespace(CANARIES.resource, CANARIES.group);
  const namespace = chosen || all;
  /** @type {Record<string, string>} */
  const query = name ? { fieldSelector: `metadata.name=${name}` } : {};
  const reading = useReading(objectPath(CANARIES, namespace), query);
  /** @type {CanaryObject[]} */
  const canaries = reading.value?.items ?? [];
  return html`${name ? html`<p><a href=${linkTo(["rollouts"])}>All rollouts</a></p>` : null}
    <div class="section-head">
      <h1>Rollouts</h1>
      ${name ? null : html`<div class="filters"><${SelectField} name="namespace" label="Namespace" options=${namespaceOptions(canaries.map(({ metadata }) => metadata.namespace))} /></div>`}
    </div>
    <${Read} reading=${reading} what="the Canaries">
      ${() =>
        canaries.length
          ? html`<ul class="cards">${canaries.map((canary) => html`<li key=${canary.metadata.uid}><${Card} canary=${canary} /></li>`)}</ul>`
          : html`<${Empty} title=${name ? "The Canary does not exist" : "There is no Canary"}>
              <p>A Canary gives a new version more requests as long as they show that it is fine.</p>
            <//>`}
    <//>
    <${Command} words=${name ? ["headgate", "rollout", "watch", name, "-n", namespace] : ["kubectl", "get", "canaries", ...namespaceWords(namespace)]} />`;
}

/** @param {{canary: CanaryObject}} properties */
function Card({ canary }) {
  const { metadata, spec, status } = canary;
  const { level, word } = stateOf(canary);
  const promoted = conditionOf(canary, "Promoted") ?? conditionOf(canary, "Accepted");
  return html`<article class="card">
    <div class="card-head">
      <a href=${linkTo(["rollouts", metadata.namespace, metadata.name])}><strong>${metadata.name}</strong></a>
      <span class="quiet">${metadata.namespace}, new version of ${spec.service}</span>
      <${Badge} level=${level}>${word}<//>
      ${status?.stepCount ? html`<span class="quiet">step ${status.step} of ${status.stepCount}, ${status.canaryShare} of the requests</span>` : null}
    </div>
    ${promoted ? html`<p>${promoted.message}</p>` : null}
    <${Backends} canary=${canary} />
    <${Evidence} canary=${canary} />
    <${Actions} canary=${canary} />
  </article>`;
}

/** @param {{canary: CanaryObject}} properties */
function Backends({ canary: { spec, status } }) {
  const backends = status?.backends ?? [];
  const whole = backends.reduce((sum, { weight }) => sum + weight, 0);
  return html`<ul class="bars">${backends.map(
    ({ service, weight, requests, failures }) => html`<li key=${service}>
      <span>${service}${service === spec.analysis?.canary ? " (new)" : ""}</span>
      <meter min="0" max=${whole || 1} value=${weight} aria-hidden="true"></meter>
      <span>${percent(weight, whole)}</span>
      ${
        requests === undefined || requests === null
          ? null
          : html`<span class="bar-note quiet">failed ${count(failures ?? 0)} of ${count(requests)} requests in this step</span>`
      }
    </li>`,
  )}</ul>`;
}

/** @param {{canary: CanaryObject}} properties */
function Evidence({ canary: { metadata, status } }) {
  const criteria = status?.criteria ?? [];
  if (!criteria.length) return null;
  const bar = (/** @type {string} */ text, /** @type {string} */ what) =>
    text ? html`<meter min="0" max="100" value=${Number.parseFloat(text)} aria-label=${what}></meter> ${text}` : "–";
  return html`<div class="table-frame" role="region" aria-label=${`Evidence for ${metadata.name}`} tabindex="0"><table class="evidence">
    <caption>The evidence of this step, in percent of what each decision needs. One violated criterion rolls back; a promotion needs all.</caption>
    <thead><tr><th scope="col">Criterion</th><th scope="col">That it is worse</th><th scope="col">That it is fine</th></tr></thead>
    <tbody>${criteria.map(
      ({ name, rollBack = "", promote = "" }) => html`<tr key=${name}>
        <th scope="row">${name}</th><td>${bar(rollBack, `${name}: worse`)}</td><td>${bar(promote, `${name}: fine`)}</td>
      </tr>`,
    )}</tbody>
  </table></div>`;
}

/**
 * The buttons of a rollout. Each waits for the one before: a second click on Promote would promote the next step too, which the user has not
 * seen.
 *
 * @param {{canary: CanaryObject}} properties
 */
function Actions({ canary }) {
  const [error, setError] = useState(/** @type {ApiError | null} */ (null));
  const [generation, setGeneration] = useState(0); // what the controller must observe; Infinity until the response
  const isWriting = useRef(false); // at once, while the state changes with the next rendering
  const { namespace, name } = canary.metadata;
  if (may({ verb: "patch", group: CANARIES.group, resource: CANARIES.resource, namespace, name }) === false)
    return null;
  const write = async (/** @type {Record<string, unknown>} */ spec) => {
    if (isWriting.current) return;
    isWriting.current = true;
    setGeneration(Number.POSITIVE_INFINITY);
    try {
      const { object } = await merge(objectPath(CANARIES, namespace, name), { spec });
      setGeneration(object.metadata.generation);
      setError(null);
    } catch (failure) {
      setGeneration(0);
      setError(failure instanceof ApiError ? failure : new ApiError(0, String(failure)));
    }
    isWriting.current = false;
  };
  const isBusy = generation > (canary.status?.observedGeneration ?? 0);
  const actions = actionsOf(canary);
  return html`<div class="actions" aria-busy=${isBusy ? "true" : "false"}>
      ${actions.map(
        ({
          word,
          hint,
          patch,
        }) => html`<button type="button" key=${word} disabled=${isBusy} onClick=${() => write(patch())}
          title=${`${hint}. In a terminal: ${commandText(["headgate", "rollout", word, name, "-n", namespace])}`}>${word.charAt(0).toUpperCase() + word.slice(1)}</button>`,
      )}
    </div>
    ${isBusy ? (Number.isFinite(generation) ? html`<${Waiting} />` : html`<p class="quiet" role="status">The action is being written.</p>`) : null}
    ${error ? html`<${Failed} outcome="The action was not written" error=${error} />` : null}`;
}

/** Say why the actions are disabled after one was written, and whether a control plane answers. */
function Waiting() {
  const { error } = useReading(inspectPath("meshstatuses"));
  const isUnanswered = error !== null && error.status !== 401 && error.status !== 403;
  return html`<p class="quiet" role="status">The action is written. Further ones follow when headgate has acted on it.
    ${isUnanswered ? html`${" "}<strong>No control plane answers</strong>: ${error.message} The action stays written until one runs.` : null}
  </p>`;
}
