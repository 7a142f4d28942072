/** The editor of an object's YAML: it checks each edit at the API server without a write, plans it, writes it, and undoes it. */

import { ApiError, answered, INSPECT } from "../../api.js";
import { conditionOf, replace, writeOver } from "../../objects.js";
import { Badge } from "../../parts/badge.js";
import { Command } from "../../parts/command.js";
import { PlanView } from "../../parts/plan.js";
import { Failed, Loading } from "../../parts/states.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useState } from "../../vendor/preact-hooks.js";
import { editable, lineOf, placed, toYaml, withVersion } from "../../yaml.js";
import { YamlText } from "./yaml_text.js";

/**
 * @typedef {{line: number, field: string, message: string}} Mistake
 * @typedef {{text: string, mistakes: Mistake[], warnings: string[], object: any, plan: import("../../parts/plan.js").PlanAnswer}} Check what is known about `text`
 */

const CHECK_DELAY_MS = 400;
/** What a user can do where the page could not add the version, which some API servers need. */
const BLOCK_STYLE = {
  field: "metadata",
  message: "Write it in block style: each field on a line of its own, indented.",
};

/**
 * Return the state of the editor, and the functions that change it.
 *
 * @param {string} path
 * @param {any} streamed the object as the API has it
 */
function useYamlEdit(path, streamed) {
  const [written, setWritten] = useState(/** @type {{before: string, object: any} | null} */ (null));
  const [edit, setEdit] = useState(/** @type {{base: string, text: string} | null} */ (null));
  const [undo, setUndo] = useState(/** @type {{from: string, to: any} | null} */ (null));
  const [warnings, setWarnings] = useState(/** @type {string[]} */ ([]));
  const [refused, setRefused] = useState(/** @type {Mistake[] | null} */ (null));
  // The stream brings what this page wrote a little later than the response to the write.
  const object = written && written.before === streamed.metadata.resourceVersion ? written.object : streamed;
  const current = toYaml(editable(object));
  const text = edit?.text ?? current;
  const isChanged = text !== current;
  // A status changes the version too: only another text is a conflict.
  const isOutdated = isChanged && edit !== null && edit.base !== current;
  const version = object.metadata.resourceVersion;
  const check = useCheck(path, isChanged && !isOutdated ? text : null, version);
  const about = check?.text === text ? check : null;
  const discard = () => {
    setEdit(null);
    setRefused(null);
  };
  const change = (/** @type {string} */ next) => {
    setRefused(null);
    setEdit({ base: edit?.base ?? current, text: next });
  };
  const write = async (/** @type {any} */ next, /** @type {any} */ back) => {
    // An object, not a text: its version is always set, so that the write of another writer is a conflict.
    const { metadata, ...rest } = editable(next);
    const isSame = (/** @type {any} */ stored) => toYaml(editable(stored)) === current;
    try {
      const done = await writeOver(path, version, isSame, (resourceVersion) =>
        replace(path, { ...rest, metadata: { ...metadata, resourceVersion } }, { dryRun: false }),
      );
      setWritten({ before: streamed.metadata.resourceVersion, object: done.object });
      setWarnings(done.warnings);
      setUndo(back === null ? null : { from: toYaml(editable(done.object)), to: back });
      discard();
    } catch (failure) {
      setRefused(mistakesOf(failure, text, 0));
    }
  };
  const undoTo = undo && !isChanged && undo.from === current ? undo.to : null;
  return { object, current, text, isChanged, isOutdated, about, refused, undoTo, warnings, discard, change, write };
}

/** @param {{path: string, object: any}} properties */
export function YamlEditor({ path, object: streamed }) {
  const edit = useYamlEdit(path, streamed);
  const { object, current, text, isChanged, isOutdated, about, refused, undoTo, warnings } = edit;
  const { discard, change, write } = edit;
  const mistakes = refused ?? about?.mistakes ?? [];
  const isReady = isChanged && !isOutdated && Boolean(about?.object);
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    if (isReady) write(about?.object, object);
  };
  return html`<form class="yaml-editor" aria-label="YAML" onSubmit=${submit}>
    <${Progress} object=${object} />
    <${YamlText} text=${text} mistakes=${mistakes} onInput=${change} />
    <${Mistakes} mistakes=${mistakes} isWrite=${refused !== null} />
    ${isOutdated ? html`<${Outdated} current=${current} />` : null}
    ${isChanged && !isOutdated ? html`<${Effect} check=${about} isRejected=${mistakes.length > 0} file=${`${object.metadata.name}.yaml`} />` : null}
    <div class="actions">
      <button type="submit" class="primary" disabled=${!isReady}>Apply</button>
      ${isChanged ? html`<button type="button" onClick=${discard}>Discard</button>` : null}
      ${undoTo === null ? null : html`<button type="button" onClick=${() => write(undoTo, null)}>Undo the change</button>`}
    </div>
    <div role="status">${warnings.map((warning) => html`<p class="quiet">${warning}</p>`)}</div>
  </form>`;
}

