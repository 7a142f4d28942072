/** The health line: proxies, pods, certificates, store and findings, each with its state, and the problems of the mesh. */

import { linkTo } from "../../location.js";
import { Badge } from "../../parts/badge.js";
import { now, Time } from "../../parts/time.js";
import { count, duration, plural, refName } from "../../units.js";
import { html } from "../../vendor/htm-preact.js";

/**
 * @typedef {import("../../types.js").MeshState} MeshState
 * @typedef {import("../../parts/badge.js").Level} Level
 * @typedef {{title: string, level: Level, text: string, detail?: import("../../vendor/preact.js").ComponentChildren, href?: string}} Tile
 */

/** @param {{status: MeshState}} properties */
export function Health({ status }) {
  const tiles = [proxyTile(status), podTile(status), certificateTile(status), storeTile(status), findingTile(status)];
  return html`<section aria-label="Health of the mesh">
    <ul class="tiles">${tiles.map((tile) => tile && html`<${HealthTile} key=${tile.title} tile=${tile} />`)}</ul>
    ${status.problems.length ? html`<${Problems} problems=${status.problems} />` : null}
  </section>`;
}

/** @param {{tile: Tile}} properties */
function HealthTile({ tile }) {
  const content = html`<span class="tile-title">${tile.title}</span>
    <${Badge} level=${tile.level}>${tile.text}<//>
    <span class="tile-detail">${tile.detail}</span>`;
  return html`<li>${tile.href ? html`<a class="tile" href=${tile.href}>${content}</a>` : html`<div class="tile">${content}</div>`}</li>`;
}

/** @param {{problems: MeshState["problems"]}} properties */
function Problems({ problems }) {
  return html`<ul class="problems" aria-label="Problems of the mesh">
    ${problems.map(
      ({ reason, message, object }) =>
        html`<li><strong>${reason}</strong>${" "}${object ? `${refName(object)}: ` : ""}${message}</li>`,
    )}
  </ul>`;
}

/**
 * @param {MeshState} status
 * @returns {Tile}
 */
function proxyTile({ proxies }) {
  const { total, inSync, lagging, refused, disconnected } = proxies;
  const states = /** @type {[number, string][]} */ ([
    [refused, "rejected a resource"],
    [disconnected, "disconnected"],
    [lagging, "lagging"],
  ]);
  return {
    title: "Proxies",
    level: refused || disconnected ? "bad" : lagging ? "warning" : "good",
    text: `${count(inSync)} of ${count(total)} in sync`,
    detail: states
      .filter(([number]) => number)
      .map(([number, word]) => `${count(number)} ${word}`)
      .join(", "),
    href: linkTo(["proxies"]),
  };
}

/**
 * @param {MeshState} status
 * @returns {Tile | null}
 */
function podTile({ workloads }) {
  if (!workloads) return null;
  const { ready, wanted, unready } = workloads;
  return {
    title: "Pods",
    level: ready < wanted || unready.length ? "warning" : "good",
    text: `${count(ready)} of ${count(wanted)} ready`,
    detail: unready.slice(0, 1).map(({ object, message }) => `${refName(object)}: ${message}`),
  };
}

/**
 * @param {MeshState} status
 * @returns {Tile}
 */
function certificateTile({ certificates }) {
  const { total, faults, firstExpiryTime } = certificates;
  return {
    title: "Certificates",
    level: faults ? "bad" : "good",
    text: faults ? `${count(faults)} of ${count(total)} not valid` : `${count(total)} valid`,
    detail: firstExpiryTime ? html`first expires <${Time} time=${firstExpiryTime} />` : "",
  };
}

/**
 * @param {MeshState} status
 * @returns {Tile | null}
 */
function storeTile({ store }) {
  if (!store) return null;
  const { writable, damaged, message, failingSinceTime } = store;
  const since = failingSinceTime ? ` for ${duration(now.value - Date.parse(failingSinceTime))}` : "";
  return {
    title: "Store",
    level: !writable ? "bad" : damaged.length ? "warning" : "good",
    text: writable ? "writable" : `not writable${since}`,
    detail: writable ? (damaged.length ? plural(damaged.length, "damaged object") : "") : message,
  };
}

/**
 * @param {MeshState} status
 * @returns {Tile}
 */
function findingTile({ findings }) {
  const { errors, warnings, notes } = findings;
  const parts = /** @type {[number, string][]} */ ([
    [errors, "error"],
    [warnings, "warning"],
  ]);
  return {
    title: "Findings",
    level: errors ? "bad" : warnings ? "warning" : "good",
    text:
      parts
        .filter(([number]) => number)
        .map(([number, noun]) => plural(number, noun))
        .join(", ") || "no error",
    detail: notes ? plural(notes, "note") : "",
    href: linkTo(["findings"]),
  };
}
