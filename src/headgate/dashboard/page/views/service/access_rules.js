/** The callers of a Service, and of those that are denied what the access rules decide, with the rule that is missing. */

import { answered, inspectPath, request } from "../../api.js";
import { linkTo } from "../../location.js";
import { outcome } from "../../outcome.js";
import { Badge } from "../../parts/badge.js";
import { MissingRules } from "../../parts/missing_rule.js";
import { Failed, Loading } from "../../parts/states.js";
import { Rerun } from "../../rerun.js";
import { may } from "../../rights.js";
import { count } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useMemo, useState } from "../../vendor/preact-hooks.js";
import { ArrivalLine, alike, wideRule } from "../explain/decision.js";
import { useNewestRevision } from "./changes.js";
import { useNeighbors } from "./neighbors.js";

/**
 * @typedef {import("../../types.js").GraphStatus} GraphStatus
 * @typedef {{kind: string, namespace: string, name: string, denied: number}} Caller
 * @typedef {{port: number, status: import("../../types.js").ExplanationStatus | null, error: import("../../api.js").ApiError | null}} Decision
 */

/** The kinds of nodes that a question can name as the sender of a request. */
const SENDERS = [
  "Pod",
  "Deployment",
  "StatefulSet",
  "DaemonSet",
  "Job",
  "CronJob",
  "ReplicaSet",
  "ReplicationController",
];
const MOST_CALLERS = 8;
const MOST_PORTS = 4;

/** @param {{namespace: string, name: string}} properties */
export function AccessRules({ namespace, name }) {
  const { status, index } = useNeighbors(namespace, name);
  // Callers with an open draft or a written rule, whose cards stay until the view is left: without traffic too.
  const [held, setHeld] = useState(/** @type {Caller[]} */ ([]));
  const callers = withHeld(status ? callersOf(status, index) : [], held);
  const ports = usePorts(namespace, name, callers.length > 0);
  if (!callers.length || !ports) return null;
  const heldIds = new Set(held.map(idOf));
  const shown = callers.filter((caller, at) => at < MOST_CALLERS || heldIds.has(idOf(caller)));
  const hold = (/** @type {Caller} */ caller, /** @type {boolean} */ hasDrafts) =>
    setHeld((before) => [...before.filter((other) => idOf(other) !== idOf(caller)), ...(hasDrafts ? [caller] : [])]);
  return html`<section class="access-rules" aria-labelledby="access-title">
    <h2 id="access-title">Access of its callers</h2>
    <p class="quiet">Callers of the last 30 seconds. <a href=${deniedRequests(namespace, name)}>Denied requests as they happen</a> say why rules deny
      them; each opens in Explain, which has the rule for its method and path.</p>
    <ul class="cards">${shown.map(
      (caller) => html`<li class="card" key=${idOf(caller)}>
        <${CallerAccess} caller=${caller} isHeld=${heldIds.has(idOf(caller))} namespace=${namespace} name=${name} ports=${ports}
          onDrafts=${(/** @type {boolean} */ hasDrafts) => hold(caller, hasDrafts)} />
      </li>`,
    )}</ul>
    ${callers.length > shown.length ? html`<p class="quiet">${count(callers.length - shown.length)} more callers are not shown.</p>` : null}
  </section>`;
}

/**
 * Return the callers of a Service, those with the most denied requests first.
 *
 * @param {GraphStatus} status
 * @param {number} index
 * @returns {Caller[]}
 */
export function callersOf({ nodes, edges }, index) {
  return edges
    .filter(({ target, copy }) => target === index && !copy)
    .flatMap((edge) => {
      const node = nodes[edge.source];
      if (!node || node.kind === "Outside") return [];
      return [{ kind: node.kind, namespace: node.namespace, name: node.name, denied: outcome(edge).denied }];
    })
    .sort((left, right) => right.denied - left.denied || left.name.localeCompare(right.name));
}

/** @param {Caller} caller */
function idOf({ kind, namespace, name }) {
  return `${kind}/${namespace}/${name}`;
}

/**
 * @param {string} namespace
 * @param {string} name
 */
function deniedRequests(namespace, name) {
  return linkTo(["service", namespace, name], { tap: "live", "tap-status": "denied" });
}

/**
 * Return the callers, and those with a draft that are not among them.
 *
 * @param {Caller[]} callers
 * @param {Caller[]} held
 * @returns {Caller[]}
 */
function withHeld(callers, held) {
  const ids = new Set(callers.map(idOf));
  return [...callers, ...held.filter((caller) => !ids.has(idOf(caller))).map((caller) => ({ ...caller, denied: 0 }))];
}

/**
 * @param {{caller: Caller, isHeld: boolean, namespace: string, name: string, ports: number[], onDrafts: (hasDrafts: boolean) => void}} properties
 */
