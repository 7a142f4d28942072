/** Objects as YAML that people read and edit. The API server parses it, so this page only writes YAML, and finds the lines of fields. */

/** @typedef {Record<string, any>} KubernetesObject */

const INDENT = "  ";
/** Texts that stay texts without quotes in every version of YAML. */
const PLAIN = /^[A-Za-z_/][\w./-]*$/;
/** Words that YAML reads as other values than texts. */
const WORDS = new Set(["y", "n", "yes", "no", "on", "off", "true", "false", "null"]);

/**
 * Return what users write of an object: without its status, and without the metadata that the API server writes.
 *
 * @param {KubernetesObject} object
 * @returns {KubernetesObject}
 */
export function editable({ status: _status, apiVersion, kind, metadata, ...rest }) {
  const { name, namespace, labels, annotations, ownerReferences, finalizers } = metadata;
  const own = Object.entries({ name, namespace, labels, annotations, ownerReferences, finalizers });
  return { apiVersion, kind, metadata: Object.fromEntries(own.filter(([, value]) => value !== undefined)), ...rest };
}

/**
 * Return an object of JSON as YAML in block style.
 *
 * @param {KubernetesObject} object
 */
export function toYaml(object) {
  return `${block(object, "").join("\n")}\n`;
}

/**
 * Return the lines of a value that is not empty.
 *
 * @param {any} value
 * @param {string} indent
 * @returns {string[]}
 */
function block(value, indent) {
  if (Array.isArray(value)) {
    return value.flatMap((part) => {
      if (isScalar(part)) return [`${indent}- ${scalar(part)}`];
      const [first = "", ...others] = block(part, indent + INDENT);
      return [`${indent}- ${first.slice(indent.length + INDENT.length)}`, ...others];
    });
  }
  return Object.entries(value).flatMap(([key, part]) => {
    const name = `${indent}${scalar(key)}:`;
    if (isScalar(part)) return [`${name} ${scalar(part)}`];
    return [name, ...block(part, Array.isArray(part) ? indent : indent + INDENT)];
  });
}

/** @param {any} value */
function isScalar(value) {
  return value === null || typeof value !== "object" || Object.keys(value).length === 0;
}

/** @param {any} value a text, a number, a boolean, null, or an empty list or object */
function scalar(value) {
  if (typeof value !== "string") return JSON.stringify(value);
  if (PLAIN.test(value) && !WORDS.has(value.toLowerCase())) return value;
  // A JSON text is a YAML text, except for characters that end a line in YAML 1.1.
  return JSON.stringify(value).replace(
    /[\u0085\u2028\u2029]/g,
    (end) => `\\u${end.charCodeAt(0).toString(16).padStart(4, "0")}`,
  );
}

/**
 * Return the line of a field in YAML in block style, counted from 1, or of the nearest parent that has one; 0 if there is none.
 *
 * @param {string} text
 * @param {string} field such as `spec.backends[1].weight`
 */
export function lineOf(text, field) {
  const lines = text.split("\n");
  const steps = [...field.matchAll(/\[(\d+)\]|\["?([^"\]]+)"?\]|([^.[\]]+)/g)];
  let [from, to, nearest] = [0, lines.length, 0];
  for (const [, index, bracketed, named] of steps) {
    const at =
      index === undefined ? keyAt(lines, from, to, bracketed ?? named ?? "") : entryAt(lines, from, to, Number(index));
    if (at < 0) break;
    nearest = at + 1;
    const own = index === undefined ? keyColumn(lines[at] ?? "") : depthOf(lines[at] ?? "");
    // An entry of a list begins on the line of its dash, whose first key is looked for too.
    from = index === undefined ? at + 1 : at;
    to = endOf(lines, at + 1, to, own, index === undefined);
  }
  return nearest;
}

/** @param {string} line @returns the column of its first key, after dashes */
function keyColumn(line) {
  return /^ *(?:- +)*/.exec(line)?.[0].length ?? 0;
}

