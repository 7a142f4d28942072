/** Live requests of a Service, with filters, a pause, and for each the way to its explanation. */

import { linkTo, place, setQuery } from "../../location.js";
import { Badge } from "../../parts/badge.js";
import { Command } from "../../parts/command.js";
import { CheckField, SearchField, SelectField } from "../../parts/fields.js";
import { ObjectLink } from "../../parts/object_link.js";
import { Empty, Failed } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { may } from "../../rights.js";
import { count, latency, localTime, plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useState } from "../../vendor/preact-hooks.js";
import { useNeighbors } from "./neighbors.js";
import {
  KEPT,
  leftOut,
  question,
  receiver,
  result,
  rule,
  ruleObject,
  selected,
  sender,
  whereToLook,
  whyNot,
} from "./tap_events.js";
import { useTap } from "./tap_stream.js";

/**
 * @typedef {import("./tap_events.js").Row} Row
 * @typedef {import("./tap_events.js").Filters} Filters
 * @typedef {import("./tap_stream.js").Tap} TapState
 */

const GROUP = "inspect.headgate.dev";
/** @type {[value: string, title: string][]} */
const RESULTS = [
  ["", "All"],
  ["2xx", "2xx"],
  ["3xx", "3xx"],
  ["4xx", "4xx"],
  ["denied", "Denied"],
  ["audited", "Would be denied (audit)"],
  ["failed", "Failed"],
];
/** @type {[value: string, title: string][]} */
const SIDES = [
  ["", "Both"],
  ["Client", "Clients"],
  ["Server", "Servers"],
];
const NO_FILTERS = { method: "", path: "", status: "", from: "", route: "", side: "" };

/** @param {{namespace: string, name: string}} properties */
export function Tap({ namespace, name }) {
  const right = { verb: "get", group: GROUP, resource: "services", subresource: "tap", namespace, name };
  const isOpen = place.value.query.tap === "live";
  if (may(right) !== true) return null;
  return html`<section class="tap" aria-labelledby="tap-title">
    <div class="section-head">
      <h2 id="tap-title">Live requests</h2>
      <button type="button" onClick=${() => setQuery({ tap: isOpen ? "" : "live" })}>${isOpen ? "Stop" : "Show live requests"}</button>
    </div>
    ${
      isOpen
        ? html`<${LiveRequests} key=${`${namespace}/${name}`} namespace=${namespace} name=${name} />`
        : html`<p class="quiet">Proxies record requests only while they are shown here.</p>`
    }
  </section>`;
}

/** @param {{namespace: string, name: string}} properties */
function LiveRequests({ namespace, name }) {
  const { query } = place.value;
  const right = { verb: "get", group: GROUP, resource: "services", subresource: "tapvalues", namespace, name };
  const mayHaveValues = may(right) === true;
  const values = mayHaveValues && query["tap-values"] === "true";
  const tap = useTap(namespace, name, values);
  const [paused, setPaused] = useState(/** @type {TapState["tapped"] | null} */ (null));
  // Another choice of values is another tap, which counts from zero; values that are no longer requested must not stay visible.
  useEffect(() => setPaused(null), [values]);
  const shown = paused ?? tap.tapped;
  const rows = selected(shown.rows, filtersOf(query));
  const pause = () => setPaused(paused ? null : tap.tapped);
  return html`<${FilterBar} rows=${shown.rows} mayHaveValues=${mayHaveValues} isPaused=${Boolean(paused)} onPause=${pause} />
    <${StateLine} tap=${tap} shown=${shown} selectedRows=${rows.length} isPaused=${Boolean(paused)} />
    ${
      rows.length
        ? html`<${Table} name="tap" caption="Recorded requests" columns=${columnsOf(namespace, name)} rows=${rows}
            rowKey=${(/** @type {Row} */ { number }) => number} rowClass=${(/** @type {Row} */ { event }) => result(event).id} />`
        : shown.rows.length
          ? html`<${Empty} title=${`The filters hide all ${plural(shown.rows.length, "request")}`}>
              <p><button type="button" onClick=${() => setQuery(prefixed(NO_FILTERS))}>Remove the filters</button></p>
            <//>`
          : tap.state === "live"
            ? html`<${NoRequests} namespace=${namespace} name=${name} />`
            : null
    }
    <${Command} words=${["kubectl", "traffic", "tap", `service/${name}`, "-n", namespace, ...(values ? ["--values"] : [])]} />`;
}

/** @param {{rows: Row[], mayHaveValues: boolean, isPaused: boolean, onPause: () => void}} properties */
function FilterBar({ rows, mayHaveValues, isPaused, onPause }) {
  const options = (/** @type {(row: Row) => string} */ of) =>
    /** @type {[string, string][]} */ ([
      ["", "All"],
      ...[...new Set(rows.map(of))].sort().map((value) => [value, value]),
    ]);
  return html`<div class="filters" role="search" aria-label="Filter the live requests">
    <${SearchField} name="tap-path" label="Host and path" />
    <${SelectField} name="tap-method" label="Method" options=${options(({ event }) => event.request.method)} />
    <${SelectField} name="tap-status" label="Result" options=${RESULTS} />
    <${SelectField} name="tap-from" label="From" options=${options(({ event }) => sender(event.source))} />
    <${SelectField} name="tap-route" label="Route or rule" options=${options(({ event }) => rule(event))} />
    <${SelectField} name="tap-side" label="Recorded by" options=${SIDES} />
    ${mayHaveValues ? html`<${CheckField} name="tap-values" label="Values of headers and queries" />` : null}
    <button type="button" aria-pressed=${isPaused ? "true" : "false"} onClick=${onPause}>${isPaused ? "Continue" : "Pause"}</button>
  </div>`;
}

/** @param {{tap: TapState, shown: TapState["tapped"], selectedRows: number, isPaused: boolean}} properties */
function StateLine({ tap, shown, selectedRows, isPaused }) {
  if (tap.state === "lost" && !shown.rows.length)
    return html`<${Failed} what="the live requests" error=${tap.error} />`;
  const words = {
    connecting: "Connecting …",
    live: "Live.",
    full: "Waiting: open pages of this browser have the most streams. Close one of them.",
    lost: `Not current: ${tap.error?.message ?? ""} The page tries again.`,
  };
  const older = shown.total > KEPT ? `, of which the newest ${count(KEPT)} are kept` : "";
  const missing = shown.dropped ? ` ${plural(shown.dropped, "request")} not shown: ${shown.notice}.` : "";
  const later = tap.tapped.total - shown.total;
  return html`<p class="quiet">
    <span role="status">${isPaused ? "Paused." : words[tap.state]}</span>
    ${shown.total ? ` ${count(selectedRows)} shown; ${count(shown.total)} recorded${older}.` : ""}${missing}
    ${isPaused ? ` ${count(Math.max(0, later))} since the pause.` : ""}
  </p>`;
}

/** @param {{namespace: string, name: string}} properties */
function NoRequests({ namespace, name }) {
  const { status, node, index } = useNeighbors(namespace, name);
  const edges = (status?.edges ?? []).filter(({ source, target }) => source === index || target === index);
  return html`<${Empty} title="No request yet"><p>${reasonOf(node, edges)}</p><//>`;
}

