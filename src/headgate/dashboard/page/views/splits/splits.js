/** The TrafficSplits: their weights, what the proxies have of them, and an editor that shows the effect before it writes. */

import { go, linkTo, place } from "../../location.js";
import { currentNamespace, namespaceOptions, namespaceWords } from "../../namespace.js";
import { conditionOf, objectPath, SPLITS } from "../../objects.js";
import { Badge } from "../../parts/badge.js";
import { Command } from "../../parts/command.js";
import { SearchField, SelectField } from "../../parts/fields.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { may } from "../../rights.js";
import { percent } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { Editor } from "./editor.js";

/** @typedef {import("../../types.js").SplitObject} SplitObject */

export function Splits() {
  const [, namespace = "", name = ""] = place.value.path;
  return name ? html`<${OneSplit} namespace=${namespace} name=${name} />` : html`<${AllSplits} />`;
}

function AllSplits() {
  const namespace = currentNamespace(SPLITS.resource, SPLITS.group);
  const reading = useReading(objectPath(SPLITS, namespace));
  /** @type {SplitObject[]} */
  const splits = reading.value?.items ?? [];
  const search = (place.value.query.search ?? "").trim().toLowerCase();
  const shown = splits.filter(({ metadata, spec }) =>
    `${metadata.namespace}/${metadata.name} ${spec.service}`.toLowerCase().includes(search),
  );
  return html`<div class="section-head">
      <h1>Splits</h1>
      <div class="filters" role="search" aria-label="Filter the splits">
        <${SearchField} name="search" label="Search" />
        <${SelectField} name="namespace" label="Namespace" options=${namespaceOptions(splits.map(({ metadata }) => metadata.namespace))} />
      </div>
    </div>
    <${Read} reading=${reading} what="the TrafficSplits">
      ${() =>
        shown.length
          ? html`<ul class="cards">${shown.map((split) => html`<li key=${split.metadata.uid}><${Card} split=${split} /></li>`)}</ul>`
          : html`<${Empty} title=${splits.length ? "No split matches the search" : "There is no TrafficSplit"} />`}
    <//>
    <${Command} words=${["kubectl", "get", "trafficsplits", ...namespaceWords(namespace)]} />`;
}

/** @param {{namespace: string, name: string}} properties */
function OneSplit({ namespace, name }) {
  const reading = useReading(objectPath(SPLITS, namespace), { fieldSelector: `metadata.name=${name}` });
  /** @type {SplitObject | undefined} */
  const split = reading.value?.items[0];
  return html`<p><a href=${linkTo(["splits"])}>All splits</a></p>
    <h1>TrafficSplit ${namespace}/${name}</h1>
    <${Read} reading=${reading} what="the TrafficSplit">
      ${() => (split ? html`<${Card} split=${split} isOpen=${true} />` : html`<${Empty} title="It does not exist" />`)}
    <//>`;
}

/** @param {{split: SplitObject, isOpen?: boolean}} properties */
function Card({ split, isOpen = false }) {
  const { metadata, spec } = split;
  const { namespace, name } = metadata;
  const owner = metadata.ownerReferences?.find(({ kind }) => kind === "Canary");
  const mayWrite = may({ verb: "patch", group: SPLITS.group, resource: SPLITS.resource, namespace, name });
  return html`<article class="card">
    <div class="card-head">
      <strong>${name}</strong><span class="quiet">${namespace}, divides the requests to ${spec.service}${matchesText(split)}</span>
      <${Progress} split=${split} />
    </div>
    <${Bars} split=${split} />
    ${
      owner
        ? html`<p class="quiet">Its weights belong to the <a href=${linkTo(["rollouts", namespace, owner.name])}>Canary ${owner.name}</a>.</p>`
        : mayWrite === false
          ? html`<p class="quiet">You may not change this TrafficSplit.</p>`
          : isOpen
            ? html`<${Editor} key=${metadata.uid} split=${split} />`
            : html`<p><button type="button" onClick=${() => go(["splits", namespace, name])}>Change the weights of ${name}</button></p>`
    }
    <p><a href=${linkTo(["yaml", `TrafficSplit.${SPLITS.group}`, namespace, name])}>YAML of ${name}</a></p>
  </article>`;
}

/** @param {{split: SplitObject}} properties */
function Progress({ split }) {
  const accepted = conditionOf(split, "Accepted");
  const programmed = conditionOf(split, "Programmed");
  if (accepted?.status === "False") return html`<${Badge} level="bad">${accepted.message}<//>`;
  if (programmed?.status === "True") return html`<${Badge} level="good">${programmed.message || "on every proxy"}<//>`;
  return html`<${Badge} level="warning">${programmed?.message || "waiting for the proxies"}<//>`;
}

/** @param {{split: SplitObject}} properties */
function Bars({ split }) {
  const { backends } = split.spec;
  const whole = backends.reduce((sum, { weight }) => sum + weight, 0);
  return html`<ul class="bars">${backends.map(
    ({ service, weight }) => html`<li key=${service}>
      <span>${service}</span><meter min="0" max=${whole || 1} value=${weight} aria-hidden="true"></meter><span>${percent(weight, whole)}</span>
    </li>`,
  )}</ul>`;
}

/** @param {SplitObject} split */
function matchesText({ spec }) {
  const names = (spec.matches ?? []).map(({ name }) => name);
  return names.length ? ` that match ${names.join(" or ")}` : "";
}
