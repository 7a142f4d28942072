/** What the caller may do, as the API server answers (SelfSubjectAccessReview). The page offers only that. */

import { request } from "./api.js";
import { place } from "./location.js";
import { signal } from "./vendor/signals.js";

/** @typedef {{verb: string, group: string, resource: string, subresource?: string, namespace?: string, name?: string}} Right */

/** @type {Map<string, import("./vendor/signals.js").Signal<boolean | undefined>>} */
const answers = new Map();

/**
 * Return whether the caller has a right; undefined until the API server has answered. If it does not answer, the request itself will say
 * what it does: true.
 *
 * @param {Right} right
 * @returns {boolean | undefined}
 */
export function may(right) {
  const id = JSON.stringify(right);
  const earlier = answers.get(id);
  if (earlier) return earlier.value;
  const answer = signal(/** @type {boolean | undefined} */ (undefined));
  answers.set(id, answer);
  review(right).then((allowed) => {
    answer.value = allowed;
  });
  return answer.value;
}

/**
 * Return whether the caller may have a right in all namespaces, or in the one that views show: that of the URL or of the kubeconfig's context.
 *
 * @param {Right} right
 */
export function mayInShown(right) {
  if (may(right) !== false) return true;
  const namespace = place.value.query.namespace || document.documentElement.dataset.namespace;
  return namespace ? may({ ...right, namespace }) !== false : false;
}

/** @param {Right} right */
async function review(right) {
  try {
    const answer = await request("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {
      method: "POST",
      body: {
        apiVersion: "authorization.k8s.io/v1",
        kind: "SelfSubjectAccessReview",
        spec: { resourceAttributes: right },
      },
    });
    return Boolean(answer.status?.allowed);
  } catch {
    return true;
  }
}
