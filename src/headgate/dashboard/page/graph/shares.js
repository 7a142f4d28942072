/**
 * The lines of splits and mirrors: their wanted share beside the observed one. Pure.
 * @import { ApiBackend, ApiMirror, ApiSplit, GraphLink, GraphNode, Mark } from "./types.js"
 */

import { count, percent, plural, rate } from "../units.js";

/** The width of a whole split in pixels, which its backends divide. */
export const SPLIT_WIDTH = 26;

/**
 * Return a line for each backend of a split.
 * @param {ApiSplit} split
 * @param {GraphNode[]} nodes
 * @returns {GraphLink[]}
 */
export function splitLinks(split, nodes) {
  const total = split.backends.reduce((sum, backend) => sum + (backend.requests ?? 0), 0);
  return split.backends.map((backend) => splitLink(split, backend, nodes, total));
}

/**
 * @param {ApiSplit} split
 * @param {ApiBackend} backend
 * @param {GraphNode[]} nodes
 * @param {number} total
 * @returns {GraphLink}
 */
function splitLink(split, backend, nodes, total) {
  const source = /** @type {GraphNode} */ (nodes[split.service]);
  const target = /** @type {GraphNode} */ (nodes[backend.service]);
  const { kind, namespace, name } = split.object;
  const { requests } = backend;
  const wanted = backend.wanted.denominator > 0 ? backend.wanted.numerator / backend.wanted.denominator : 0;
  const observed = total > 0 ? requests / total : Number.NaN;
  const mark = bandMark(backend, total);
  const match = split.match ?? "";
  const lines = [`wanted ${percent(wanted, 1)}`, total > 0 ? `observed ${percent(requests, total)}` : "no requests"];
  return {
    id: `split:${kind}/${namespace}/${name}:${split.port ?? ""}:${match}>${target.id}`,
    type: "split",
    source: source.id,
    target: target.id,
    sourceName: source.name,
    targetName: target.name,
    width: Math.max(2, wanted * SPLIT_WIDTH),
    copy: false,
    failing: false,
    refused: false,
    secured: false,
    lines,
    marks: mark ? [mark] : [],
    match,
    object: `${kind} ${namespace}/${name}`,
    share: { wanted, observed },
    counts: backend,
    details: () => splitDetails(backend, { wanted, total, match }),
    title: [`Split ${source.name}`, `${lines.join(", ")} to ${target.name}`, match && `for ${match}`, mark?.text]
      .filter(Boolean)
      .join(", "),
  };
}

/**
 * Return whether the observed requests are in the 3-sigma band of the wanted share, as a mark.
 * @param {ApiBackend} backend
 * @param {number} total
 * @returns {Mark | undefined}
 */
function bandMark(backend, total) {
  const { requests = 0, expectedLow, expectedHigh } = backend;
  if (total === 0 || typeof expectedLow !== "number" || typeof expectedHigh !== "number") return undefined;
  const fits = requests >= expectedLow && requests <= expectedHigh;
  return fits ? { shape: "fits", text: "in its band" } : { shape: "band", text: `outside ${bandText(backend, total)}` };
}

/**
 * @param {ApiBackend} backend
 * @param {number} total
 */
function bandText({ expectedLow, expectedHigh }, total) {
  return `${tenths((expectedLow ?? 0) / total)}–${tenths((expectedHigh ?? 0) / total)} %`;
}

/** @param {number} share */
function tenths(share) {
  return String(Math.round(share * 1000) / 10);
}

/**
 * @param {ApiBackend} backend
 * @param {{wanted: number, total: number, match: string}} shares
 * @returns {[string, string][]}
 */
function splitDetails(backend, { wanted, total, match }) {
  /** @type {[string, string][]} */
  const details = [
    ["Wanted", percent(wanted, 1)],
    [
      "Observed",
      total > 0
        ? `${percent(backend.requests, total)} (${count(backend.requests)} of ${plural(total, "request")})`
        : "no requests in this window",
    ],
  ];
  if (total > 0 && typeof backend.expectedLow === "number" && typeof backend.expectedHigh === "number") {
    const counts = `${count(backend.expectedLow)} to ${count(backend.expectedHigh)} requests`;
    details.push(["3-sigma band", `${bandText(backend, total)} (${counts})`]);
  }
  if (match) details.push(["Requests", match]);
  return details;
}

/** The verdict of a comparison that proves nothing against the copies; the other ones are the reasons of the condition CopiesWorse. */
const NOT_PROVEN = "NotProven";

/**
 * Return a reason in words: `more failures` for `MoreFailures`.
 * @param {string} reason
 */
function words(reason) {
  return reason.replace(/(?<=[a-z])(?=[A-Z])/g, " ").toLowerCase();
}

/**
 * Return the dashed line of a mirror.
 * @param {ApiMirror} mirror
 * @param {GraphNode[]} nodes
 * @param {number} window milliseconds
 * @returns {GraphLink}
 */
export function mirrorLink(mirror, nodes, window) {
  const source = /** @type {GraphNode} */ (nodes[mirror.service]);
  const target = /** @type {GraphNode} */ (nodes[mirror.target]);
  const { kind, namespace, name } = mirror.object;
  const copies = mirror.copies ?? 0;
  const failures = mirror.failures ?? 0;
  const share = mirror.share.denominator > 0 ? mirror.share.numerator / mirror.share.denominator : 0;
  const verdict = mirror.verdict ?? "";
  const failing = failures > 0 && failures >= 0.01 * copies;
  const lines = [`copies ${percent(share, 1)}`, copies > 0 ? rate(copies, window) : "no copies"];
  /** @type {Mark[]} */
  const marks = [];
  if (verdict === NOT_PROVEN) marks.push({ shape: "fits", text: "not proven worse" });
  else if (verdict) marks.push({ shape: "warning", text: words(verdict) });
  if (failing) marks.push({ shape: "failing", text: `${percent(failures, copies)} failed` });
  return {
    id: `mirror:${kind}/${namespace}/${name}/${source.id}>${target.id}`,
    type: "mirror",
    source: source.id,
    target: target.id,
    sourceName: source.name,
    targetName: target.name,
    width: 2,
    copy: true,
    failing,
    refused: false,
    secured: false,
    lines: [lines.join(" · ")],
    marks,
    match: "",
    object: `${kind} ${namespace}/${name}`,
    counts: mirror,
    details: () => mirrorDetails(mirror, window),
    title: [`Mirror from ${source.name} to ${target.name}`, ...lines, ...marks.map((mark) => mark.text)].join(", "),
  };
}

/**
 * @param {ApiMirror} mirror
 * @param {number} window milliseconds
 */
function mirrorDetails({ share, copies, failures, verdict, message }, window) {
  /** @type {[string, string][]} */
  const details = [
    ["Copied", `${percent(share.numerator, share.denominator)} of the requests`],
    ["Copies", `${count(copies)} (${rate(copies, window)})`],
    ["Failed copies", count(failures)],
  ];
  if (verdict) details.push(["Comparison", verdict]);
  if (message) details.push(["", message]);
  return details;
}
