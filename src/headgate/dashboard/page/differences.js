/** The fields in which two objects differ. */

/**
 * Return the fields that differ between two objects, as their path and both values in JSON.
 *
 * @param {unknown} left
 * @param {unknown} right
 * @param {string} [path]
 * @returns {[path: string, left: string, right: string][]}
 */
export function differences(left, right, path = "") {
  if (JSON.stringify(left) === JSON.stringify(right)) return [];
  if (!isObject(left) || !isObject(right)) return [[path, shown(left), shown(right)]];
  const names = [...new Set([...Object.keys(left), ...Object.keys(right)])];
  return names.flatMap((name) => differences(left[name], right[name], joined(path, name, Array.isArray(left))));
}

/**
 * @param {unknown} value
 * @returns {value is Record<string, unknown>}
 */
function isObject(value) {
  return typeof value === "object" && value !== null;
}

/**
 * @param {string} path
 * @param {string} name
 * @param {boolean} isIndex
 */
function joined(path, name, isIndex) {
  if (isIndex) return `${path}[${name}]`;
  return path ? `${path}.${name}` : name;
}

/** @param {unknown} value */
function shown(value) {
  return value === undefined ? "–" : JSON.stringify(value);
}
