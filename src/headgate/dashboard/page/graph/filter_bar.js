/**
 * The filter of the graph: search, namespaces, kinds, labels, failures, and the neighbors of a node.
 * @import { Filter } from "./types.js"
 */

import { html } from "../vendor/htm-preact.js";
import { useMemo } from "../vendor/preact-hooks.js";
import { choices, isEmpty, NO_FILTER } from "./filter.js";

/** @type {number[]} */
const HOPS = [1, 2, 3];

/**
 * @typedef {object} Properties
 * @property {import("../types.js").TrafficGraph | null} graph
 * @property {Filter} filter
 * @property {(filter: Filter) => void} onChange
 * @property {(keyof Filter)[]} [without] parts of the filter that the view has elsewhere
 */

/** @param {Properties} properties */
export function FilterBar({ graph, filter, onChange, without = [] }) {
  const { namespaces, kinds } = useMemo(() => (graph ? choices(graph.status) : { namespaces: [], kinds: [] }), [graph]);
  const change = (/** @type {Partial<Filter>} */ part) => onChange({ ...filter, ...part });
  const text = (
    /** @type {"search" | "labels"} */ name,
    /** @type {string} */ label,
    /** @type {string} */ placeholder,
  ) =>
    html`<${TextField} label=${label} value=${filter[name]} placeholder=${placeholder} onInput=${(/** @type {string} */ value) => change({ [name]: value })} />`;
  const choice = (
    /** @type {"namespaces" | "kinds"} */ name,
    /** @type {string} */ label,
    /** @type {string[]} */ values,
  ) =>
    html`<${Choice} label=${label} values=${values} chosen=${filter[name]} onChange=${(/** @type {string[]} */ chosen) => change({ [name]: chosen })} />`;
  const has = (/** @type {keyof Filter} */ name) => !without.includes(name);
  return html`<form class="filters filter-bar" role="search" aria-label="Filter of the graph" onSubmit=${prevented}>
    ${has("search") && text("search", "Search", "name or namespace")}
    ${has("labels") && text("labels", "Labels", "app=web,tier!=data")}
    ${has("namespaces") && choice("namespaces", "Namespaces", namespaces)}
    ${has("kinds") && choice("kinds", "Kinds", kinds)}
    ${has("failing") && html`<${Failing} filter=${filter} change=${change} />`}
    ${filter.around ? html`<${Neighbors} filter=${filter} change=${change} />` : null}
    ${isEmpty(filter) ? null : html`<button type="button" onClick=${() => onChange({ ...NO_FILTER })}>Clear</button>`}
  </form>`;
}

/** @param {{filter: Filter, change: (part: Partial<Filter>) => void}} properties */
function Failing({ filter, change }) {
  return html`<label class="field check">
    <input type="checkbox" checked=${filter.failing} onChange=${(/** @type {any} */ event) => change({ failing: event.target.checked })} />
    Only failing
  </label>`;
}

/** @param {Event} event */
function prevented(event) {
  event.preventDefault();
}

/** @param {{label: string, value: string, placeholder: string, onInput: (value: string) => void}} properties */
function TextField({ label, value, placeholder, onInput }) {
  return html`<label class="field">
    ${label}
    <input type="search" autocomplete="off" spellcheck=${false} value=${value} placeholder=${placeholder}
      onInput=${(/** @type {any} */ event) => onInput(event.target.value)} />
  </label>`;
}

/** @param {{label: string, values: string[], chosen: string[], onChange: (chosen: string[]) => void}} properties */
function Choice({ label, values, chosen, onChange }) {
  const offered = [...new Set([...values, ...chosen])].sort();
  if (offered.length < 2) return null;
  const toggle = (/** @type {string} */ value) =>
    onChange(chosen.includes(value) ? chosen.filter((other) => other !== value) : [...chosen, value].sort());
  return html`<details class="choice">
    <summary>${label}: ${chosen.length === 0 ? "all" : chosen.length === 1 ? chosen[0] : `${chosen.length} of ${offered.length}`}</summary>
    <fieldset>
      <legend class="unseen">${label}</legend>
      ${offered.map(
        (value) => html`<label key=${value}>
          <input type="checkbox" checked=${chosen.includes(value)} onChange=${() => toggle(value)} />${value}
        </label>`,
      )}
    </fieldset>
  </details>`;
}

/** @param {{filter: Filter, change: (part: Partial<Filter>) => void}} properties */
function Neighbors({ filter, change }) {
  const name = filter.around.split("/").at(-1);
  return html`<span class="neighbors">
    <label>
      Neighbors of ${name}
      <select value=${String(filter.hops)} onChange=${(/** @type {any} */ event) => change({ hops: Number(event.target.value) })}>
        ${HOPS.map((hops) => html`<option key=${hops} value=${String(hops)}>${hops === 1 ? "1 hop" : `${hops} hops`}</option>`)}
      </select>
    </label>
    <button type="button" aria-label="Show all nodes" onClick=${() => change({ around: "", hops: 1 })}>×</button>
  </span>`;
}
