/** Explain a request: a form for it, and the decision that its proxies take, with the routes that did not match and why. */

import { answered, inspectPath } from "../../api.js";
import { place, setQuery } from "../../location.js";
import { Command } from "../../parts/command.js";
import { idOf, MissingRules } from "../../parts/missing_rule.js";
import { Empty, Failed, Loading } from "../../parts/states.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useRef, useState } from "../../vendor/preact-hooks.js";
import { useNewestRevision } from "../service/changes.js";
import { Decision, missingRules } from "./decision.js";
import { Form } from "./form.js";
import { commandOf, questionOf, specOf } from "./question.js";

/**
 * @typedef {import("./question.js").Question} Question
 * @typedef {import("../../types.js").ExplanationStatus} ExplanationStatus
 * @typedef {{status: ExplanationStatus | null, error: import("../../api.js").ApiError | null}} Answer
 */

export function Explain() {
  const question = questionOf(place.value.query);
  const [answer, setAnswer] = useState(/** @type {Answer | null} */ (null));
  const [submits, setSubmits] = useState(0); // the mesh may have changed since: the same request is explained again
  const id = JSON.stringify(question);
  const explain = (/** @type {Question} */ next) => {
    setQuery(/** @type {any} */ (next));
    setSubmits(submits + 1);
  };
  const explainedId = useRef("");
  const again = () => setSubmits((number) => number + 1);
  useEffect(() => {
    if (!question.url) return setAnswer(null);
    const abort = new AbortController();
    if (explainedId.current !== id) setAnswer(null); // the decision about the same request stays until the next one
    explainedId.current = id;
    explained(question, abort.signal).then((found) => !abort.signal.aborted && setAnswer(found));
    return () => abort.abort();
  }, [id, submits]);
  return html`<h1>Explain a request</h1>
    <${Form} key=${id} question=${question} onExplain=${explain} />
    ${question.url ? html`<${Answered} key=${id} question=${question} answer=${answer} onChange=${again} />` : html`<${Invitation} />`}`;
}

/**
 * Show the decision, and the rules that are missing. After a write of one, the decision is old until the mesh has the rule.
 *
 * @param {{question: Question, answer: Answer | null, onChange: () => void}} properties `onChange` is called when the mesh has changed
 */
function Answered({ question, answer, onChange }) {
  const status = answer?.status;
  // A past revision says nothing about the rules that are missing now.
  const offers = status && !question.at ? missingRules([...status.backends, ...status.mirrors]) : [];
  const [watched, setWatched] = useState("");
  const [write, setWrite] = useState(/** @type {import("../../parts/missing_rule.js").Write | null} */ (null));
  // The name of a rule that exists is not offered.
  const isOld = write !== null && offers.some((variants) => idOf(variants) === write.rule) !== write.isUndo;
  const namespace = offers[0]?.[0]?.at(-1).metadata.namespace ?? watched;
  useEffect(() => setWatched(namespace), [namespace]);
  return html`${namespace ? html`<${RevisionWatch} key=${namespace} namespace=${namespace} onChange=${onChange} />` : null}
    <section aria-live="polite" aria-label="The decision" class=${isOld ? "stale" : ""}>
      ${isOld ? html`<p class="quiet">This is the decision before the write. The request is explained again as soon as the mesh has the change.</p>` : null}
      ${
        !answer
          ? html`<${Loading} what="the decision" />`
          : answer.status
            ? html`<${Decision} status=${answer.status} />`
            : html`<${Failed} outcome="The request was not explained" error=${answer.error} />`
      }
    </section>
    <${MissingRules} offers=${offers} onWrite=${(/** @type {import("../../parts/missing_rule.js").Write} */ next) => {
      setWrite(next);
      onChange();
    }} />
    <${Command} words=${commandOf(question)} />`;
}

/**
 * Call `onChange` after each new revision of a namespace.
 *
 * @param {{namespace: string, onChange: () => void}} properties
 */
function RevisionWatch({ namespace, onChange }) {
  const revision = useNewestRevision(namespace);
  const before = useRef(revision);
  useEffect(() => {
    if (before.current !== null && revision !== before.current) onChange();
    before.current = revision;
  }, [revision]);
  return null;
}

function Invitation() {
  return html`<${Empty} title="Where does a request go, and why?">
    <p>Write a URL as a client of the mesh calls it, such as http://website:8080/. The answer names the route that decides, the backends with
    their shares, the access rules at the pods, and each route that does not match, with its first unmet condition.</p>
  <//>`;
}

/**
 * @param {Question} question
 * @param {AbortSignal} signal
 * @returns {Promise<Answer>}
 */
function explained(question, signal) {
  const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Explanation", spec: specOf(question) };
  return answered(inspectPath("explanations", question.in), { method: "POST", body, signal });
}
