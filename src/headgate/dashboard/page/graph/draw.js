/**
 * The SVG elements of the graph: boxes of namespaces, lines, labels and nodes. Each is drawn again only when what it shows changes.
 * @import { GraphLink, GraphNode, Mark, Point, Rectangle } from "./types.js"
 * @import { Route } from "./routes.js"
 */

import { Component, html } from "../vendor/htm-preact.js";
import { NODE } from "./places.js";
import { SPLIT_WIDTH } from "./shares.js";
import { Lock, Sign } from "./signs.js";

/**
 * Return a component that is drawn again only when a property changes.
 * @template {object} Properties
 * @param {(properties: Properties) => any} draw
 */
function memo(draw) {
  return /** @type {any} */ (
    class extends Component {
      /** @param {any} next */
      shouldComponentUpdate(next) {
        const properties = /** @type {any} */ (this.props);
        return Object.keys({ ...properties, ...next }).some((name) => properties[name] !== next[name]);
      }

      /** @param {any} properties */
      render(properties) {
        return draw(properties);
      }
    }
  );
}

/** The heads of lines; a bar instead of an arrow where all traffic is denied. */
export function Heads() {
  const heads = ["traffic", "failing", "split", "mirror"];
  return html`<defs>
    ${heads.map(
      (
        name,
      ) => html`<marker key=${name} id=${`head-${name}`} class=${`head head-${name}`} viewBox="0 0 10 10" refX="8" refY="5"
        markerWidth="10" markerHeight="10" markerUnits="userSpaceOnUse" orient="auto"><path d="M0 .5 9 5 0 9.5Z" /></marker>`,
    )}
    <marker id="head-refused" class="head head-refused" viewBox="0 0 10 16" refX="4" refY="8" markerWidth="10" markerHeight="16"
      markerUnits="userSpaceOnUse" orient="auto"><path d="M2 0H6V16H2Z" /></marker>
  </defs>`;
}

/** The box of a namespace. */
export const Box = memo((/** @type {{name: string, place: Rectangle}} */ { name, place }) => {
  return html`<g class=${name ? "box" : "box box-outside"} aria-hidden="true">
    <rect x=${place.x} y=${place.y} width=${place.width} height=${place.height} rx="10" />
  </g>`;
});

/** The name of a namespace, above the lines that cross its box. */
export const BoxName = memo((/** @type {{name: string, place: Rectangle}} */ { name, place }) => {
  return html`<text class="box-name" aria-hidden="true" x=${place.x + 14} y=${place.y + 22}>${name || "Outside the mesh"}</text>`;
});

/** @param {GraphLink} link */
function headOf(link) {
  if (link.refused) return "refused";
  if (link.type !== "traffic") return link.type;
  return link.failing ? "failing" : "traffic";
}

/**
 * A line. A backend of a split is a band as wide as its wanted share, with a core as wide as the observed share.
 */
