/** The decision about a request: where it arrives, the route, the backends, the access rules, and the routes that do not match. */

import { Badge } from "../../parts/badge.js";
import { ObjectLink } from "../../parts/object_link.js";
import { count, percent, plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/**
 * @typedef {import("../../types.js").ExplanationStatus} ExplanationStatus
 * @typedef {import("../../types.js").ExplainedBackend} ExplainedBackend
 * @typedef {import("../../types.js").ExplainedRoute} ExplainedRoute
 * @typedef {import("../../types.js").Arrival} Arrival
 * @typedef {import("../../types.js").Tried} Tried
 */

const TRANSPORTS = { MutualTLS: "by mutual TLS", TLS: "by TLS", Plaintext: "in plaintext" };

/** @param {{status: ExplanationStatus}} properties */
export function Decision({ status }) {
  const effects = [...status.filterMessages, status.location ? `redirects to ${status.location}` : ""];
  return html`<ol class="decision">
    <li><h2>The request</h2><dl>${requestFacts(status).map(([name, text]) => html`<div><dt>${name}</dt><dd>${text}</dd></div>`)}</dl></li>
    <li>
      <h2>The route</h2>
      ${status.candidates.length ? html`<ol class="candidates">${status.candidates.map(candidate)}</ol>` : html`<p>No route: the Service itself.</p>`}
      <${Messages} messages=${effects} />
    </li>
    <li>
      <h2>The backends</h2>
      ${status.backends.map((backend) => html`<${Backend} backend=${backend} verb="gets" />`)}
      ${status.mirrors.map((mirror) => html`<${Backend} backend=${mirror} verb="gets copies of" />`)}
      ${status.authorizationServer ? html`<${Permission} server=${status.authorizationServer} />` : null}
      ${status.fallbackMessage ? html`<p class="quiet">Without a backend: ${status.fallbackMessage}</p>` : null}
      <${Messages} messages=${status.unreadyMessages ?? []} />
    </li>
    ${status.remarks.length ? html`<li><h2>Findings about it</h2><${Messages} messages=${status.remarks.map(remark)} /></li>` : null}
  </ol>`;
}

/**
 * Return the facts about the request before a route decides, as names and texts.
 *
 * @param {ExplanationStatus} status
 * @returns {[name: string, text: string][]}
 */
export function requestFacts({
  caller,
  service,
  gateway,
  port,
  portMessage = "",
  protocol,
  protocolMessage,
  sanitizing,
  revisionMessage,
  stickiness,
}) {
  const from = caller.object ? refName(caller.object) : "the gateway";
  const sender = caller.object || caller.identity ? [from, caller.identity || "without an identity"] : [];
  /** @type {[string, string][]} */
  const facts = [
    ["From", [...sender, caller.message].filter(Boolean).join(", ")],
    [
      "Arrives at",
      service || gateway ? `${gateway ? `Gateway ${gateway}` : `Service ${service}`}, port ${port}` : "an unknown host",
    ],
    ["Port", portMessage],
    ["Protocol", [protocol, protocolMessage].filter(Boolean).join(", ")],
  ];
  if (sanitizing?.messages.length) facts.push(["Before routing", sanitizing.messages.join("; ")]);
  if (stickiness?.service) facts.push(["This user", `stays at ${stickiness.service}:${stickiness.port}`]);
  if (revisionMessage) facts.push(["Rules", revisionMessage]);
  return facts.filter(([, text]) => text);
}

/** @type {Record<Tried["result"], [level: import("../../parts/badge.js").Level, word: string]>} */
const RESULTS = {
  Matched: ["good", "matched"],
  Failed: ["neutral", "did not match"],
  NotTried: ["neutral", "not tried"],
};

/** @param {Tried} tried */
function candidate({ route, host, result, message }) {
  const [level, word] = RESULTS[result];
  return html`<li class=${result === "Matched" ? "matched" : "quiet"}>
    <${Badge} level=${level}>${word}<//>${" "}${route ? html`<${RouteName} route=${route} />` : `host ${host}`}
    ${message ? html`<p>${message}</p>` : null}
  </li>`;
}

/** @param {{route: ExplainedRoute}} properties */
function RouteName({ route }) {
  const text = routeName(route);
  if (!route.object) return text;
  return html`<${ObjectLink} object=${route.object} />${text.slice(refName(route.object).length)}`;
}

/**
 * Return the name of a route: `HTTPRoute default/website, rule 0`.
 *
 * @param {ExplainedRoute} route
 */
export function routeName({ object, name, matches }) {
  const part = name ? `, ${name.includes("/") ? "match" : "rule"} ${name}` : "";
  const chosen = matches.map(({ split, match }) => `, match ${match} of ${refName(split)}`).join("");
  return `${object ? refName(object) : "the Service itself"}${part}${chosen}`;
}

/** @param {{backend: ExplainedBackend, verb: string}} properties */
function Backend({ backend, verb }) {
  const {
    service,
    port,
    share,
    readyEndpoints,
    statusCode = 0,
    reason = "",
    message = "",
    filterMessages = [],
    arrivals,
  } = backend;
  const part = percent(share.numerator, share.denominator);
  const answer = reason === "NotConnected" ? "The connection fails" : `The proxy answers ${statusCode}`;
  const place = reason === "PassedThrough" ? "The host itself" : `${service}:${port}`;
  return html`<div class="backend">
    <p>
      <strong>${statusCode ? answer : place}</strong>
      ${statusCode ? ` to ${part}` : ` ${verb} ${part} of the requests`}
      ${readyEndpoints === undefined ? null : html`<span class="quiet">, ${plural(readyEndpoints, "ready endpoint")}</span>`}
    </p>
    <meter min="0" max="1" value=${share.numerator / (share.denominator || 1)} aria-hidden="true"></meter>
    <${Messages} messages=${[message, ...filterMessages]} />
    ${alike(arrivals).map(([arrival, number]) => html`<${ArrivalLine} arrival=${arrival} number=${number} />`)}
  </div>`;
}

/** @param {{server: {service: string, port: number, readyEndpoints: number, arrivals: Arrival[]}}} properties */
function Permission({ server: { service, port, readyEndpoints, arrivals } }) {
  return html`<div class="backend">
    <p><strong>${service}:${port}</strong> must allow the request first; the proxy calls it</p>
    ${readyEndpoints ? null : html`<p>It has no ready endpoint, so the proxy denies every request.</p>`}
    ${alike(arrivals).map(([arrival, number]) => html`<${ArrivalLine} arrival=${arrival} number=${number} />`)}
  </div>`;
}

/**
 * Return the arrivals that differ in more than their pod, each with the number of pods.
 *
 * @param {Arrival[]} arrivals
 * @returns {[arrival: Arrival, number: number][]}
 */
export function alike(arrivals) {
  /** @type {Map<string, [Arrival, number]>} */
  const groups = new Map();
  for (const arrival of arrivals) {
    const { workload: _workload, address: _address, ...rest } = arrival;
    const id = JSON.stringify(rest);
    groups.set(id, [arrival, (groups.get(id)?.[1] ?? 0) + 1]);
  }
  return [...groups.values()];
}

/**
 * Return the rules that denied arrivals lack, each in the variants for this method and path, and for all requests.
 *
 * @param {ExplainedBackend[]} backends
 * @returns {any[][][]}
 */
export function missingRules(backends) {
  return backends
    .flatMap(({ arrivals }) => arrivals)
    .map(({ remedyObjects = [], wideRemedyObjects = [] }) =>
      [remedyObjects, wideRemedyObjects].filter(({ length }) => length),
    )
    .filter(({ length }) => length);
}

/**
 * Return the objects of the rule that allows all requests or connections of a denied caller; none where headgate offers no such rule.
 *
 * @param {Arrival} arrival
 * @returns {any[]}
 */
export function wideRule({ remedyObjects = [], wideRemedyObjects = remedyObjects }) {
  const isTcp = remedyObjects.at(-1)?.spec.rules?.[0]?.kind === "TCPRoute";
  return isTcp ? remedyObjects : wideRemedyObjects;
}

/** @param {{arrival: Arrival, number: number}} properties */
export function ArrivalLine({ arrival, number }) {
  const { workload, address, transport, allowed, message, remedyMessage, object } = arrival;
  const at = number > 1 ? `${count(number)} pods` : workload || address;
  return html`<div class="arrival">
    <${Badge} level=${allowed ? "good" : "bad"}>${allowed ? "allowed" : "denied"}<//>${" "}at ${at}, ${TRANSPORTS[transport]}
    <p class="quiet">${message}</p>
    ${object ? html`<p><${ObjectLink} object=${object} /></p>` : null}
    ${remedyMessage ? html`<p>To allow it: ${remedyMessage}</p>` : null}
  </div>`;
}

/** @param {{messages: string[]}} properties */
function Messages({ messages }) {
  const given = messages.filter(Boolean);
  return given.length ? html`<ul class="messages">${given.map((text) => html`<li>${text}</li>`)}</ul>` : null;
}

/** @param {ExplanationStatus["remarks"][number]} finding */
function remark({ object, reason, field, message }) {
  return `${refName(object)}: ${reason}: ${field ? `${field}: ` : ""}${message}`;
}
