/** What a change does, in the words of `headgate plan`: moved requests, gained and lost access, further effects. */

import { answered, INSPECT } from "../api.js";
import { Rerun } from "../rerun.js";
import { digits, refName } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { useEffect, useMemo, useRef, useState } from "../vendor/preact-hooks.js";
import { Badge } from "./badge.js";
import { Failed, Loading } from "./states.js";

/**
 * @typedef {import("../types.js").Differences} Differences
 * @typedef {{status: {differences: Differences, revisionMessage: string} | null, error: import("../api.js").ApiError | null}} PlanAnswer
 * @typedef {{objects: Record<string, unknown>[], deleted?: import("../types.js").Ref[]}} Change the objects to apply, and those to delete
 */

const DELAY_MS = 300;

/**
 * Return the plan of a change, once the user stops to edit it. The plan of the same change stays until the next one.
 *
 * @param {Change | null} change null without a change
 * @param {number} [generation] that of the changed object, whose other fields belong to the plan
 * @returns {PlanAnswer}
 */
export function usePlan(change, generation = 0) {
  const [answer, setAnswer] = useState(/** @type {PlanAnswer} */ ({ status: null, error: null }));
  const planning = useMemo(() => {
    const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Plan", spec: change };
    return new Rerun(async (abort) => {
      const next = await answered(`${INSPECT}/plans`, { method: "POST", body, signal: abort });
      if (!abort.aborted) setAnswer(next);
    });
  }, [JSON.stringify(change)]);
  const started = useRef(/** @type {Rerun | null} */ (null));
  useEffect(() => {
    if (started.current === planning) planning.run();
  }, [generation]);
  useEffect(() => {
    setAnswer({ status: null, error: null });
    if (!change) return;
    const timer = setTimeout(() => {
      started.current = planning;
      planning.run();
    }, DELAY_MS);
    return () => {
      clearTimeout(timer);
      planning.end();
    };
  }, [planning]);
  return answer;
}

/** @param {{answer: PlanAnswer}} properties */
export function PlanView({ answer: { status, error } }) {
  if (error) return html`<${Failed} outcome="The effect is not known" error=${error} />`;
  if (!status) return html`<${Loading} what="the effect of the change" />`;
  const effects = effectsOf(status.differences);
  return html`<div class="plan" role="status" aria-label="The effect of the change">
    ${
      effects.length
        ? html`<ul>${effects.map(({ level, word, text }) => html`<li><${Badge} level=${level}>${word}<//>${" "}${text}</li>`)}</ul>`
        : html`<p>The change has no effect on requests and access.</p>`
    }
    ${status.revisionMessage ? html`<p class="quiet">${status.revisionMessage}</p>` : null}
  </div>`;
}

/** @typedef {{level: import("./badge.js").Level, word: string, text: string}} Effect */

/**
 * Return the effects of a change, each with its level, a word for its kind, and a sentence.
 *
 * @param {Differences} differences
 * @returns {Effect[]}
 */
export function effectsOf({
  lost,
  gained,
  requests,
  tls,
  unreachable,
  findings,
  departures,
  clientCertificates,
  gateways,
}) {
  return [
    ...lost.map((row) => effect("bad", "access lost", accessText(row))),
    ...gained.map((row) => effect("warning", "access gained", accessText(row))),
    ...requests.flatMap((change) =>
      change.changeMessages.map((message) => effect("neutral", "requests", requestText(change, message))),
    ),
    ...tls.map(({ pods, before, after }) =>
      effect("neutral", "mutual TLS", `${pods.join(", ")}: ${before} → ${after}`),
    ),
    ...clientCertificates.map(({ gateway, port, beforeMessage, afterMessage }) =>
      effect("neutral", "client certificates", `Gateway ${gateway}, port ${port}: ${beforeMessage} → ${afterMessage}`),
    ),
    ...gateways.map(({ service, before, after }) =>
      effect("neutral", "gateway", `Service ${service}: ${before || "none"} → ${after || "none"}`),
    ),
    ...departures.map(({ message }) => effect("warning", "outside the plan", message)),
    ...[...unreachable, ...findings].map(({ severity, reason, message }) =>
      effect(severity === "Error" ? "bad" : "warning", reason, message),
    ),
  ];
}

/**
 * @param {Effect["level"]} level
 * @param {string} word
 * @param {string} text
 * @returns {Effect}
 */
function effect(level, word, text) {
  return { level, word, text };
}

/** @param {Differences["lost"][number]} row */
function accessText({ callersMessage, requestMessage, destination, pods, port }) {
  return `${callersMessage}: ${requestMessage} to ${accountName(destination) || pods.join(", ")}, port ${port}`;
}

/**
 * @param {Differences["requests"][number]} change
 * @param {string} message
 */
function requestText({ entry, requestMessages, rate }, message) {
  const port = entry.port ? `:${entry.port}` : "";
  return `${entry.kind} ${entry.name}${port}: ${requestMessages.join(" or ")}: ${message}${rateText(rate)}`;
}

/** @param {{milliRequestsPerSecond: number, movedMilliRequestsPerSecond: number} | null} rate */
function rateText(rate) {
  if (!rate) return "";
  return `; ${digits(rate.movedMilliRequestsPerSecond / 1000)} of ${digits(rate.milliRequestsPerSecond / 1000)} requests a second move`;
}

/** @param {string} identity a SPIFFE ID, or empty */
function accountName(identity) {
  const account = /\/ns\/([^/]+)\/sa\/([^/]+)$/.exec(identity);
  if (account) return refName({ kind: "ServiceAccount", namespace: account[1] ?? "", name: account[2] ?? "" });
  return identity;
}
