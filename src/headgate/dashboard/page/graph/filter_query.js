/**
 * The filter of the graph in the query of the page's URL. Pure.
 * @import { Filter } from "./types.js"
 */

import { NO_FILTER } from "./filter.js";

/**
 * Return the filter that a query has.
 * @param {Record<string, string>} query
 * @returns {Filter}
 */
export function filterOf(query) {
  const { search, labels, around } = { ...NO_FILTER, ...query };
  const list = (/** @type {string | undefined} */ text) => (text ? text.split(",") : []);
  return {
    search,
    labels,
    around,
    namespaces: list(query.namespaces),
    kinds: list(query.kinds),
    failing: query.failing === "true",
    hops: Math.min(9, Math.max(1, Number(query.hops) || NO_FILTER.hops)),
  };
}

/**
 * Return the changes to a query that give it a filter; an empty value removes its name.
 * @param {Filter} filter
 * @returns {Record<string, string>}
 */
export function queryOf({ search, labels, around, namespaces, kinds, failing, hops }) {
  return {
    search,
    labels,
    around,
    namespaces: namespaces.join(","),
    kinds: kinds.join(","),
    failing: failing ? "true" : "",
    hops: around && hops !== NO_FILTER.hops ? String(hops) : "",
  };
}
