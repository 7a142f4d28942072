/** The state of the page in its URL: `#/VIEW/PART...?NAME=VALUE`. So a link or a reload shows the same. */

import { signal } from "./vendor/signals.js";

/** @typedef {{path: string[], query: Record<string, string>}} Place */

/**
 * Parse the fragment of a URL.
 *
 * @param {string} hash
 * @returns {Place}
 */
export function parsePlace(hash) {
  const [path = "", query = ""] = hash.replace(/^#?\/?/, "").split("?", 2);
  return {
    path: path.split("/").filter(Boolean).map(decoded),
    query: Object.fromEntries(new URLSearchParams(query)),
  };
}

/**
 * Return the fragment of a place. Empty values of the query are left out.
 *
 * @param {string[]} path
 * @param {Record<string, string>} [query]
 * @returns {string}
 */
export function placeHash(path, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${path.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

/** The current place. Views read it, and `go` and `setQuery` change it. */
export const place = signal(parsePlace(location.hash));

addEventListener("hashchange", () => {
  place.value = parsePlace(location.hash);
});

/**
 * Show another place, which becomes an entry of the browser's history.
 *
 * @param {string[]} path
 * @param {Record<string, string>} [query]
 */
export function go(path, query = {}) {
  location.hash = placeHash(path, query);
}

/**
 * Change values of the query without an entry in the browser's history; an empty value removes its name.
 *
 * @param {Record<string, string>} changes
 */
export function setQuery(changes) {
  const { path, query } = place.value;
  const hash = placeHash(path, { ...query, ...changes });
  history.replaceState(null, "", hash);
  place.value = parsePlace(hash);
}

/**
 * Return the link to a view that keeps what all views share: the namespace and the window.
 *
 * @param {string[]} path
 * @param {Record<string, string>} [query]
 * @returns {string}
 */
export function linkTo(path, query = {}) {
  const { namespace = "", window: window_ = "" } = place.value.query;
  return placeHash(path, { namespace, window: window_, ...query });
}

/** @param {string} text */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
