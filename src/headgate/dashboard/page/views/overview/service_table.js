/** The table of services: what each received in the window. */

import { linkTo } from "../../location.js";
import { Badge } from "../../parts/badge.js";
import { Denied } from "../../parts/denied.js";
import { Table } from "../../parts/table.js";
import { count, latency, NONE, percent, plural, rate, throughput } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/**
 * @typedef {import("./services.js").ServiceRow} ServiceRow
 * @typedef {import("../../parts/table.js").Column<ServiceRow>} Column
 */

/** @param {{rows: ServiceRow[], milliseconds: number}} properties */
export function ServiceTable({ rows, milliseconds }) {
  return html`<${Table}
    name="services"
    caption="Services and the traffic that they received"
    columns=${columns(milliseconds)}
    rows=${rows}
    rowKey=${(/** @type {ServiceRow} */ { node }) => `${node.kind}/${node.namespace}/${node.name}`}
  />`;
}

/**
 * @param {number} milliseconds
 * @returns {Column[]}
 */
function columns(milliseconds) {
  return [
    {
      id: "name",
      title: "Service",
      header: true,
      cell: nameCell,
      sort: ({ node }) => `${node.namespace}/${node.name}`,
    },
    {
      id: "rate",
      title: "Requests",
      number: true,
      largestFirst: true,
      hint: "Requests a second; opened TCP connections a second; both without denied ones. Requests that a split of another Service sent here",
      cell: (row) => rateCell(row, milliseconds),
      sort: ({ requests, connections, split }) => requests + connections + split,
    },
    {
      id: "success",
      title: "Success",
      number: true,
      hint: "Requests without a 5xx, a reset or a timeout. Denied requests count neither as success nor as failure.",
      cell: successCell,
      sort: (row) => successShare(row) ?? 2,
    },
    {
      id: "p99",
      title: "p99",
      number: true,
      largestFirst: true,
      hint: "99 % of the requests of its slowest caller took at most this long",
      cell: ({ p99 }) => latency(p99),
      sort: ({ p99 }) => p99 ?? -1,
    },
    {
      id: "bytes",
      title: "Data",
      number: true,
      largestFirst: true,
      cell: ({ bytes }) => throughput(bytes, milliseconds),
      sort: ({ bytes }) => bytes ?? -1,
    },
    {
      id: "denied",
      title: "Denied",
      number: true,
      largestFirst: true,
      hint: "Requests that access rules denied, or would deny without audit mode",
      cell: (row) => html`<${Denied} ...${row} />`,
      sort: ({ denied, audited }) => denied + audited,
    },
    { id: "tls", title: "mTLS", cell: ({ isSecured }) => securityText(isSecured) },
    {
      id: "pods",
      title: "Pods",
      number: true,
      hint: "Pods with a sidecar, of all pods",
      cell: podsText,
      sort: ({ node }) => node.pods,
    },
    {
      id: "findings",
      title: "Findings",
      cell: findingsCell,
      sort: ({ node }) => -(node.errors * 1000 + node.warnings),
    },
  ];
}

/** @param {ServiceRow} row */
function nameCell({ node }) {
  const name = html`<span class="object-name">${node.name}</span>`;
  const linked =
    node.kind === "Service" ? html`<a href=${linkTo(["service", node.namespace, node.name])}>${name}</a>` : name;
  return html`${linked}${" "}<span class="quiet">${node.namespace}</span>`;
}

/**
 * @param {ServiceRow} row
 * @param {number} milliseconds
 */
function rateCell({ requests, connections, split }, milliseconds) {
  const parts = [
    requests || !(connections || split) ? rate(requests, milliseconds) : "",
    connections ? `${rate(connections, milliseconds)} TCP` : "",
    split ? `${rate(split, milliseconds)} by split` : "",
  ];
  return parts.filter(Boolean).join(", ");
}

/** @param {ServiceRow} row */
function successShare({ total, failed }) {
  return total ? (total - failed) / total : null;
}

/** @param {ServiceRow} row */
function successCell(row) {
  const share = successShare(row);
  if (share === null) return NONE;
  const text = percent(row.total - row.failed, row.total);
  return share === 1 ? text : html`<${Badge} level=${share < 0.99 ? "bad" : "warning"}>${text}<//>`;
}

/** @param {boolean | null} isSecured */
function securityText(isSecured) {
  return isSecured === null ? NONE : isSecured ? "yes" : html`<${Badge} level="warning">not all<//>`;
}

/** @param {ServiceRow} row */
function podsText({ node }) {
  return node.meshed === node.pods ? count(node.pods) : `${count(node.meshed)} of ${count(node.pods)}`;
}

/** @param {ServiceRow} row */
function findingsCell({ node }) {
  if (node.errors) return html`<${Badge} level="bad">${plural(node.errors, "error")}<//>`;
  if (node.warnings) return html`<${Badge} level="warning">${plural(node.warnings, "warning")}<//>`;
  return html`<span class="quiet">none</span>`;
}
