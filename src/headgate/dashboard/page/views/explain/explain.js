/** Explain a request: a form for it, and the decision that its proxies take, with the routes that did not match and why. */

import { place, setQuery } from "../../location.js";
import { Command } from "../../parts/command.js";
import { MissingRules } from "../../parts/missing_rule.js";
import { Empty, Failed, Loading } from "../../parts/states.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useMemo } from "../../vendor/preact-hooks.js";
import { useNewestRevision } from "../service/changes.js";
import { Decision, missingRules } from "./decision.js";
import { Explaining } from "./explaining.js";
import { Form } from "./form.js";
import { commandOf, questionOf } from "./question.js";

/** @typedef {import("./question.js").Question} Question */

export function Explain() {
  const question = questionOf(place.value.query);
  const id = JSON.stringify(question);
  const explaining = useMemo(() => new Explaining(question), [id]);
  useEffect(() => {
    if (question.url) explaining.explain();
    return () => explaining.end();
  }, [explaining]);
  const explain = (/** @type {Question} */ next) => {
    setQuery(/** @type {any} */ (next));
    // The mesh may have changed since: the same request is explained again.
    if (JSON.stringify(questionOf(place.value.query)) === id) explaining.request();
  };
  return html`<h1>Explain a request</h1>
    <${Form} key=${id} question=${question} onExplain=${explain} />
    ${question.url ? html`<${Answered} key=${id} explaining=${explaining} />` : html`<${Invitation} />`}`;
}

/**
 * Show the decision, and the rules that are missing.
 *
 * @param {{explaining: Explaining}} properties
 */
function Answered({ explaining }) {
  const { question, namespace } = explaining;
  const { answer, isBusy, isRequested, write } = explaining.state.value;
  const status = answer?.status;
  // A past revision says nothing about the rules that are missing now.
  const offers = status && !question.at ? missingRules([...status.backends, ...status.mirrors]) : [];
  const first = offers[0]?.[0]?.at(-1).metadata.namespace ?? "";
  useEffect(() => {
    if (write === "none") explaining.watch(first);
  }, [first, write]);
  const note = answer ? noteOf(explaining.state.value) : "";
  return html`${namespace.value ? html`<${RevisionWatch} key=${namespace.value} explaining=${explaining} />` : null}
    <section aria-live="polite" aria-label="The decision" aria-busy=${isBusy ? "true" : "false"}
      class=${write !== "none" || isRequested ? "stale" : ""}>
      ${note ? html`<p class="quiet">${note}</p>` : null}
      ${
        !answer
          ? html`<${Loading} what="the decision" />`
          : answer.status
            ? html`<${Decision} status=${answer.status} />`
            : html`<${Failed} outcome="The request was not explained" error=${answer.error} />`
      }
    </section>
    <${MissingRules} offers=${offers} revision=${explaining.revision.value ?? 0} onBegin=${(/** @type {string} */ of) => explaining.begin(of)}
      onWrite=${() => explaining.finish()} />
    <${Command} words=${commandOf(question)} />`;
}

/**
 * Return why the decision may be out of date, or an empty text.
 *
 * @param {import("./explaining.js").State} state
 */
function noteOf({ isRequested, write }) {
  if (isRequested) return "Explaining again …";
  if (write === "pending")
    return "This is the decision before the write. The request is explained again as soon as the mesh has the change.";
  if (write === "unseen")
    return "The page can't see whether the mesh has the write, so this may be the decision before it. Choose Explain to explain the request again.";
  return "";
}

/**
 * Report each new revision of the namespace that has the rules.
 *
 * @param {{explaining: Explaining}} properties
 */
function RevisionWatch({ explaining }) {
  const revision = useNewestRevision(explaining.namespace.value);
  useEffect(() => explaining.revise(revision), [revision]);
  return null;
}

function Invitation() {
  return html`<${Empty} title="Where does a request go, and why?">
    <p>Write a URL as a client of the mesh calls it, such as http://website:8080/. The answer names the route that decides, the backends with
    their shares, the access rules at the pods, and each route that does not match, with its first unmet condition.</p>
  <//>`;
}
