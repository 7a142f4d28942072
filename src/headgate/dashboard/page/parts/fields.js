/** Fields of a filter bar; their values are in the URL. */

import { place, setQuery } from "../location.js";
import { html } from "../vendor/htm-preact.js";

/** @param {{name: string, label: string}} properties `name` is that of the query in the URL */
export function SearchField({ name, label }) {
  const onInput = (/** @type {Event} */ event) =>
    setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).value });
  return html`<label class="field">
    <span>${label}</span>
    <input type="search" value=${place.value.query[name] ?? ""} onInput=${onInput} autocomplete="off" spellcheck="false" />
  </label>`;
}

/** @param {{name: string, label: string, options: [value: string, title: string][], initial?: string}} properties */
export function SelectField({ name, label, options, initial = "" }) {
  const value = place.value.query[name] ?? initial;
  const shown = options.some(([id]) => id === value) ? options : [...options, [value, value]];
  const onChange = (/** @type {Event} */ event) => {
    const chosen = /** @type {HTMLSelectElement} */ (event.target).value;
    setQuery({ [name]: chosen === initial ? "" : chosen });
  };
  return html`<label class="field">
    <span>${label}</span>
    <select value=${value} onChange=${onChange}>
      ${shown.map(([id, title]) => html`<option key=${id} value=${id} selected=${id === value}>${title}</option>`)}
    </select>
  </label>`;
}

/** @param {{name: string, label: string}} properties */
export function CheckField({ name, label }) {
  const onChange = (/** @type {Event} */ event) =>
    setQuery({ [name]: /** @type {HTMLInputElement} */ (event.target).checked ? "true" : "" });
  return html`<label class="field check">
    <input type="checkbox" checked=${place.value.query[name] === "true"} onChange=${onChange} /><span>${label}</span>
  </label>`;
}
