/** The objects of users, under the caller's own rights: their paths, and writes of them. */

import { ApiError, request, send, YAML } from "./api.js";

/** @typedef {{group: string, version: string, resource: string}} ResourceType */

export const SPLITS = { group: "split.smi-spec.io", version: "v1alpha4", resource: "trafficsplits" };
export const CANARIES = { group: "headgate.dev", version: "v1beta1", resource: "canaries" };

/** The kinds that the page edits as YAML, by kind and group. @type {Record<string, ResourceType>} */
export const EDITABLE = {
  "TrafficSplit.split.smi-spec.io": SPLITS,
  "TrafficTarget.access.smi-spec.io": { group: "access.smi-spec.io", version: "v1alpha2", resource: "traffictargets" },
  "HTTPRouteGroup.specs.smi-spec.io": { group: "specs.smi-spec.io", version: "v1alpha4", resource: "httproutegroups" },
  "TCPRoute.specs.smi-spec.io": { group: "specs.smi-spec.io", version: "v1alpha4", resource: "tcproutes" },
  "HTTPRoute.gateway.networking.k8s.io": { group: "gateway.networking.k8s.io", version: "v1", resource: "httproutes" },
  "GRPCRoute.gateway.networking.k8s.io": { group: "gateway.networking.k8s.io", version: "v1", resource: "grpcroutes" },
};

/**
 * Return the path of an object, or without a name that of all objects of a namespace or of all namespaces.
 *
 * @param {ResourceType} type
 * @param {string} [namespace]
 * @param {string} [name]
 */
export function objectPath({ group, version, resource }, namespace = "", name = "") {
  const place = namespace ? `/namespaces/${encodeURIComponent(namespace)}` : "";
  return `${group ? `/apis/${group}` : "/api"}/${version}${place}/${resource}${name ? `/${encodeURIComponent(name)}` : ""}`;
}

/** @type {Map<string, Promise<any>>} the lists of resources, by the path of their group and version */
const discovered = new Map();

/**
 * Return the resource type of an object of any kind, as the API server lists it. Throws ApiError.
 *
 * @param {{object: import("./types.js").Ref, present: Record<string, any> | null, wanted: Record<string, any> | null}} step
 * @returns {Promise<ResourceType>}
 */
export async function discoveredTypeOf({ object: { kind }, present, wanted }) {
  const [version = "", group = ""] = String((present ?? wanted)?.apiVersion)
    .split("/")
    .reverse();
  const path = group ? `/apis/${group}/${version}` : `/api/${version}`;
  const list = discovered.get(path) ?? request(path);
  discovered.set(path, list);
  list.catch(() => discovered.delete(path));
  /** @type {{name: string, kind: string}[]} */
  const resources = (await list).resources;
  const resource = resources.find((candidate) => candidate.kind === kind && !candidate.name.includes("/"));
  if (!resource) throw new ApiError(404, `the API server has no resource of the kind ${kind} in ${path}`);
  return { group, version, resource: resource.name };
}

/**
 * Merge fields into an object, and return it with the warnings of the write. Throws ApiError: 409 if the object has changed since
 * `resourceVersion`.
 *
 * @param {string} path
 * @param {Record<string, unknown>} fields
 * @param {string} [resourceVersion] empty: whatever version the object has
 * @param {Record<string, string>} [query]
 * @returns {Promise<{object: any, warnings: string[]}>}
 */
export async function merge(path, fields, resourceVersion = "", query = {}) {
  const response = await send(path, {
    method: "PATCH",
    contentType: "application/merge-patch+json",
    body: resourceVersion
      ? { ...fields, metadata: { .../** @type {{}} */ (fields.metadata), resourceVersion } }
      : fields,
    query,
  });
  return { object: await response.json(), warnings: warningsIn(response.headers.get("warning") ?? "") };
}

/**
 * Replace an object, and return it with the warnings of the write. With `dryRun`, only check it. Throws ApiError: 409 if the object has
 * changed since the resourceVersion in its metadata.
 *
 * @param {string} path
 * @param {string | Record<string, any>} content YAML, or the object
 * @param {{dryRun: boolean, signal?: AbortSignal}} options
 * @returns {Promise<{object: any, warnings: string[]}>}
 */
export async function replace(path, content, { dryRun, signal }) {
  const query = { fieldValidation: "Strict", ...(dryRun ? { dryRun: "All" } : {}) };
  const response = await send(path, {
    method: "PUT",
    body: content,
    query,
    ...(typeof content === "string" ? { contentType: YAML } : {}),
    ...(signal ? { signal } : {}),
  });
  return { object: await response.json(), warnings: warningsIn(response.headers.get("warning") ?? "") };
}

/** The attempts to write over an object whose status changes meanwhile. */
const MOST_ATTEMPTS = 5;

/**
 * Write over an object of which the user saw a version. A status that is written meanwhile changes the version too, and its event arrives a
 * moment later: only other content is a conflict. Throws ApiError.
 *
 * @template T
 * @param {string} path
 * @param {string} version
 * @param {(stored: any) => boolean} isSame whether a stored object has the content that the user saw
 * @param {(version: string) => Promise<T>} write
 * @returns {Promise<T>}
 */
export async function writeOver(path, version, isSame, write) {
  for (let attempt = 1, current = version; ; attempt++) {
    try {
      return await write(current);
    } catch (failure) {
      if (!(failure instanceof ApiError && failure.status === 409) || attempt === MOST_ATTEMPTS) throw failure;
      const stored = await request(path);
      if (!isSame(stored)) throw failure;
      current = stored.metadata.resourceVersion;
    }
  }
}

/**
 * Create an object, and return it. Throws ApiError.
 *
 * @param {any} object
 * @returns {Promise<any>}
 */
export async function create(object) {
  const response = await send(objectPath(typeOf(object), object.metadata.namespace), { method: "POST", body: object });
  return response.json();
}

/**
 * Delete an object that this page has created, unless another one has its name by now. Throws ApiError.
 *
 * @param {any} object
 */
export async function remove(object) {
  const { namespace, name, uid } = object.metadata;
  const body = { apiVersion: "v1", kind: "DeleteOptions", preconditions: { uid } };
  await send(objectPath(typeOf(object), namespace, name), { method: "DELETE", body });
}

/**
 * Return an object's type. The page edits its kind.
 *
 * @param {{apiVersion: string, kind: string}} object
 * @returns {ResourceType}
 */
export function typeOf({ apiVersion, kind }) {
  const [group = "", version = ""] = apiVersion.split("/", 2);
  const type = EDITABLE[`${kind}.${group}`];
  if (!type) throw new Error(`unreachable: the page writes no ${kind}`);
  return { ...type, version };
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
