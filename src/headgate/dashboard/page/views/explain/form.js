/** The form of a request. It keeps what is typed until the request is explained. */

import { inspectPath } from "../../api.js";
import { useReading } from "../../readings.js";
import { html } from "../../vendor/htm-preact.js";
import { useState } from "../../vendor/preact-hooks.js";
import { callerFault, METHODS } from "./question.js";

/** @typedef {import("./question.js").Question} Question */

/** @param {{question: Question, onExplain: (question: Question) => void}} properties */
export function Form({ question, onExplain }) {
  const [draft, setDraft] = useState(question);
  const graph = useReading(`${inspectPath("trafficgraphs")}/workloads`, { window: "30s" });
  /** @type {import("../../types.js").GraphNode[]} */
  const nodes = graph.value?.status?.nodes ?? [];
  const workloads = nodes.filter(
    ({ kind, namespace }) => kind !== "Outside" && kind !== "Service" && namespace === draft.in,
  );
  const set = (/** @type {keyof Question} */ name) => (/** @type {Event} */ event) =>
    setDraft({ ...draft, [name]: /** @type {HTMLInputElement} */ (event.target).value });
  const setCaller = (/** @type {Event} */ event) => {
    const field = /** @type {HTMLInputElement} */ (event.target);
    field.setCustomValidity(callerFault(field.value.trim()));
    set("from")(event);
  };
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    onExplain({ ...draft, url: draft.url.trim(), from: draft.from.trim() });
  };
  return html`<form class="question" onSubmit=${submit} aria-label="The request">
    <label class="field method"><span>Method</span>
      <select value=${draft.method || "GET"} onChange=${set("method")}>
        ${METHODS.map((method) => html`<option key=${method} value=${method} selected=${method === (draft.method || "GET")}>${method}</option>`)}
      </select>
    </label>
    <label class="field url"><span>URL</span>
      <input type="text" inputmode="url" required value=${draft.url} onInput=${set("url")} placeholder="http://website:8080/"
        autocomplete="off" spellcheck="false" />
    </label>
    <label class="field"><span>From (empty: the gateway, if any)</span>
      <input type="text" list="callers" value=${draft.from} onInput=${setCaller} placeholder="Deployment/client"
        autocomplete="off" spellcheck="false" />
      <datalist id="callers">${workloads.map(({ kind, name }) => html`<option value=${`${kind}/${name}`} />`)}</datalist>
    </label>
    <label class="field"><span>In the namespace</span>
      <input type="text" required value=${draft.in} onInput=${set("in")} autocomplete="off" spellcheck="false" />
    </label>
    <label class="field"><span>Through the Gateway</span>
      <input type="text" value=${draft.gateway} onInput=${set("gateway")} autocomplete="off" spellcheck="false" />
    </label>
    <label class="field"><span>At the revision (empty: now)</span>
      <input type="text" inputmode="numeric" pattern="[0-9]*" value=${draft.at} onInput=${set("at")} autocomplete="off" />
    </label>
    <label class="field headers"><span>Headers, one on each line</span>
      <textarea rows="2" value=${draft.headers} onInput=${set("headers")} placeholder="x-user: anna" spellcheck="false"></textarea>
    </label>
    <button type="submit" class="primary">Explain</button>
  </form>`;
}