/** @param {{check: Check | null, isRejected: boolean, file: string}} properties */
function Effect({ check, isRejected, file }) {
  if (isRejected) return null;
  return html`${check?.warnings.map((warning) => html`<p><${Badge} level="warning">warning<//>${" "}${warning}</p>`)}
    ${check ? html`<${PlanView} answer=${check.plan} />` : html`<${Loading} what="the check of the API server" />`}
    <div><p class="quiet">The same, with this text in a file:</p><${Command} words=${["kubectl", "apply", "-f", file]} /></div>`;
}

/** @param {{object: any}} properties */
function Progress({ object }) {
  const accepted = conditionOf(object, "Accepted");
  const programmed = conditionOf(object, "Programmed");
  if (accepted?.status === "False") return html`<p><${Badge} level="bad">${accepted.message}<//></p>`;
  if (!programmed) return null;
  const level = programmed.status === "True" ? "good" : "warning";
  return html`<p><${Badge} level=${level}>${programmed.message || programmed.reason}<//></p>`;
}

/** @param {{mistakes: Mistake[], isWrite: boolean}} properties */
function Mistakes({ mistakes, isWrite }) {
  if (!mistakes.length) return null;
  const [first] = mistakes;
  if (mistakes.length === 1 && first && !first.line && !first.field)
    return html`<${Failed} outcome=${isWrite ? "The change was not written" : "The API server rejects this text"} error=${first} />`;
  return html`<div class="state failed" role="alert" id="yaml-mistakes">
    <p class="state-title">${isWrite ? "The change was not written" : "The API server rejects this text"}</p>
    <ul class="messages">${mistakes.map(
      ({ line, field, message }) =>
        html`<li>${line ? html`<strong>Line ${line}</strong>: ` : null}${field ? html`<code>${field}</code>: ` : null}${message}</li>`,
    )}</ul>
  </div>`;
}

/** @param {{current: string}} properties */
function Outdated({ current }) {
  return html`<div class="notice warning" role="status">
    <strong>The object has changed meanwhile.</strong> Discard your change, and begin with the new text:
    <details><summary>The new text</summary><pre class="yaml-text" tabindex="0">${current}</pre></details>
  </div>`;
}

/**
 * Return what the API server says about a text, once the user stops to type: a dry run with all checks of a write, then a plan.
 *
 * @param {string} path
 * @param {string | null} text null without a change
 * @param {string} version
 * @returns {Check | null}
 */
function useCheck(path, text, version) {
  const [check, setCheck] = useState(/** @type {Check | null} */ (null));
  useEffect(() => {
    if (text === null) return setCheck(null);
    const abort = new AbortController();
    const timer = setTimeout(
      () => checked(path, text, version, abort.signal).then((next) => !abort.signal.aborted && setCheck(next)),
      CHECK_DELAY_MS,
    );
    return () => {
      clearTimeout(timer);
      abort.abort();
    };
  }, [path, text, version]);
  return check;
}

/**
 * @param {string} path
 * @param {string} text
 * @param {string} version
 * @param {AbortSignal} signal
 * @returns {Promise<Check>}
 */
async function checked(path, text, version, signal) {
  const sent = withVersion(text, version);
  const none = { status: null, error: null };
  try {
    const { object, warnings } = await replace(path, sent.text, { dryRun: true, signal });
    const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Plan", spec: { objects: [editable(object)] } };
    const plan = await answered(`${INSPECT}/plans`, { method: "POST", body, signal });
    return { text, mistakes: [], warnings, object, plan };
  } catch (failure) {
    return { text, mistakes: mistakesOf(failure, text, sent.added), warnings: [], object: null, plan: none };
  }
}

/**
 * Return the mistakes that an error response names, each with its line in the text.
 *
 * @param {unknown} failure
 * @param {string} text
 * @param {number} added the number of a line that only the sent text had
 * @returns {Mistake[]}
 */
export function mistakesOf(failure, text, added) {
  const error = failure instanceof ApiError ? failure : new ApiError(0, String(failure));
  if (error.status === 409)
    return [{ line: 0, field: "", message: "The object has changed meanwhile. Look at it, and apply again." }];
  const named = error.causes
    .filter(({ message }) => message)
    .map((cause) => (isVersionMissing(cause) ? BLOCK_STYLE : cause));
  if (named.length)
    return named.map(({ field = "", message = "" }) => ({ line: field ? lineOf(text, field) : 0, field, message }));
  const [, field = ""] = /\b((?:spec|metadata)(?:\.[\w-]+|\[[^\]]+\])+)/.exec(error.message) ?? [];
  const { message, line } = placed(error.message, added);
  return [{ line: line || (field ? lineOf(text, field) : 0), field: "", message }];
}

/** @param {{field?: string, message?: string}} cause */
function isVersionMissing({ field, message = "" }) {
  return field === "metadata.resourceVersion" && message.includes("must be specified");
}
