/** The namespace that views show. */

import { place } from "./location.js";
import { may } from "./rights.js";

/**
 * Return the namespace in the URL, or an empty text for all of them. A caller who may not list a resource in all namespaces gets the default
 * namespace of the kubeconfig's context instead.
 *
 * @param {string} resource
 * @param {string} [group] by default the inspect API
 */
export function currentNamespace(resource, group = "inspect.headgate.dev") {
  const chosen = place.value.query.namespace;
  if (chosen) return chosen;
  const sees = may({ verb: "list", group, resource });
  return sees === false ? (document.documentElement.dataset.namespace ?? "") : "";
}

/**
 * Return the options of a field that selects a namespace.
 *
 * @param {Iterable<string>} names
 * @returns {[value: string, title: string][]}
 */
export function namespaceOptions(names) {
  const sorted = [...new Set(names)].filter(Boolean).sort();
  return [["", "All"], ...sorted.map((name) => /** @type {[string, string]} */ ([name, name]))];
}

/**
 * Return the options of a command for a namespace, or for all of them if it is empty.
 *
 * @param {string} namespace
 */
export function namespaceWords(namespace) {
  return namespace ? ["-n", namespace] : ["-A"];
}
