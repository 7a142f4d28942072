/** Tabs whose selection is in the URL. */

import { place, setQuery } from "../location.js";
import { html } from "../vendor/htm-preact.js";

/** @typedef {{id: string, title: string, content: () => import("../vendor/preact.js").ComponentChildren}} Tab */

/** @param {{name: string, label: string, tabs: Tab[]}} properties `name` is that of the query in the URL */
export function Tabs({ name, label, tabs }) {
  const index = Math.max(
    0,
    tabs.findIndex(({ id }) => id === place.value.query[name]),
  );
  const selected = tabs[index];
  if (!selected) return null;
  const select = (/** @type {number} */ to) => {
    const tab = tabs[(to + tabs.length) % tabs.length];
    if (!tab) return;
    setQuery({ [name]: tab.id });
    document.getElementById(`tab-${name}-${tab.id}`)?.focus();
  };
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const target = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: tabs.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    select(target);
  };
  return html`<div class="tabs">
    <div role="tablist" aria-label=${label} onKeyDown=${onKeyDown}>
      ${tabs.map(
        (tab, number) => html`<button
          type="button"
          role="tab"
          id=${`tab-${name}-${tab.id}`}
          key=${tab.id}
          aria-selected=${number === index ? "true" : "false"}
          aria-controls=${`panel-${name}`}
          tabindex=${number === index ? 0 : -1}
          onClick=${() => select(number)}
        >${tab.title}</button>`,
      )}
    </div>
    <div role="tabpanel" id=${`panel-${name}`} aria-labelledby=${`tab-${name}-${selected.id}`}>${selected.content()}</div>
  </div>`;
}