/** @param {string} line @returns the column of its first character */
function depthOf(line) {
  return /^ */.exec(line)?.[0].length ?? 0;
}

/** @param {string} line */
function isBlank(line) {
  return /^\s*(#|$)/.test(line);
}

/**
 * @param {string[]} lines
 * @param {number} from
 * @param {number} to
 * @param {string} key
 */
function keyAt(lines, from, to, key) {
  const first = lines.slice(from, to).find((line) => !isBlank(line));
  if (first === undefined) return -1;
  // A field of an entry without its index, as API servers write some: which entry is not known if there are several.
  if (entryAt(lines, from, to, 1) >= 0 && depthOf(first) < keyColumn(first)) return -1;
  const column = keyColumn(first);
  for (let at = from; at < to; at += 1) {
    const line = lines[at] ?? "";
    if (isBlank(line) || keyColumn(line) !== column) continue;
    const name = /^(?:"([^"]*)"|'([^']*)'|([^:]+?))\s*:(?:\s|$)/.exec(line.slice(column));
    if ((name?.[1] ?? name?.[2] ?? name?.[3]) === key) return at;
  }
  return -1;
}

/**
 * @param {string[]} lines
 * @param {number} from
 * @param {number} to
 * @param {number} index
 */
function entryAt(lines, from, to, index) {
  const entries = [];
  let column = -1;
  for (let at = from; at < to; at += 1) {
    const line = lines[at] ?? "";
    if (!/^\s*-(\s|$)/.test(line)) continue;
    if (column < 0) column = depthOf(line);
    if (depthOf(line) === column) entries.push(at);
  }
  return entries[index] ?? -1;
}

/**
 * Return the line after a field or an entry of a list. A list may begin in the column of its key.
 *
 * @param {string[]} lines
 * @param {number} from
 * @param {number} to
 * @param {number} column
 * @param {boolean} isKey
 */
function endOf(lines, from, to, column, isKey) {
  for (let at = from; at < to; at += 1) {
    const line = lines[at] ?? "";
    if (isBlank(line)) continue;
    const isEntry = /^\s*-(\s|$)/.test(line);
    const depth = depthOf(line);
    if (depth < column || (depth === column && !(isKey && isEntry))) return at;
  }
  return to;
}

/**
 * Return YAML with the resourceVersion that it replaces, and the number of the line that this adds; 0 if it adds none, because the metadata
 * has one or is not in block style.
 *
 * @param {string} text
 * @param {string} version
 * @returns {{text: string, added: number}}
 */
export function withVersion(text, version) {
  const lines = text.split("\n");
  const at = lines.findIndex((line) => /^(["']?)metadata\1\s*:\s*(#.*)?$/.test(line)) + 1;
  const first = lines.slice(at).find((line) => !isBlank(line)) ?? "";
  const column = depthOf(first);
  const end = endOf(lines, at, lines.length, 0, true);
  const own = lines
    .slice(at, end)
    .some((line) => depthOf(line) === column && /^["']?resourceVersion["']?\s*:/.test(line.trim()));
  if (!at || !column || own) return { text, added: 0 };
  lines.splice(at, 0, `${" ".repeat(column)}resourceVersion: ${JSON.stringify(version)}`);
  return { text: lines.join("\n"), added: at + 1 };
}

/**
 * Return a message of the API server with the lines of the user's text in place of the lines of the text that was sent.
 *
 * @param {string} message
 * @param {number} added the number of a line that only the sent text has, or 0
 * @returns {{message: string, line: number}} `line` is that of the position at the end, else the first one; 0 without a line in the message
 */
export function placed(message, added) {
  const own = (/** @type {string} */ line) =>
    added && Number(line) >= added ? Math.max(1, Number(line) - 1) : Number(line);
  const shifted = message.replace(/\bline (\d+)/g, (_, line) => `line ${own(line)}`);
  const [, line = 0] = /\(line (\d+), column \d+\)\W*$/.exec(shifted) ?? /\bline (\d+)/.exec(shifted) ?? [];
  return { message: shifted, line: Number(line) };
}
