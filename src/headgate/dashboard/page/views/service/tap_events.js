/** The requests of a tap: what became of each, the filters, and the question about it for the explain view. */

import { refName } from "../../units.js";

/**
 * @typedef {{pod: string, service: string, port: number, identity: string, address: string}} TapPeer
 * @typedef {object} TapEvent a finished request, as the proxy of its client or of its server has recorded it
 * @property {"TapEvent"} kind
 * @property {string} startTime
 * @property {{namespace: string, name: string}} proxy
 * @property {"Client" | "Server"} side
 * @property {{method: string, authority: string, path: string, headers: Record<string, string>}} request
 * @property {{status: number, flags: string[], details: string, grpcStatus: string}} response
 * @property {TapPeer} source
 * @property {TapPeer} destination
 * @property {number | null} latencyMicroseconds
 * @property {boolean} [secured] whether proxies used mutual TLS; absent in events of older headgates
 * @property {{object: import("../../types.js").Ref, name: string} | null} route
 * @property {{allowed: boolean, object: import("../../types.js").Ref | null, rule: string, wouldDeny?: boolean, message?: string} | null} access `wouldDeny`: rules in audit mode do not allow it; `message`: why rules do not allow it
 * @typedef {{kind: "TapNotice", dropped: number, message: string}} TapNotice
 *
 * @typedef {{number: number, event: TapEvent}} Row `number` counts all requests of the tap
 * @typedef {{rows: Row[], total: number, dropped: number, notice: string}} Tapped the newest requests first
 * @typedef {{method: string, path: string, status: string, from: string, route: string, side: string}} Filters
 */

/** The number of requests that a page keeps; older ones are dropped. */
export const KEPT = 500;
const REDACTED = "[redacted]";
const ACCOUNT = /\/ns\/([^/]+)\/sa\/([^/]+)$/;
/** The identity of the gateway, which it shows to the servers of all its clients. */
const GATEWAY = /\/ns\/headgate-system\/sa\/gateway$/;
/** Envoy's flags of a response that ended early, which counts as a failure whatever its status. */
const INCOMPLETE = ["UC", "UR", "UPE", "UT", "LR", "SI", "UMSDR", "DT"];
/** The gRPC codes that count as failures of a server: Unknown, DeadlineExceeded, Unimplemented, Internal, Unavailable, DataLoss. */
const GRPC_FAILURES = new Set(["2", "4", "12", "13", "14", "15"]);

/** @type {Tapped} */
export const NOTHING = { rows: [], total: 0, dropped: 0, notice: "" };

/**
 * Return what is kept after further lines of a tap.
 *
 * @param {Tapped} tapped
 * @param {(TapEvent | TapNotice)[]} lines in the order of their arrival
 * @returns {Tapped}
 */
export function withLines({ rows, total, dropped, notice }, lines) {
  /** @type {Row[]} */
  const arrived = [];
  for (const line of lines) {
    if (line.kind === "TapNotice") {
      dropped += line.dropped;
      notice = line.message;
    } else {
      total += 1;
      arrived.unshift({ number: total, event: line });
    }
  }
  return { rows: [...arrived, ...rows].slice(0, KEPT), total, dropped, notice };
}

/**
 * Return what became of a request: its class for the filter, and a sign with a text that differ between classes without their color.
 *
 * @param {TapEvent} event
 * @returns {{id: string, level: import("../../parts/badge.js").Level, text: string}}
 */
export function result({ access, response: { status, flags, grpcStatus } }) {
  const grpc = grpcStatus && grpcStatus !== "0" ? `, gRPC ${grpcStatus}` : "";
  const text = `${status || "no response"}${grpc}${flags.length ? ` (${flags.join(", ")})` : ""}`;
  if (access && !access.allowed) return { id: "denied", level: "warning", text: `denied ${text}` };
  const isIncomplete = status >= 200 && flags.some((flag) => INCOMPLETE.includes(flag));
  if (status === 0 || status >= 500 || isIncomplete || GRPC_FAILURES.has(grpcStatus))
    return { id: "failed", level: "bad", text: `failed ${text}` };
  if (access?.wouldDeny) return { id: "audited", level: "warning", text: `audit: would be denied ${text}` };
  const id = `${Math.floor(status / 100)}xx`;
  return { id, level: id === "2xx" && !grpc ? "good" : "neutral", text };
}

/**
 * Return the name of a request's sender: its ServiceAccount, pod or address.
 *
 * @param {TapPeer} source
 */
export function sender({ identity, pod, address }) {
  const account = ACCOUNT.exec(identity);
  if (account) return `ServiceAccount ${account[1]}/${account[2]}`;
  return pod || identity || address || "unknown";
}

/**
 * Return where a request went.
 *
 * @param {TapPeer} destination
 */
export function receiver({ pod, service, address, port }) {
  const name = pod || (service ? `Service ${service}` : "") || address;
  return name ? `${name}${port ? `:${port}` : ""}` : "no endpoint";
}