export const Link = memo(
  (
    /** @type {{link: GraphLink, route: Route, current: boolean, selected: boolean, reachable: boolean}} */ properties,
  ) => {
    const { link, route, current, selected, reachable } = properties;
    const states = [link.failing && "failing", link.refused && "refused", link.copy && "copy", selected && "selected"];
    const classes = ["link", `link-${link.type}`, current && "current", ...states].filter(Boolean).join(" ");
    const core = link.share ? Math.max(1, (link.share.observed || 0) * SPLIT_WIDTH) : 0;
    return html`<g class=${classes} data-id=${link.id} role="button" aria-label=${link.title} aria-pressed=${selected}
      tabindex=${reachable ? 0 : -1}>
      <path class="hit" d=${route.path} />
      <path class="line" d=${route.path} style=${{ strokeWidth: `${link.width}px` }} marker-end=${`url(#head-${headOf(link)})`} />
      ${link.share ? html`<path class="core" d=${route.path} style=${{ strokeWidth: `${core}px` }} />` : null}
    </g>`;
  },
);

const LINE = 14;
const LETTER = 6.7;

/**
 * Return the texts of a link's label, with the sign of each, and its size in pixels.
 * @param {GraphLink} link
 * @param {string} before the wanted share before it changed, or nothing
 */
export function labelOf(link, before = "") {
  const [first = "", ...rest] = link.lines;
  /** @type {{text: string, shape?: Mark["shape"], strong?: boolean}[]} */
  const rows = [
    ...(link.match ? [{ text: link.match, strong: true }] : []),
    ...(first ? [{ text: before ? `${first}, was ${before}` : first }] : []),
    ...rest.map((text) => ({ text })),
    ...link.marks,
  ];
  const width =
    Math.max(
      ...rows.map((row) => row.text.length * (row.shape || row.strong ? 7.3 : LETTER) + (row.shape ? 16 : 0)),
      0,
    ) + 14;
  return { rows, width: width + (link.secured ? 14 : 0), height: rows.length * LINE + 8 };
}

/** The label of a line, centered at its place. */
export const Label = memo((/** @type {{link: GraphLink, place: Point, before: string}} */ { link, place, before }) => {
  const { rows, width, height } = labelOf(link, before);
  const left = -width / 2;
  const classes = ["label", `label-${link.type}`, before && "changed"].filter(Boolean).join(" ");
  return html`<g class=${classes} data-id=${link.id} transform=${`translate(${place.x} ${place.y})`} aria-hidden="true">
    <rect x=${left} y=${-height / 2} width=${width} height=${height} rx="5" />
    ${link.secured ? html`<${Lock} x=${width / 2 - 10} y=${-height / 2 + 10} />` : null}
    ${rows.map((row, index) => {
      const y = -height / 2 + 4 + LINE * index + 10.5;
      return html`${row.shape ? html`<${Sign} shape=${row.shape} x=${left + 13} y=${y - 4} />` : null}
        <text class=${row.strong ? "match" : row.shape ? `mark mark-${row.shape}` : ""} x=${left + (row.shape ? 23 : 7)} y=${y}>${row.text}</text>`;
    })}
  </g>`;
});

/**
 * Return a text that fits into a number of characters; the middle is left out, because names differ at their ends.
 * @param {string} text
 * @param {number} most
 */
export function shortened(text, most) {
  if (text.length <= most) return text;
  const end = Math.floor((most - 1) / 2);
  return `${text.slice(0, most - 1 - end)}…${text.slice(text.length - end)}`;
}

/** A node: its name, its pods, and signs for its findings. */
export const Node = memo(
  (
    /** @type {{node: GraphNode, place: Point, current: boolean, selected: boolean, reachable: boolean}} */ properties,
  ) => {
    const { node, place, current, selected, reachable } = properties;
    const [left, top] = [-NODE.width / 2, -NODE.height / 2];
    const states = [
      node.outside && "outside",
      !node.outside && node.kind !== "Service" && "workload",
      current && "current",
      selected && "selected",
    ];
    const classes = ["node", ...states, node.failing && "failing"].filter(Boolean).join(" ");
    // The card alone is the button: its name says more than the texts on it, which may be shortened.
    return html`<g class=${classes} data-id=${node.id} transform=${`translate(${place.x} ${place.y})`}>
      <rect class="card" x=${left} y=${top} width=${NODE.width} height=${NODE.height} rx=${node.outside ? 25 : 8} role="button"
        aria-label=${node.title} aria-pressed=${selected} tabindex=${reachable ? 0 : -1}><title>${node.title}</title></rect>
      <text class="name" aria-hidden="true" x=${left + 12} y="-3">${shortened(node.name, 17 - 2 * node.marks.length)}</text>
      <text class="detail" aria-hidden="true" x=${left + 12} y="15">${shortened(node.detail, 24)}</text>
      ${node.marks.map((mark, index) => html`<${Sign} shape=${mark.shape} x=${-left - 14 - 18 * index} y=${-9} />`)}
    </g>`;
  },
);
