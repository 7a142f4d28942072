/** The proxies: whether each has acknowledged its configuration, what it rejected and which object to blame, and its certificate. */

import { inspectPath } from "../../api.js";
import { place } from "../../location.js";
import { currentNamespace, namespaceOptions } from "../../namespace.js";
import { Badge, LEVEL_OF_PROXY } from "../../parts/badge.js";
import { Command } from "../../parts/command.js";
import { SearchField, SelectField } from "../../parts/fields.js";
import { Empty, Read } from "../../parts/states.js";
import { Table } from "../../parts/table.js";
import { Time } from "../../parts/time.js";
import { useReading } from "../../readings.js";
import { count, NONE, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/**
 * @typedef {import("../../types.js").Proxy} Proxy
 * @typedef {import("../../types.js").ProxyState} ProxyState
 */

/** @type {ProxyState[]} */
const WORST_FIRST = ["Refused", "Disconnected", "Lagging", "InSync"];
/** @type {Record<ProxyState, string>} */
const WORDS = { InSync: "in sync", Lagging: "lagging", Refused: "rejected", Disconnected: "disconnected" };
/** @type {[value: string, title: string][]} */
const STATES = [["", "All"], ...WORST_FIRST.map((state) => /** @type {[string, string]} */ ([state, WORDS[state]]))];

export function Proxies() {
  const namespace = currentNamespace("proxies");
  const reading = useReading(inspectPath("proxies", namespace));
  /** @type {Proxy[]} */
  const proxies = reading.value?.items ?? [];
  const { search = "", state = "" } = place.value.query;
  const shown = worstFirst(proxies).filter((proxy) => matches(proxy, search, state));
  const namespaces = namespaceOptions(proxies.map(({ metadata }) => metadata.namespace));
  return html`<div class="section-head">
      <h1>Proxies</h1>
      <div class="filters" role="search" aria-label="Filter the proxies">
        <${SearchField} name="search" label="Search" />
        <${SelectField} name="namespace" label="Namespace" options=${namespaces} />
        <${SelectField} name="state" label="State" options=${STATES} />
      </div>
    </div>
    <${Read} reading=${reading} what="the proxies">
      ${() => html`<${Rejections} proxies=${shown} />
        ${
          shown.length
            ? html`<${ProxyTable} proxies=${shown} />`
            : html`<${Empty} title=${proxies.length ? "No proxy matches the filter" : "No proxy has connected"} />`
        }`}
    <//>
    <${Command} words=${["headgate", "proxies", ...(namespace ? ["-n", namespace] : [])]} />`;
}

/**
 * @param {Proxy[]} proxies
 * @returns {Proxy[]}
 */
function worstFirst(proxies) {
  const key = (/** @type {Proxy} */ proxy) => `${WORST_FIRST.indexOf(proxy.status.state)} ${nameOf(proxy)}`;
  return [...proxies].sort((left, right) => key(left).localeCompare(key(right)));
}

/** @param {Proxy} proxy */
function nameOf({ node }) {
  return node.replace(/^sidecar\//, "");
}

/**
 * @param {Proxy} proxy
 * @param {string} text
 * @param {string} state
 */
function matches(proxy, text, state) {
  const searched = `${nameOf(proxy)} ${proxy.workloads.join(" ")}`.toLowerCase();
  return (!state || proxy.status.state === state) && searched.includes(text.trim().toLowerCase());
}

/** @param {{proxies: Proxy[]}} properties */
function Rejections({ proxies }) {
  const rejected = proxies.flatMap((proxy) => proxy.status.refusals.map((refusal) => ({ proxy, refusal })));
  if (!rejected.length) return null;
  return html`<ul class="findings" aria-label="Rejected resources">
    ${rejected.map(
      ({ proxy, refusal }) => html`<li class="finding bad" key=${`${proxy.node} ${refusal.type} ${refusal.resource}`}>
        <div class="finding-head">
          <${Badge} level="bad">Rejected<//>
          <strong>${refusal.object ? refName(refusal.object) : "No object to blame"}</strong>
          <span class="object">${nameOf(proxy)} · ${refusal.type} <code>${refusal.resource}</code> · <${Time} time=${refusal.rejectionTime} /></span>
        </div>
        <p>Envoy says: <q>${refusal.message}</q></p>
        <p class="quiet">The proxy keeps the previous version of this resource.</p>
      </li>`,
    )}
  </ul>`;
}

/** @param {{proxies: Proxy[]}} properties */
function ProxyTable({ proxies }) {
  return html`<${Table}
    name="proxies"
    caption="Proxies"
    columns=${COLUMNS}
    rows=${proxies}
    rowKey=${(/** @type {Proxy} */ { node }) => node}
  />`;
}

/** @type {import("../../parts/table.js").Column<Proxy>[]} */
const COLUMNS = [
  { id: "name", title: "Proxy", header: true, cell: nameCell, sort: nameOf },
  { id: "state", title: "State", cell: stateCell, sort: ({ status }) => WORST_FIRST.indexOf(status.state) },
  {
    id: "resources",
    title: "Resources",
    number: true,
    largestFirst: true,
    hint: "Acknowledged resources, of all",
    cell: resourcesText,
    sort: ({ status }) => total(status.types, "resources"),
  },
  {
    id: "ack",
    title: "Last ACK",
    cell: ({ status }) => html`<${Time} time=${status.lastAcknowledgedTime} />`,
    sort: ({ status }) => status.lastAcknowledgedTime ?? "",
  },
  {
    id: "issued",
    title: "Certificate issued",
    cell: ({ status }) => html`<${Time} time=${status.certificate?.issueTime} />`,
    sort: ({ status }) => status.certificate?.issueTime ?? "",
  },
  { id: "expires", title: "Expires", cell: expiryCell, sort: ({ status }) => status.certificate?.notAfterTime ?? "" },
];

/** @param {Proxy} proxy */
function nameCell(proxy) {
  const { name, namespace } = proxy.metadata;
  return html`<span class="object-name">${name}</span>${" "}<span class="quiet">${namespace}</span>`;
}

/** @param {Proxy} proxy */
function stateCell({ status }) {
  return html`<${Badge} level=${LEVEL_OF_PROXY[status.state]}>${WORDS[status.state]}<//>
    ${status.message ? html`<div class="quiet wrapped">${status.message}</div>` : null}`;
}

/** @param {Proxy} proxy */
function resourcesText({ status }) {
  const [held, all] = [total(status.types, "held"), total(status.types, "resources")];
  return held === all ? count(all) : `${count(held)} of ${count(all)}`;
}

/**
 * @param {Proxy["status"]["types"]} types
 * @param {"held" | "resources"} field
 */
function total(types, field) {
  return types.reduce((sum, type) => sum + type[field], 0);
}

/** @param {Proxy} proxy */
function expiryCell({ status }) {
  const { certificate } = status;
  if (!certificate) return NONE;
  if (certificate.message) return html`<${Badge} level="bad">${certificate.message}<//>`;
  return html`<${Time} time=${certificate.notAfterTime} />`;
}
