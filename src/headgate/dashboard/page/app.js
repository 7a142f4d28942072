/** The frame of the page: heading, navigation, notices, and the view at the current place. */

import { lost, outdated } from "./api.js";
import { linkTo, place } from "./location.js";
import { Empty, LostNotice, StaleNotice } from "./parts/states.js";
import { oldestStale } from "./readings.js";
import { mayInShown } from "./rights.js";
import { html, render } from "./vendor/htm-preact.js";
import { useEffect, useRef } from "./vendor/preact-hooks.js";
import { VIEWS } from "./views/views.js";

function Navigation() {
  const [current = ""] = place.value.path;
  const offered = VIEWS.filter(({ title, needs }) => title && (!needs || mayInShown(needs)));
  return html`<nav aria-label="Views">
    <ul>
      ${offered.map(
        ({ id, title }) => html`<li key=${id}>
          <a href=${linkTo(id ? [id] : [])} aria-current=${id === current ? "page" : undefined}>${title}</a>
        </li>`,
      )}
    </ul>
  </nav>`;
}

function Notices() {
  const stale = oldestStale.value;
  return html`<div class="notices">
    ${
      outdated.value
        ? html`<div class="notice neutral" role="status">
          headgate has a newer version of this page.${" "}
          <button type="button" onClick=${() => location.reload()}>Reload</button>
        </div>`
        : null
    }
    ${lost.value ? html`<${LostNotice} />` : null}
    ${stale ? html`<${StaleNotice} reading=${stale} />` : null}
  </div>`;
}

function Main() {
  const [id = ""] = place.value.path;
  const view = VIEWS.find((candidate) => candidate.id === id);
  const main = useRef(/** @type {HTMLElement | null} */ (null));
  const isFirst = useRef(true);
  useEffect(() => {
    document.title = view?.title ? `${view.title} · headgate` : "headgate";
    if (!isFirst.current) main.current?.focus();
    isFirst.current = false;
  }, [id]);
  return html`<main id="main" tabindex="-1" ref=${main}>
    ${
      view
        ? html`<${view.component} key=${id} />`
        : html`<${Empty} title="This page has no such view"><p><a href="#/">Go to the overview</a></p><//>`
    }
  </main>`;
}

function App() {
  const { context = "" } = document.documentElement.dataset;
  return html`<a class="skip" href="#main" onClick=${focusMain}>Skip to the content</a>
    <header class="frame">
      <a class="brand" href="#/">headgate</a>
      ${context ? html`<span class="context" title="The context of the kubeconfig">${context}</span>` : null}
      <${Navigation} />
    </header>
    <${Notices} />
    <${Main} />`;
}

/** @param {Event} event */
function focusMain(event) {
  event.preventDefault(); // the fragment of the URL is the place
  document.getElementById("main")?.focus();
}

const root = document.getElementById("app");
if (root) {
  root.textContent = "";
  render(html`<${App} />`, root);
}
