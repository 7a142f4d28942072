/** The traffic graph of the overview; its filter and what is selected are in the URL. */

import { FilterBar } from "../../graph/filter_bar.js";
import { filterOf, queryOf } from "../../graph/filter_query.js";
import { TrafficGraph } from "../../graph/graph.js";
import { place, setQuery } from "../../location.js";
import { html } from "../../vendor/htm-preact.js";
import { useMemo } from "../../vendor/preact-hooks.js";

/** @type {(keyof import("../../graph/types.js").Filter)[]} */
const IN_HEAD = ["search", "failing", "namespaces"];

/** @param {{graph: import("../../types.js").TrafficGraph}} properties */
export function OverviewGraph({ graph }) {
  const { query } = place.value;
  const state = JSON.stringify(filterOf(query));
  const filter = useMemo(() => JSON.parse(state), [state]);
  const onFilter = (/** @type {import("../../graph/types.js").Filter} */ changed) => setQuery(queryOf(changed));
  return html`<${FilterBar} graph=${graph} filter=${filter} onChange=${onFilter} without=${IN_HEAD} />
    <${TrafficGraph} graph=${graph} filter=${filter} onFilter=${onFilter} selected=${query.selected ?? ""}
      onSelect=${(/** @type {string} */ id) => setQuery({ selected: id })} />`;
}