/**
 * Return why a tap has no requests, as far as the counts of the last 30 seconds say.
 *
 * @param {import("../../types.js").GraphNode | undefined} node undefined without a Service
 * @param {import("../../types.js").GraphEdge[]} edges
 */
export function reasonOf(node, edges) {
  const requests = edges.reduce((sum, edge) => sum + edge.requests, 0);
  const connections = edges.reduce((sum, edge) => sum + edge.connections + edge.failedConnections, 0);
  if (requests) return "Its proxies begin to record; a request appears when it is finished.";
  if (connections)
    return "In the last 30 seconds it had only connections of TCP ports. A tap shows the requests of HTTP ports.";
  if (!node) return "Nothing in the mesh has called it. Only requests through a sidecar or a gateway appear here.";
  if (node.pods && !node.meshed)
    return `None of its ${plural(node.pods, "pod")} has a sidecar, so only requests that a sidecar or a gateway sends to it appear here; there was none in the last 30 seconds.`;
  return "It had no requests in the last 30 seconds.";
}

/**
 * @param {string} namespace
 * @param {string} name
 * @returns {import("../../parts/table.js").Column<Row>[]}
 */
function columnsOf(namespace, name) {
  return [
    {
      id: "result",
      title: "Result",
      cell: ({ event }) => {
        const { level, text } = result(event);
        return html`<${Badge} level=${level}>${text}<//>`;
      },
    },
    {
      id: "request",
      title: "Request",
      header: true,
      cell: ({ event }) => html`<${Request} event=${event} namespace=${namespace} name=${name} />`,
    },
    {
      id: "peers",
      title: "From, to",
      cell: ({ event }) => html`<div>${sender(event.source)}</div><div>→ ${receiver(event.destination)}</div>`,
    },
    {
      id: "rule",
      title: "Route or access rule",
      cell: ({ event }) =>
        html`<div><${Rule} event=${event} /></div><div class="quiet">recorded by the ${event.side.toLowerCase()}</div>
          ${whereToLook(event) ? html`<div class="quiet">${whereToLook(event)}</div>` : null}`,
    },
    { id: "latency", title: "Latency", number: true, cell: ({ event }) => latency(event.latencyMicroseconds) },
    {
      id: "time",
      title: "Time",
      number: true,
      cell: ({ event }) =>
        html`<time datetime=${event.startTime} title=${localTime(event.startTime)}>${new Date(event.startTime).toLocaleTimeString()}</time>`,
    },
  ];
}

/** @param {{event: import("./tap_events.js").TapEvent}} properties */
function Rule({ event }) {
  const object = ruleObject(event);
  const why = whyNot(event);
  const text = why ? `${event.access?.allowed ? "audit: " : ""}${why}` : rule(event);
  return object ? html`<${ObjectLink} object=${object} />${text.slice(refName(object).length)}` : text;
}

/** @param {{event: import("./tap_events.js").TapEvent, namespace: string, name: string}} properties */
function Request({ event, namespace, name }) {
  const { method, authority, path, headers } = event.request;
  const missing = leftOut(event);
  const names = Object.keys(headers);
  return html`<div><strong>${method}</strong> ${authority}${path}</div>
    <div><a href=${linkTo(["explain"], question(event, { namespace, name }))}>Explain this</a>${missing ? html`<span class="quiet"> ${missing}</span>` : null}</div>
    ${
      names.length
        ? html`<details><summary>${plural(names.length, "header")}</summary>
          <ul class="messages">${names.map((header) => html`<li><code>${header}: ${headers[header]}</code></li>`)}</ul></details>`
        : null
    }`;
}

/**
 * @param {Record<string, string>} query of the page's place
 * @returns {Filters}
 */
function filtersOf(query) {
  const given = Object.keys(NO_FILTERS).map((name) => [name, query[`tap-${name}`] ?? ""]);
  return /** @type {Filters} */ (Object.fromEntries(given));
}

/** @param {Record<string, string>} filters */
function prefixed(filters) {
  return Object.fromEntries(Object.entries(filters).map(([name, value]) => [`tap-${name}`, value]));
}
