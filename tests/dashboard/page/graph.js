/** The graph with its filter, without the remaining page: `show(graph)` draws a TrafficGraph, and `state` has what the user chose. */

import { NO_FILTER } from "/graph/filter.js";
import { FilterBar } from "/graph/filter_bar.js";
import { TrafficGraph } from "/graph/graph.js";
import { html, render } from "/vendor/htm-preact.js";

globalThis.state = { graph: null, filter: NO_FILTER, selected: "" };

function change(part) {
  globalThis.state = { ...globalThis.state, ...part };
  const { graph, filter, selected } = globalThis.state;
  const set = (next) => change({ filter: next });
  render(
    html`<${FilterBar} graph=${graph} filter=${filter} onChange=${set} />
      <${TrafficGraph} graph=${graph} filter=${filter} onFilter=${set} selected=${selected} onSelect=${(id) => change({ selected: id })} />`,
    document.getElementById("app"),
  );
}

globalThis.show = (graph) => change({ graph });
change({});
