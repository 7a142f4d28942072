/** The views of the page: a line for each, in the order of the navigation. */

import { Explain } from "./explain/explain.js";
import { Findings } from "./findings/findings.js";
import { History } from "./history/history.js";
import { Overview } from "./overview/overview.js";
import { Proxies } from "./proxies/proxies.js";
import { Rollouts } from "./rollouts/rollouts.js";
import { Service } from "./service/service.js";
import { Splits } from "./splits/splits.js";
import { YamlObject } from "./yaml/yaml_object.js";

/**
 * A view. `needs` is the right without which the navigation does not offer it; `id` is the first part of its place, empty for the first
 * view. Views without a `title` are reached by links in other views.
 *
 * @typedef {object} View
 * @property {string} id
 * @property {string} title
 * @property {() => import("../vendor/preact.js").ComponentChildren} component
 * @property {import("../rights.js").Right} [needs]
 */

const GROUP = "inspect.headgate.dev";

/** @type {View[]} */
export const VIEWS = [
  { id: "", title: "Overview", component: Overview },
  { id: "service", title: "", component: Service },
  { id: "splits", title: "Splits", component: Splits },
  { id: "yaml", title: "", component: YamlObject },
  { id: "rollouts", title: "Rollouts", component: Rollouts },
  {
    id: "explain",
    title: "Explain",
    component: Explain,
    needs: { verb: "create", group: GROUP, resource: "explanations" },
  },
  { id: "history", title: "History", component: History, needs: { verb: "list", group: GROUP, resource: "revisions" } },
  { id: "proxies", title: "Proxies", component: Proxies, needs: { verb: "list", group: GROUP, resource: "proxies" } },
  {
    id: "findings",
    title: "Findings",
    component: Findings,
    needs: { verb: "list", group: GROUP, resource: "findings" },
  },
];
