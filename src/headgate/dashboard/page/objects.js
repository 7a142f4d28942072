/** The objects of users, under the caller's own rights: their paths, and writes of them. */

import { send } from "./api.js";

/** @typedef {{group: string, version: string, resource: string}} ResourceType */

export const SPLITS = { group: "split.smi-spec.io", version: "v1alpha4", resource: "trafficsplits" };
export const CANARIES = { group: "headgate.dev", version: "v1beta1", resource: "canaries" };

/**
 * Return the path of an object, or without a name that of all objects of a namespace or of all namespaces.
 *
 * @param {ResourceType} type
 * @param {string} [namespace]
 * @param {string} [name]
 */
export function objectPath({ group, version, resource }, namespace = "", name = "") {
  const place = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `/apis/${group}/${version}${place}/${resource}${name ? `/${encodeURIComponent(name)}` : ""}`;
}

/**
 * Merge fields into an object, and return it with the warnings of the write. Throws ApiError: 409 if the object has changed since
 * `resourceVersion`.
 *
 * @param {string} path
 * @param {Record<string, unknown>} fields
 * @param {string} resourceVersion empty: whatever version the object has
 * @returns {Promise<{object: any, warnings: string[]}>}
 */
export async function merge(path, fields, resourceVersion = "") {
  const response = await send(path, {
    method: "PATCH",
    contentType: "application/merge-patch+json",
    body: { ...fields, ...(resourceVersion ? { metadata: { resourceVersion } } : {}) },
  });
  return { object: await response.json(), warnings: warningsIn(response.headers.get("warning") ?? "") };
}

/**
 * Return the texts of a Warning header: `299 - "text"`, separated by commas.
 *
 * @param {string} header a character for each byte, as fetch returns it; the API server writes UTF-8
 */
export function warningsIn(header) {
  const text = new TextDecoder().decode(Uint8Array.from(header, (character) => character.charCodeAt(0)));
  return [...text.matchAll(/\d{3} \S+ "((?:[^"\\]|\\.)*)"/g)].map(([, text = ""]) => text.replace(/\\(.)/g, "$1"));
}

/**
 * Return the condition of a type in the status of an object, if it is about the current generation.
 *
 * @param {any} object
 * @param {string} type
 * @returns {{status: string, reason: string, message: string} | undefined}
 */
export function conditionOf(object, type) {
  const conditions = /** @type {any[]} */ (object.status?.conditions ?? []);
  const condition = conditions.find((candidate) => candidate.type === type);
  const generation = condition?.observedGeneration ?? object.status?.observedGeneration;
  return generation === object.metadata.generation ? condition : undefined;
}
