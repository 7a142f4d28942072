/** The first view: the health of the mesh, its traffic, and the findings that need attention. */

import { inspectPath } from "../../api.js";
import { linkTo, place } from "../../location.js";
import { currentNamespace, namespaceOptions } from "../../namespace.js";
import { CheckField, SearchField, SelectField } from "../../parts/fields.js";
import { bySeverity, FindingCards } from "../../parts/findings.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { duration } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { OverviewGraph } from "./graph.js";
import { Health } from "./health.js";
import { ServiceTable } from "./service_table.js";
import { isFailing, matching, serviceRows } from "./services.js";

/**
 * @typedef {import("../../types.js").GraphStatus} GraphStatus
 * @typedef {import("../../types.js").Finding} Finding
 */

const WINDOW = "30s";
const MOST_FINDINGS = 5;
/** @type {[value: string, title: string][]} */
const WINDOWS = [
  ["10s", "10 seconds"],
  ["30s", "30 seconds"],
  ["1m", "1 minute"],
  ["5m", "5 minutes"],
];
/** What to do about a graph without edges, by its reason. */
const ADVICE = {
  NoTraffic: "No request arrived in this window. Send some, or choose a longer window.",
  NoSidecars:
    "No pod has a sidecar, so no proxy counts requests. Label the namespace headgate.dev/inject=true and restart its workloads.",
  NothingRouted:
    "The mesh has no Service yet. Apply manifests with kubectl, or add them to the directory of headgate up.",
};

export function Overview() {
  const mesh = useReading(inspectPath("meshstatuses"));
  return html`<h1 class="unseen">Overview</h1>
    <${Read} reading=${mesh} what="the status of the mesh">
      ${(/** @type {any} */ list) => (list.items[0] ? html`<${Health} status=${list.items[0].status} />` : null)}
    <//>
    <${Traffic} />
    <${WorstFindings} />`;
}

function Traffic() {
  const namespace = currentNamespace("trafficgraphs");
  const reading = useReading(`${inspectPath("trafficgraphs", namespace)}/services`, {
    window: place.value.query.window || WINDOW,
  });
  /** @type {GraphStatus | undefined} */
  const graph = reading.value?.status;
  return html`<section aria-labelledby="traffic-title">
    <div class="section-head">
      <h2 id="traffic-title">Services</h2>
      <div class="filters" role="search" aria-label="Filter the services">
        <${SearchField} name="search" label="Search" />
        <${SelectField} name="namespace" label="Namespace" options=${namespaceOptions(graph?.nodes.map((node) => node.namespace) ?? [])} />
        <${SelectField} name="window" label="Window" options=${WINDOWS} initial=${WINDOW} />
        <${CheckField} name="failing" label="Only failing" />
      </div>
    </div>
    <${Read} reading=${reading} what="the traffic">${() => graph && html`<${Services} graph=${graph} object=${reading.value} />`}<//>
  </section>`;
}

/** @param {{graph: GraphStatus, object: import("../../types.js").TrafficGraph}} properties */
function Services({ graph, object }) {
  const { search = "", failing = "" } = place.value.query;
  const all = serviceRows(graph);
  const rows = matching(all, search).filter((row) => !failing || isFailing(row));
  return html`${graph.reason ? html`<${NoTraffic} graph=${graph} />` : html`<${OverviewGraph} graph=${object} />`}
    ${
      rows.length
        ? html`<${ServiceTable} rows=${rows} milliseconds=${graph.windowMilliseconds} />`
        : all.length
          ? html`<${Empty} title="No service matches the filter" />`
          : null
    }`;
}

/** @param {{graph: GraphStatus}} properties */
function NoTraffic({ graph }) {
  const title =
    graph.reason === "NoTraffic"
      ? `No traffic in the last ${duration(graph.windowMilliseconds)}`
      : "No traffic is counted";
  return html`<${Empty} title=${title}><p>${graph.message || ADVICE[graph.reason || "NoTraffic"]}</p><//>`;
}

function WorstFindings() {
  const reading = useReading(inspectPath("findings", currentNamespace("findings")));
  const due = bySeverity(reading.value?.items ?? []).filter(({ severity }) => severity !== "Note");
  if (reading.value && !due.length) return null;
  return html`<section aria-labelledby="findings-title">
    <div class="section-head">
      <h2 id="findings-title">Findings</h2>
      ${due.length > MOST_FINDINGS ? html`<a href=${linkTo(["findings"])}>Show all ${due.length}</a>` : null}
    </div>
    <${Read} reading=${reading} what="the findings">
      ${() => html`<${FindingCards} findings=${due.slice(0, MOST_FINDINGS)} />`}
    <//>
  </section>`;
}