const NOT_ALLOWED = "no access rule allows it";

/**
 * Return why access rules do not allow a request at its server, enforced or in audit mode; empty if they do.
 *
 * @param {TapEvent} event
 */
export function whyNot({ side, access }) {
  return side === "Server" && access && (!access.allowed || access.wouldDeny) ? access.message || NOT_ALLOWED : "";
}

/**
 * Return the rule that decided about a request: its route at the client, its access rule at the server. It is the same text for all requests
 * that no rule allows, so that it is a filter.
 *
 * @param {TapEvent} event
 */
export function rule(event) {
  const { side, route, access } = event;
  if (access && !access.allowed) return NOT_ALLOWED;
  const object = ruleObject(event);
  if (whyNot(event)) return `audit: ${NOT_ALLOWED}`;
  if (!object) return side === "Client" ? "the Service itself" : "open: no access rule selects the pod";
  const part = side === "Client" ? route?.name : access?.rule;
  return `${refName(object)}${part ? `, ${part}` : ""}`;
}

/**
 * Return where the flag of a failure is that a server behind a proxy sent: the client's proxy does not get it. Empty for other requests.
 *
 * @param {TapEvent} event
 */
export function whereToLook({ side, access, secured, destination, response: { status, details } }) {
  const isFromServer = side === "Client" && !access && status >= 500 && details === "via_upstream";
  if (!isFromServer || !secured || !destination.pod) return "";
  return "sent by the server or its proxy: the server's row has its flag";
}

/**
 * Return the object of the rule that decided about a request; null if none did.
 *
 * @param {TapEvent} event
 */
export function ruleObject({ side, route, access }) {
  if (access && !access.allowed) return null;
  return (side === "Client" ? route : access)?.object ?? null;
}

/**
 * Return the rows that filters select; an empty filter selects all.
 *
 * @param {Row[]} rows
 * @param {Filters} filters
 */
export function selected(rows, { method, path, status, from, route, side }) {
  return rows.filter(
    ({ event }) =>
      (!method || event.request.method === method) &&
      (!path || `${event.request.authority}${event.request.path}`.includes(path)) &&
      (!status || result(event).id === status) &&
      (!from || sender(event.source) === from) &&
      (!route || rule(event) === route) &&
      (!side || event.side === side),
  );
}

/**
 * Return the question about a request for the explain view. Redacted values are left out, because they match nothing.
 *
 * @param {TapEvent} event
 * @param {{namespace: string, name: string}} tapped the Service; its namespace is that of short names for senders without one
 * @returns {Record<string, string>}
 */
export function question({ request, source, side }, tapped) {
  const { method, path, headers } = request;
  const shown = path.includes(REDACTED) ? path.split("?", 1)[0] : path;
  const caller = callerOf(source);
  const home = caller?.namespace ?? tapped.namespace;
  const given = Object.entries(headers).filter(([, value]) => value !== REDACTED);
  return {
    url: `http://${hostOf(request.authority, tapped, side === "Server" && home !== tapped.namespace)}${shown}`,
    method,
    headers: given.map(([name, value]) => `${name}: ${value}`).join("\n"),
    from: caller ? `${caller.kind}/${caller.name}` : "",
    in: home,
  };
}

/**
 * Return the host of a request as explain resolves it. A server also accepts its own short name from senders of other namespaces, in which
 * the name means another Service or none.
 *
 * @param {string} authority
 * @param {{namespace: string, name: string}} tapped
 * @param {boolean} isForeign whether short names mean Services of another namespace than the server's
 */
function hostOf(authority, { namespace, name }, isForeign) {
  if (!authority) return `${name}.${namespace}`;
  const [host = "", ...port] = authority.split(":");
  return isForeign && host.toLowerCase() === name ? [`${host}.${namespace}`, ...port].join(":") : authority;
}

/**
 * Return the sender of a request as explain names it; null for the gateway, and for a sender without an identity.
 *
 * @param {TapPeer} source
 */
function callerOf({ identity, pod }) {
  if (GATEWAY.test(identity)) return null;
  const account = ACCOUNT.exec(identity);
  if (account) return { kind: "ServiceAccount", namespace: account[1] ?? "", name: account[2] ?? "" };
  const [namespace = "", name = ""] = pod.split("/", 2);
  return name ? { kind: "Pod", namespace, name } : null;
}

/**
 * Return why explain can't repeat a request exactly; empty if it can.
 *
 * @param {TapEvent} event
 */
export function leftOut({ request: { path, headers }, source, side }) {
  const parts = [];
  if (path.includes(REDACTED) || Object.values(headers).includes(REDACTED)) parts.push("without redacted values");
  if (side === "Server" && !callerOf(source) && !GATEWAY.test(source.identity))
    parts.push("as the gateway sends it: its sender has no identity");
  return parts.join(", ");
}
