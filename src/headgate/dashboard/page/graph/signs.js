/**
 * Small signs of the graph, each with a shape of its own, so that none depends on its color.
 * @import { MarkShape } from "./types.js"
 */

import { html } from "../vendor/htm-preact.js";

/** The paths of signs in a square of 14 by 14, around its center. */
const PATHS = {
  failing: "M-3-3 3 3M3-3-3 3",
  denied: "M-3.6 0H3.6",
  error: "M0-3.4V.6M0 3V3.4",
  warning: "M0-2.2V1.4M0 3.4V3.8",
  band: "M-3.5 0H3.5M-1.5-2.5-4 0-1.5 2.5M1.5-2.5 4 0 1.5 2.5",
  fits: "M-3.2 0-.8 2.6 3.4-2.6",
};

/** The outlines of signs: a circle for traffic, a diamond and a triangle for findings. */
const OUTLINES = {
  failing: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0Z",
  denied: "M-6 0a6 6 0 1 0 12 0a6 6 0 1 0-12 0Z",
  error: "M0-7 7 0 0 7-7 0Z",
  warning: "M0-6.5 7 6H-7Z",
  band: "M-6.5-5H6.5V5H-6.5Z",
  fits: "M0 0",
};

/**
 * A sign at a point of an SVG.
 * @param {{shape: MarkShape, x: number, y: number}} properties
 */
export function Sign({ shape, x, y }) {
  return html`<g class=${`sign sign-${shape}`} transform=${`translate(${x} ${y})`} aria-hidden="true">
    <path class="sign-outline" d=${OUTLINES[shape]} />
    <path class="sign-inside" d=${PATHS[shape]} />
  </g>`;
}

/**
 * A closed lock at a point of an SVG: mutual TLS.
 * @param {{x: number, y: number}} properties
 */
export function Lock({ x, y }) {
  return html`<g class="lock" transform=${`translate(${x} ${y})`} aria-hidden="true">
    <path class="lock-bow" d="M-2.6-.5V-2.6a2.6 2.6 0 0 1 5.2 0V-.5" />
    <path class="lock-body" d="M-4-.8H4V5H-4Z" />
  </g>`;
}

/**
 * A sign beside text of the page.
 * @param {{shape: MarkShape | "lock"}} properties
 */
export function InlineSign({ shape }) {
  return html`<svg class="inline-sign" viewBox="-8 -8 16 16" aria-hidden="true" focusable="false">
    ${shape === "lock" ? html`<${Lock} x=${0} y=${0} />` : html`<${Sign} shape=${shape} x=${0} y=${0} />`}
  </svg>`;
}
