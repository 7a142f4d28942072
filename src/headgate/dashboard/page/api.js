/** Requests to the API below the page's own origin. */

import { signal } from "./vendor/signals.js";

export const YAML = "application/yaml";
export const INSPECT = "/apis/inspect.headgate.dev/v1beta1";

/** Whether the server has another version of the page than this one. A reload shows it. */
export const outdated = signal(false);

/**
 * Why requests do not reach the API: `session`: headgate has started again since this browser opened the URL with the token. `server`: nothing
 * listens at the page's address.
 */
export const lost = signal(/** @type {"" | "session" | "server"} */ (""));

const OWN_DIGEST = new URL(import.meta.url).pathname.split("/")[2] ?? "";

/** An error response of the API, or no response (`status` 0). */
export class ApiError extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {string} [reason]
   * @param {{field?: string, message?: string}[]} [causes] the fields of an object that are invalid
   */
  constructor(status, message, reason = "", causes = []) {
    super(message);
    this.status = status;
    this.reason = reason;
    this.causes = causes;
  }
}

/**
 * @typedef {object} RequestOptions
 * @property {string} [method]
 * @property {unknown} [body] a value that is sent as JSON; with a content type of YAML a text that is sent as it is
 * @property {string} [contentType]
 * @property {Record<string, string>} [query]
 * @property {AbortSignal} [signal]
 */

/**
 * Send a request and return the response, whose status is 2xx. Throws ApiError.
 *
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<Response>}
 */
export async function send(
  path,
  { method = "GET", body, contentType = "application/json", query = {}, signal: abort } = {},
) {
  const text = new URLSearchParams(query).toString();
  /** @type {Response} */
  let response;
  try {
    response = await fetch(text ? `${path}?${text}` : path, {
      method,
      headers: { accept: "application/json", ...(body === undefined ? {} : { "content-type": contentType }) },
      ...(body === undefined ? {} : { body: contentType === YAML ? String(body) : JSON.stringify(body) }),
      ...(abort ? { signal: abort } : {}),
    });
  } catch (error) {
    if (abort?.aborted) throw error;
    lost.value = "server";
    throw new ApiError(0, "The server of this page does not respond. Is headgate still running?");
  }
  const digest = response.headers.get("headgate-page");
  if (digest && digest !== OWN_DIGEST) outdated.value = true;
  lost.value = !digest && response.status === 401 ? "session" : ""; // the API server's own 401 has the digest
  if (!response.ok) throw await errorOf(response);
  return response;
}

/**
 * Send a request and return the object in the response. Throws ApiError.
 *
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<any>}
 */
export async function request(path, options) {
  const response = await send(path, options);
  try {
    return await response.json();
  } catch (error) {
    if (options?.signal?.aborted) throw error;
    throw new ApiError(0, "The response ended early.");
  }
}

/**
 * Send a request, and return the status of the object in the response, or the error.
 *
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<{status: any, error: ApiError | null}>}
 */
export async function answered(path, options) {
  try {
    return { status: (await request(path, options)).status, error: null };
  } catch (error) {
    return { status: null, error: error instanceof ApiError ? error : new ApiError(0, String(error)) };
  }
}

/**
 * Return the lines of a streamed response as objects, once it has begun. Throws ApiError.
 *
 * @param {string} path
 * @param {RequestOptions} [options]
 * @returns {Promise<AsyncGenerator<any>>}
 */
export async function lines(path, options) {
  return parsed(await send(path, options));
}

/**
 * @param {Response} response
 * @returns {AsyncGenerator<any>}
 */
async function* parsed(response) {
  if (!response.body) return;
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const parts = (rest + decoder.decode(value, { stream: true })).split("\n");
      rest = parts.pop() ?? "";
      for (const part of parts) if (part.trim()) yield JSON.parse(part);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

/**
 * Return the path of an inspect resource: of one namespace, or without it of all.
 *
 * @param {string} plural
 * @param {string} [namespace]
 */
export function inspectPath(plural, namespace = "") {
  return `${INSPECT}${namespace ? `/namespaces/${encodeURIComponent(namespace)}` : ""}/${plural}`;
}

/** @param {Response} response */
async function errorOf(response) {
  const text = await response.text().catch(() => "");
  try {
    const status = JSON.parse(text);
    return new ApiError(
      response.status,
      String(status.message),
      String(status.reason ?? ""),
      status.details?.causes ?? [],
    );
  } catch {
    return new ApiError(response.status, text.trim().split("\n", 1)[0] || `The API answers with ${response.status}.`);
  }
}