function CallerAccess({ caller, isHeld, namespace, name, ports, onDrafts }) {
  const isSender = SENDERS.includes(caller.kind);
  const right = {
    verb: "create",
    group: "inspect.headgate.dev",
    resource: "explanations",
    namespace: caller.namespace,
  };
  const mayExplain = isSender && (caller.denied > 0 || isHeld) && may(right) === true;
  const revision = useNewestRevision(namespace);
  const decisions = useDecisions(
    mayExplain && revision !== null ? caller : null,
    `${name}.${namespace}`,
    ports,
    revision,
  );
  const backends = decisions?.flatMap(({ status }) => status?.backends ?? []) ?? [];
  const offers = backends.flatMap(({ arrivals }) => arrivals.map(wideRule).filter(({ length }) => length));
  return html`<div class="card-head">
      <strong>${caller.kind} ${caller.namespace}/${caller.name}</strong>
      ${caller.denied ? html`<${Badge} level="warning">${count(caller.denied)} denied<//>` : html`<span class="quiet">none denied</span>`}
    </div>
    ${isSender || !caller.denied ? null : html`<p class="quiet">Its pods are the callers. A denied request of them opens in Explain, which has the missing rule.</p>`}
    ${mayExplain && !decisions ? html`<${Loading} what="the decision" />` : null}
    ${decisions?.map((decision) => html`<${PortAccess} key=${decision.port} decision=${decision} />`)}
    <${MissingRules} offers=${offers.map((objects) => [objects])} revision=${revision ?? 0} onDrafts=${onDrafts} />`;
}

/** @param {{decision: Decision}} properties */
function PortAccess({ decision: { port, status, error } }) {
  const arrivals = alike(status?.backends.flatMap((backend) => backend.arrivals.flatMap(ofAnyRequest)) ?? []);
  if (!error && !arrivals.length) return null;
  return html`<div>
    <p>Port ${port}</p>
    ${error ? html`<${Failed} outcome="The request was not explained" error=${error} />` : null}
    ${arrivals.map(([arrival, number]) => html`<${ArrivalLine} arrival=${arrival} number=${number} />`)}
  </div>`;
}

/**
 * Return a denied arrival if it is the same for all requests: without a rule for this one request only, which is offered where another rule
 * names the caller. What rules decide about the one request of the question says nothing about the requests that the caller sends.
 *
 * @param {import("../../types.js").Arrival} arrival
 */
function ofAnyRequest(arrival) {
  if (arrival.allowed) return [];
  if (wideRule(arrival).length) return [{ ...arrival, remedyMessage: "" }];
  return arrival.remedyObjects?.length ? [] : [arrival];
}

/**
 * Return the decisions about a request of a caller to each port; null until they are known.
 *
 * @param {Caller | null} caller null without denied requests, or without the right to explain
 * @param {string} host
 * @param {number[]} ports
 * @param {number | null} revision the newest one, after which the decisions can be others
 * @returns {Decision[] | null}
 */
function useDecisions(caller, host, ports, revision) {
  const [decisions, setDecisions] = useState(/** @type {Decision[] | null} */ (null));
  const id = caller && idOf(caller);
  const explaining = useMemo(() => {
    if (!caller) return null;
    const { kind, namespace, name } = caller;
    const explain = async (/** @type {number} */ port, /** @type {AbortSignal} */ abort) => {
      const spec = { url: `http://${host}:${port}/`, method: "GET", headers: [], caller: { kind, name } };
      const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Explanation", spec };
      const path = inspectPath("explanations", namespace);
      return { port, ...(await answered(path, { method: "POST", body, signal: abort })) };
    };
    return new Rerun(async (abort) => {
      const next = await Promise.all(ports.map((port) => explain(port, abort)));
      if (!abort.aborted) setDecisions(next);
    });
  }, [id, host, ports.join()]);
  useEffect(() => {
    if (!explaining) return setDecisions(null);
    return () => explaining.end();
  }, [explaining]);
  useEffect(() => {
    explaining?.run();
  }, [explaining, revision]);
  return decisions;
}

/**
 * Return the ports of a Service; null until they are known, and without the right to read it.
 *
 * @param {string} namespace
 * @param {string} name
 * @param {boolean} isNeeded
 * @returns {number[] | null}
 */
function usePorts(namespace, name, isNeeded) {
  const [ports, setPorts] = useState(/** @type {number[] | null} */ (null));
  useEffect(() => {
    if (!isNeeded) return;
    const abort = new AbortController();
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/services/${encodeURIComponent(name)}`;
    request(path, { signal: abort.signal }).then(
      ({ spec }) => setPorts((spec.ports ?? []).slice(0, MOST_PORTS).map((/** @type {any} */ { port }) => port)),
      () => {},
    );
    return () => abort.abort();
  }, [namespace, name, isNeeded]);
  return ports;
}
