/** The question of the explain view: what is in the URL of the page, the API's spec, and the command that prints the same. */

/**
 * A request, as texts of a form. `in` is the namespace of the caller and of short names, `headers` has a header on each line, `from` is
 * `KIND/NAME` or empty for the gateway, and `at` the number of a revision or empty.
 *
 * @typedef {{url: string, method: string, headers: string, from: string, in: string, gateway: string, at: string}} Question
 */

export const METHODS = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "CONNECT", "TRACE", "QUERY"];

/** The kinds of callers, each with the short names that kubectl and the command accept. */
const CALLERS = Object.entries({
  Pod: ["po"],
  Deployment: ["deploy"],
  StatefulSet: ["sts"],
  DaemonSet: ["ds"],
  Job: [],
  CronJob: ["cj"],
  ReplicaSet: ["rs"],
  ReplicationController: ["rc"],
  ServiceAccount: ["sa"],
});

/**
 * Return the kind that a word names as on the command line (`deployment`, `deployments`, `deploy`); of any other word the word itself.
 *
 * @param {string} word
 */
function callerKind(word) {
  const name = word.toLowerCase();
  const named = CALLERS.find(([kind, short]) =>
    [kind.toLowerCase(), `${kind.toLowerCase()}s`, ...short].includes(name),
  );
  return named?.[0] ?? word;
}

/**
 * Return what is wrong with the caller in a question, or an empty text.
 *
 * @param {string} from
 */
export function callerFault(from) {
  const [word = "", name = "", ...rest] = from.split("/");
  const isKind = CALLERS.some(([kind]) => kind === callerKind(word));
  if (!from || (isKind && name && !rest.length)) return "";
  const kinds = CALLERS.map(([kind]) => kind.toLowerCase());
  return `Write the caller as KIND/NAME, for example serviceaccount/web. Kinds are ${kinds.slice(0, -1).join(", ")} and ${kinds.at(-1)}.`;
}

/**
 * @param {Record<string, string>} query of the page's place
 * @returns {Question}
 */
export function questionOf(query) {
  const { url = "", method = "", headers = "", from = "", gateway = "", at = "" } = query;
  return { url, method, headers, from, in: query.in || "default", gateway, at };
}

/** @param {string} text a header on each line */
function headerFields(text) {
  const lines = text.split("\n").filter((line) => line.includes(":"));
  return lines.map((line) => {
    const at = line.indexOf(":", 1);
    return { name: line.slice(0, at).trim(), value: line.slice(at + 1).trim() };
  });
}

/** @param {Question} question */
export function specOf({ url, method, headers, from, gateway, at }) {
  const [word = "", name = ""] = from.split("/", 2);
  return {
    url,
    method: method || "GET",
    headers: headerFields(headers),
    ...(from ? { caller: { kind: callerKind(word), name } } : {}),
    ...(gateway ? { gateway } : {}),
    ...(at ? { revision: Number(at) } : {}),
  };
}

/** @param {Question} question */
export function commandOf({ url, method, headers, from, in: namespace, gateway, at }) {
  const words = ["headgate", "explain"];
  if (at) words.push("--at", at);
  if (method && method !== "GET") words.push(method);
  words.push(url);
  for (const { name, value } of headerFields(headers)) words.push("-H", `${name}: ${value}`);
  if (from) words.push("--from", from.toLowerCase());
  if (gateway) words.push("--via", `gateway/${gateway}`);
  // Without -n it would be the namespace of the kubeconfig's context.
  return [...words, "-n", namespace];
}
