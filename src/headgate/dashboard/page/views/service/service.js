/** A Service: its traffic over time by backend, callers and callees, the splits that direct it, and findings about it. */

import { inspectPath } from "../../api.js";
import { linkTo, place } from "../../location.js";
import { outcome } from "../../outcome.js";
import { Badge } from "../../parts/badge.js";
import { Command } from "../../parts/command.js";
import { Denied } from "../../parts/denied.js";
import { FindingCards } from "../../parts/findings.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { latency, percent, plural, rate } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { AccessRules } from "./access_rules.js";
import { useNeighbors } from "./neighbors.js";
import { Tap } from "./tap.js";
import { Traffic } from "./traffic.js";

/**
 * @typedef {import("../../types.js").GraphStatus} GraphStatus
 * @typedef {import("../../types.js").GraphEdge} GraphEdge
 * @typedef {import("../../types.js").Finding} Finding
 */

export function Service() {
  const [, namespace = "", name = ""] = place.value.path;
  const url = `http://${name}.${namespace}/`;
  return html`<p><a href=${linkTo([])}>Overview</a></p>
    <div class="section-head">
      <h1>Service ${namespace}/${name}</h1>
      <a href=${linkTo(["explain"], { url })}>Explain a request to it</a>
    </div>
    <${Audited} namespace=${namespace} name=${name} />
    <${Traffic} key=${`${namespace}/${name}`} namespace=${namespace} name=${name} />
    <${Neighbors} namespace=${namespace} name=${name} />
    <${AccessRules} key=${`${namespace}/${name}`} namespace=${namespace} name=${name} />
    <${Tap} namespace=${namespace} name=${name} />
    <${Findings} namespace=${namespace} name=${name} />
    <${Command} words=${["kubectl", "traffic", "edges", `service/${name}`, "-n", namespace]} />`;
}

/**
 * Say how many requests rules in audit mode would have denied, if there are any.
 *
 * @param {{namespace: string, name: string}} properties
 */
function Audited({ namespace, name }) {
  const { status, index } = useNeighbors(namespace, name);
  const edges = status?.edges.filter(({ target, copy }) => target === index && !copy) ?? [];
  const audited = edges.reduce((sum, edge) => sum + outcome(edge).audited, 0);
  if (!audited) return null;
  return html`<p><${Badge} level="warning">audit: ${plural(audited, "request")} would have been denied<//>${" "}
    <span class="quiet">in the last 30 seconds; rules in audit mode deny nothing.</span></p>
    <${Command} words=${["kubectl", "traffic", "audit", "-n", namespace]} />`;
}

/** @param {{namespace: string, name: string}} properties */
function Neighbors({ namespace, name }) {
  const { reading, index } = useNeighbors(namespace, name);
  return html`<${Read} reading=${reading} what="its callers">
    ${(/** @type {{status: GraphStatus}} */ { status }) => {
      if (index < 0)
        return html`<${Empty} title="The mesh has no such Service"><p>It has no pod with a sidecar, and nothing called it in the last 30 seconds.</p><//>`;
      return html`<div class="plots"><${Edges} title="Callers" graph=${status} edges=${status.edges.filter(({ target }) => target === index)} end="source" />
        <${Edges} title="Callees" graph=${status} edges=${status.edges.filter(({ source }) => source === index)} end="target" />
        <${CallingBackends} graph=${status} index=${index} />
        <${SplitsOf} graph=${status} index=${index} /></div>`;
    }}
  <//>`;
}

/** @param {{title: string, graph: GraphStatus, edges: GraphEdge[], end: "source" | "target"}} properties */
function Edges({ title, graph, edges, end }) {
  if (!edges.length) return html`<section><h2>${title}</h2><p class="quiet">None in the last 30 seconds.</p></section>`;
  return html`<section>
    <h2>${title}</h2>
    <div class="table-frame" role="region" aria-label=${title} tabindex="0">
      <table>
        <thead><tr><th scope="col">Name</th><th scope="col" class="number">Requests</th><th scope="col" class="number">Success</th><th scope="col" class="number">p99</th><th scope="col" class="number">Denied</th><th scope="col">mTLS</th></tr></thead>
        <tbody>${edges.map((edge) => html`<${EdgeRow} graph=${graph} edge=${edge} end=${end} />`)}</tbody>
      </table>
    </div>
  </section>`;
}

/**
 * Name the backends of a Service that call others: the calls of a pod count for one of its Services.
 *
 * @param {{graph: GraphStatus, index: number}} properties
 */
function CallingBackends({ graph: { nodes, edges, splits }, index }) {
  const backends = splits
    .filter(({ service }) => service === index)
    .flatMap((split) => split.backends.map(({ service }) => service));
  const calling = [...new Set(backends)].filter((at) => at !== index && edges.some(({ source }) => source === at));
  if (!calling.length) return null;
  return html`<section aria-label="Callees of its backends">
    <p class="quiet">The calls of a pod count for one of its Services. Backends of this Service that call others:${" "}
      ${calling.map((at, position) => html`${position ? ", " : null}<${ServiceName} node=${nodes[at]} />`)}.</p>
  </section>`;
}

/** @param {{node: import("../../types.js").GraphNode | undefined}} properties */
function ServiceName({ node }) {
  return node ? html`<a href=${linkTo(["service", node.namespace, node.name])}>${node.name}</a>` : null;
}

/** @param {{graph: GraphStatus, edge: GraphEdge, end: "source" | "target"}} properties */
function EdgeRow({ graph, edge, end }) {
  const node = graph.nodes[edge[end]];
  const { requests, connections, total, failed, denied, audited } = outcome(edge);
  const title = node ? `${node.name}${node.namespace ? ` (${node.namespace})` : ""}` : "unknown";
  return html`<tr>
    <th scope="row">${node?.kind === "Service" ? html`<a href=${linkTo(["service", node.namespace, node.name])}>${title}</a>` : title}${edge.copy ? ", copies" : ""}</th>
    <td class="number">${rate(requests + connections, graph.windowMilliseconds)}</td>
    <td class="number">${percent(total - failed, total)}</td>
    <td class="number">${latency(edge.p99Microseconds)}</td>
    <td class="number"><${Denied} denied=${denied} audited=${audited} /></td>
    <td>${edge.exchanged ? (edge.secured === edge.exchanged ? "yes" : "not all") : "–"}</td>
  </tr>`;
}

/** @param {{graph: GraphStatus, index: number}} properties */
function SplitsOf({ graph, index }) {
  const splits = graph.splits.filter(({ service, object }) => service === index && object.kind === "TrafficSplit");
  const names = [...new Set(splits.map(({ object }) => `${object.namespace}/${object.name}`))];
  if (!names.length) return null;
  return html`<section>
    <h2>Splits</h2>
    <ul>${names.map((name) => html`<li><a href=${linkTo(["splits", ...name.split("/")])}>TrafficSplit ${name}</a></li>`)}</ul>
  </section>`;
}

/** @param {{namespace: string, name: string}} properties */
function Findings({ namespace, name }) {
  const reading = useReading(inspectPath("findings", namespace));
  /** @type {Finding[]} */
  const findings = (reading.value?.items ?? []).filter(
    (/** @type {Finding} */ { object, message }) => object.name === name || message.includes(`${namespace}/${name} `),
  );
  if (!findings.length) return null;
  return html`<section><h2>Findings</h2><${FindingCards} findings=${findings} /></section>`;
}
