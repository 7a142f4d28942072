/** An object as YAML: what the API server says about an edit, its effect, and the write. */

import { linkTo, place } from "../../location.js";
import { EDITABLE, objectPath } from "../../objects.js";
import { Empty, Read } from "../../parts/states.js";
import { useReading } from "../../readings.js";
import { may } from "../../rights.js";
import { html } from "../../vendor/htm-preact.js";
import { editable, toYaml } from "../../yaml.js";
import { YamlEditor } from "./yaml_editor.js";

/** @typedef {import("../../objects.js").ResourceType} ResourceType */

export function YamlObject() {
  const [, kind = "", namespace = "", name = ""] = place.value.path;
  const type = Object.hasOwn(EDITABLE, kind) ? EDITABLE[kind] : undefined;
  const title = `${kind.split(".", 1)[0]} ${namespace}/${name}`;
  return html`<p><a href=${linkTo([])}>Overview</a></p>
    <h1>${title}</h1>
    ${
      type && namespace && name
        ? html`<${Editable} key=${`${kind}/${namespace}/${name}`} type=${type} title=${title} namespace=${namespace} name=${name} />`
        : html`<${Empty} title="The page does not edit such an object"><p>Use kubectl edit.</p><//>`
    }`;
}

/** @param {{type: ResourceType, title: string, namespace: string, name: string}} properties */
function Editable({ type, title, namespace, name }) {
  const reading = useReading(objectPath(type, namespace), { fieldSelector: `metadata.name=${name}` });
  const mayWrite = may({ verb: "update", group: type.group, resource: type.resource, namespace, name });
  return html`<${Read} reading=${reading} what=${title}>
    ${() => {
      const listed = reading.value?.items[0];
      if (!listed) return html`<${Empty} title="It does not exist" />`;
      // The objects of a list have neither a kind nor a version of their own on every API server.
      const object = { ...listed, apiVersion: `${type.group}/${type.version}`, kind: title.split(" ", 1)[0] };
      const owner = listed.metadata.ownerReferences?.find(
        (/** @type {any} */ reference) => reference.kind === "Canary",
      );
      const owned = owner
        ? html`<div class="notice warning">Its weights belong to the <a href=${linkTo(["rollouts", namespace, owner.name])}>Canary ${owner.name}</a>, which writes them again.</div>`
        : null;
      return mayWrite === false
        ? html`<p class="quiet">You may not change this object.</p><pre class="yaml-text" tabindex="0">${toYaml(editable(object))}</pre>`
        : html`${owned}<${YamlEditor} key=${object.metadata.uid} path=${objectPath(type, namespace, name)} object=${object} />`;
    }}
  <//>`;
}
