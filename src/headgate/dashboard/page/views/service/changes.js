/** What changed in the window of the plots: marks on a line of time, and the change at the current mark in the words of `plan`. */

import { inspectPath } from "../../api.js";
import { linkTo } from "../../location.js";
import { MARGIN } from "../../plot/plot.js";
import { useReading } from "../../readings.js";
import { localTime, plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";
import { useEffect, useRef, useState } from "../../vendor/preact-hooks.js";

/**
 * @typedef {import("../../types.js").Revision} Revision
 * @typedef {import("../../types.js").WeightChange} WeightChange
 * @typedef {{time: number, revision: number, by: string, lines: string[]}} Change `time` in seconds since the epoch
 * @typedef {Change[]} Mark the changes whose marks would cover each other
 */

/** The revisions of which marks are shown. */
const MOST = "200";
const MARK_PX = 24;
const MOST_LINES = 5;

/**
 * Return the newest revisions of a namespace, which the parts of the view share.
 *
 * @param {string} namespace
 */
function useRevisions(namespace) {
  return useReading(inspectPath("revisions", namespace), { newest: MOST });
}

/**
 * Return the number of the newest revision of a namespace; null while it is read, and 0 without one or without the right to read it.
 *
 * @param {string} namespace
 * @returns {number | null}
 */
export function useNewestRevision(namespace) {
  const { state, value } = useRevisions(namespace);
  if (state === "loading") return null;
  /** @type {Revision[]} */
  const revisions = value?.items ?? [];
  return Math.max(0, ...revisions.map(({ revision }) => revision));
}

/**
 * Return the changes to a Service in a range, oldest first: the revisions that concern it, and the weights that its series has.
 *
 * @param {string} namespace
 * @param {string} name
 * @param {WeightChange[]} weights
 * @param {[from: number, to: number]} range
 * @returns {{changes: Change[], older: number, error: import("../../api.js").ApiError | null}} `older`: revisions that were not read
 */
export function useChanges(namespace, name, weights, [from, to]) {
  const reading = useRevisions(namespace);
  /** @type {Revision[]} */
  const revisions = reading.value?.items ?? [];
  const weighted = new Set(weights.map(({ revision }) => revision));
  const own = revisions.filter((revision) => weighted.has(revision.revision) || concerns(revision, namespace, name));
  const read = new Set(own.map(({ revision }) => revision));
  const others = weights.filter(({ revision, recordTime }) => recordTime && !read.has(revision));
  const changes = [...own.map(changeOf), ...others.map(weightChange)];
  return {
    changes: changes
      .filter(({ time }) => time > from && time <= to)
      .sort((left, right) => left.time - right.time || left.revision - right.revision),
    older: Date.parse(revisions[0]?.recordTime ?? "") / 1000 > from ? (reading.value?.older ?? 0) : 0,
    error: reading.error,
  };
}

/**
 * Return whether a revision changed a Service, or how requests to it are treated.
 *
 * @param {Revision} revision
 * @param {string} namespace
 * @param {string} name
 */
export function concerns({ changes, effectMessages, reason }, namespace, name) {
  if (reason === "RecordingStarted") return false;
  const words = `${namespace}/${name}`;
  const named = (/** @type {string} */ message) => message.split(/[^\w./-]+/).includes(words);
  return (
    changes.some(({ object }) => object.namespace === namespace && object.name === name) || effectMessages.some(named)
  );
}

/**
 * @param {Revision} revision
 * @returns {Change}
 */
function changeOf({ revision, recordTime, changes, effectMessages }) {
  const writers = [...new Set(changes.map(({ by }) => by).filter(Boolean))];
  const lines = effectMessages.length
    ? effectMessages
    : changes.map(
        ({ object, action }) => `${refName(object)} ${action.toLowerCase()}, no effect on requests and access`,
      );
  return { time: Date.parse(recordTime ?? "") / 1000, revision, by: writers.join(", "), lines };
}

/**
 * @param {WeightChange} change
 * @returns {Change}
 */
function weightChange({ object, recordTime, revision, backends }) {
  const shares = backends.map(({ service, weight }) => `${service} ${weight}`).join(", ");
  const line = `${refName(object)}: ${shares || "deleted"}`;
  return { time: Date.parse(recordTime ?? "") / 1000, revision, by: "", lines: [line] };
}

/**
 * Return the marks of changes: those closer than a mark's width share one.
 *
 * @param {Change[]} changes oldest first
 * @param {number} width of a mark, in seconds
 * @returns {Mark[]}
 */
export function marksOf(changes, width) {
  /** @type {Mark[]} */
  const marks = [];
  for (const change of changes) {
    const last = marks.at(-1);
    if (last?.[0] && change.time - last[0].time < width) last.push(change);
    else marks.push([change]);
  }
  return marks;
}

/**
 * @param {{namespace: string, changes: Change[], older: number, error: import("../../api.js").ApiError | null, range: [from: number, to: number],
 *   current: number | null, onCurrent: (time: number) => void}} properties `current`: the time of the current mark, or of a further change at it
 */
export function Changes({ namespace, changes, older, error, range: [from, to], current, onCurrent }) {
  const line = useRef(/** @type {HTMLDivElement | null} */ (null));
  const width = useWidth(line) - MARGIN.left - MARGIN.right;
  const marks = marksOf(changes, ((to - from) * MARK_PX) / Math.max(width, MARK_PX));
  const shown = marks.find((mark) => mark.some(({ time }) => time === current));
  const onKeyDown = (/** @type {KeyboardEvent} */ event) => {
    const index = shown ? marks.indexOf(shown) : 0;
    const target = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: marks.length - 1 }[event.key];
    const mark = target === undefined ? undefined : marks[(target + marks.length) % marks.length];
    if (!mark?.[0]) return;
    event.preventDefault();
    onCurrent(mark[0].time);
    /** @type {HTMLElement[]} */ ([...(line.current?.children ?? [])])[marks.indexOf(mark)]?.focus();
  };
  return html`<figure class="plot changes-line">
    <figcaption>Changes</figcaption>
    <div class="change-marks" role="group" aria-label="Changes in this time" ref=${line} onKeyDown=${onKeyDown}>
      ${marks.map((mark, index) => {
        const [{ time } = { time: from }] = mark;
        const isCurrent = mark === shown;
        return html`<button type="button" key=${time} aria-pressed=${isCurrent ? "true" : "false"} aria-label=${titleOf(mark)}
          tabindex=${isCurrent || (!shown && index === 0) ? 0 : -1}
          style=${{ left: `${MARGIN.left + (width * (time - from)) / (to - from)}px` }}
          onClick=${() => onCurrent(time)} onMouseEnter=${() => onCurrent(time)} onFocus=${() => onCurrent(time)}>${mark.length > 1 ? mark.length : "▾"}</button>`;
      })}
    </div>
    ${
      marks.length
        ? html`<div class="change-text" role="region" aria-label="The change" aria-live="polite" tabindex="0">${
            shown
              ? shown.map(
                  (change) => html`<${ChangeText} key=${change.revision} change=${change} namespace=${namespace} />`,
                )
              : html`<p class="quiet">Point at a mark, or walk there with the arrow keys, to see what changed.</p>`
          }</div>`
        : error
          ? null
          : html`<p class="quiet">Nothing that concerns this Service has changed in this time.</p>`
    }
    ${older ? html`<p class="quiet">${plural(older, "older revision")} of the namespace have no marks.</p>` : null}
    ${error ? html`<p class="quiet">The history can't be read: ${error.message}</p>` : null}
  </figure>`;
}

/** @param {{change: Change, namespace: string}} properties */
function ChangeText({ change: { time, revision, by, lines }, namespace }) {
  const further = lines.length - MOST_LINES;
  const query = { namespace, rollback: String(revision - 1) };
  return html`<div class="change">
    <p><strong>Revision ${revision}</strong>, ${localTime(new Date(time * 1000).toISOString())}${by ? `, by ${by}` : ""}</p>
    <ul class="messages">${lines.slice(0, MOST_LINES).map((text) => html`<li>${text}</li>`)}
      ${further > 0 ? html`<li>and ${plural(further, "further effect")}</li>` : null}</ul>
    <p><a href=${linkTo(["history", String(revision)], query)}>What would a rollback to before revision ${revision} write?</a></p>
  </div>`;
}

/** @param {Mark} mark */
function titleOf(mark) {
  const numbers = mark.map(({ revision }) => revision);
  const [first] = mark;
  const time = new Date((first?.time ?? 0) * 1000).toLocaleTimeString();
  return mark.length > 1
    ? `${mark.length} changes from ${time} on: revisions ${numbers.join(", ")}`
    : `${time}: revision ${numbers[0]}`;
}

/**
 * Return the width of an element in pixels, 0 before it is laid out.
 *
 * @param {{current: HTMLElement | null}} element
 */
function useWidth(element) {
  const [width, setWidth] = useState(0);
  useEffect(() => {
    if (!element.current) return;
    const resized = new ResizeObserver(([entry]) => setWidth(entry?.contentRect.width ?? 0));
    resized.observe(element.current);
    return () => resized.disconnect();
  }, []);
  return width;
}
