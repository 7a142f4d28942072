/** The meshes of tests/dashboard/meshes.py, which tests/dashboard/test_graph_modules.py writes into a file. */

import { readFileSync } from "node:fs";

/** @type {Record<string, any>} */
export const meshes = JSON.parse(readFileSync(process.env.MESHES ?? "", "utf8"));

/** @param {string} name */
export function status(name) {
  return structuredClone(meshes[name].status);
}
