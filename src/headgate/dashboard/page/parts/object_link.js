/** The name of an object, as a link to its YAML if the page edits its kind. */

import { linkTo } from "../location.js";
import { EDITABLE } from "../objects.js";
import { refName } from "../units.js";
import { html } from "../vendor/htm-preact.js";

/** @param {{object: import("../types.js").Ref}} properties */
export function ObjectLink({ object }) {
  const { group, kind, namespace, name } = object;
  const id = `${kind}.${group}`;
  if (!Object.hasOwn(EDITABLE, id)) return refName(object);
  return html`<a href=${linkTo(["yaml", id, namespace, name])}>${refName(object)}</a>`;
}
