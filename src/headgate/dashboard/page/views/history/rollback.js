/** The writes of a rollback, under the caller's own rights and in the order of `headgate rollback`. */

import { ApiError, request } from "../../api.js";
import { differences } from "../../differences.js";
import { discoveredTypeOf, merge, objectPath } from "../../objects.js";
import { refName } from "../../units.js";

/**
 * @typedef {import("../../types.js").RestorationStep} RestorationStep
 * @typedef {Record<string, any>} JsonObject
 * @typedef {{step: RestorationStep, type: import("../../objects.js").ResourceType, stored: JsonObject | null}} Write
 */

/** The field manager of the writes, which the history names as their writer. */
const MANAGER = "headgate-rollback";

/**
 * Write steps, after the API server has accepted all of them as dry runs. Return the written ones, and the error that ended the rollback.
 *
 * @param {RestorationStep[]} steps
 * @returns {Promise<{written: RestorationStep[], error: ApiError | null}>}
 */
export async function rollBack(steps) {
  /** @type {RestorationStep[]} */
  const written = [];
  for (const isDryRun of [true, false]) {
    for (const step of steps) {
      try {
        await send(await prepared(step), isDryRun);
        if (!isDryRun) written.push(step);
      } catch (failure) {
        return { written, error: errorOf(failure, step, written, steps) };
      }
    }
  }
  return { written, error: null };
}

/**
 * @param {unknown} failure
 * @param {RestorationStep} step
 * @param {RestorationStep[]} written
 * @param {RestorationStep[]} steps
 */
function errorOf(failure, step, written, steps) {
  const { status, message } = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
  const names = (/** @type {RestorationStep[]} */ of) => of.map(({ object }) => refName(object)).join(", ");
  const outcome = written.length
    ? `Written before: ${names(written)}. Not written: ${names(steps.slice(written.length))}.`
    : "Nothing was written.";
  return new ApiError(status, `${refName(step.object)}: ${message.replace(/\.$/, "")}. ${outcome}`);
}

/**
 * Read the stored object of a step. Throws ApiError if it differs from the one in the step: the caller has not seen its current fields.
 *
 * @param {RestorationStep} step
 * @returns {Promise<Write>}
 */
async function prepared(step) {
  const type = await discoveredTypeOf(step);
  const stored = await storedAt(objectPath(type, step.object.namespace, step.object.name));
  if (!agrees(stored, step.present)) throw new ApiError(409, "it has changed meanwhile; look at the comparison again");
  return { step, type, stored };
}

/**
 * @param {string} path
 * @returns {Promise<JsonObject | null>}
 */
async function storedAt(path) {
  try {
    return await request(path);
  } catch (error) {
    if (error instanceof ApiError && error.status === 404) return null;
    throw error;
  }
}

/**
 * Return whether a stored object is the one that the history has. The history leaves out the status, and some of the metadata and annotations.
 *
 * @param {JsonObject | null} stored
 * @param {JsonObject | null} recorded
 */
export function agrees(stored, recorded) {
  if (!stored || !recorded) return !stored && !recorded;
  const { metadata, status: _, ...content } = stored;
  const { metadata: of, ...rest } = recorded;
  const { labels = {}, ownerReferences = [], annotations = {} } = metadata;
  return (
    !differences(content, rest).length &&
    !differences(labels, of.labels ?? {}).length &&
    !differences(ownerReferences, of.ownerReferences ?? []).length &&
    Object.entries(of.annotations ?? {}).every(([name, text]) => annotations[name] === text)
  );
}

/**
 * @param {Write} write
 * @param {boolean} isDryRun
 */
async function send({ step: { verb, object, present, wanted }, type, stored }, isDryRun) {
  const { namespace, name } = object;
  const query = { fieldManager: MANAGER, ...(isDryRun ? { dryRun: "All" } : {}) };
  if (verb === "create") {
    await request(objectPath(type, namespace), { method: "POST", body: wanted, query });
    return;
  }
  const path = objectPath(type, namespace, name);
  const { uid, resourceVersion } = stored?.metadata ?? {};
  if (verb === "update") {
    await merge(path, mergePatch(withMaps(present ?? {}), withMaps(wanted ?? {})), resourceVersion, query);
    return;
  }
  const options = { preconditions: { uid, resourceVersion }, ...(isDryRun ? { dryRun: ["All"] } : {}) };
  await request(path, { method: "DELETE", body: { apiVersion: "v1", kind: "DeleteOptions", ...options } });
}

/**
 * Return an object with its labels and annotations also if it has none: a patch then names each, and keeps those that the history leaves out.
 *
 * @param {JsonObject} object
 * @returns {JsonObject}
 */
function withMaps(object) {
  return { ...object, metadata: { labels: {}, annotations: {}, ...object.metadata } };
}

/**
 * Return the merge patch (RFC 7386) that leads from one object to another.
 *
 * @param {JsonObject} before
 * @param {JsonObject} after
 * @returns {JsonObject}
 */
export function mergePatch(before, after) {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])];
  const changed = names.filter((name) => differences(before[name], after[name]).length);
  return Object.fromEntries(changed.map((name) => [name, patchValue(before[name], after[name])]));
}

/**
 * @param {unknown} before
 * @param {unknown} after
 */
function patchValue(before, after) {
  if (!isMap(after)) return after ?? null;
  return mergePatch(isMap(before) ? before : {}, after);
}

/**
 * @param {unknown} value
 * @returns {value is JsonObject}
 */
function isMap(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
