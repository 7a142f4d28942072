/** A table that sorts by its columns, with its order in the URL, and shows many rows in steps. */

import { place, setQuery } from "../location.js";
import { count } from "../units.js";
import { html } from "../vendor/htm-preact.js";
import { useState } from "../vendor/preact-hooks.js";

/**
 * A column. `sort` returns what rows are ordered by; without it the column has no order. `number` aligns values to the right.
 *
 * @template Row
 * @typedef {object} Column
 * @property {string} id
 * @property {string} title
 * @property {(row: Row) => import("../vendor/preact.js").ComponentChildren} cell
 * @property {(row: Row) => string | number} [sort]
 * @property {boolean} [number]
 * @property {boolean} [header] whether the cell names its row
 * @property {boolean} [largestFirst]
 * @property {string} [hint]
 */

const STEP = 100;

/**
 * Return the rows in an order: `sort` is a column's id, with `-` before it for descending. Without one they keep their order.
 *
 * @template Row
 * @param {Row[]} rows
 * @param {Column<Row>[]} columns
 * @param {string} sort
 * @returns {Row[]}
 */
export function sorted(rows, columns, sort) {
  const descending = sort.startsWith("-");
  const value = columns.find(({ id }) => id === sort.replace(/^-/, ""))?.sort;
  if (!value) return rows;
  const sign = descending ? -1 : 1;
  return [...rows].sort((left, right) => {
    const [first, second] = [value(left), value(right)];
    if (typeof first === "string" && typeof second === "string") return sign * first.localeCompare(second);
    return sign * (Number(first) - Number(second));
  });
}

/**
 * @param {{name: string, caption: string, columns: Column<any>[], rows: any[], rowKey: (row: any) => string,
 *   rowClass?: (row: any) => string}} properties `name` is unique among the tables of a view
 */
export function Table({ name, caption, columns, rows, rowKey, rowClass = () => "" }) {
  const [limit, setLimit] = useState(STEP);
  const sort = place.value.query[`sort-${name}`] ?? "";
  const shown = sorted(rows, columns, sort).slice(0, limit);
  const row = (/** @type {any} */ value) => html`<tr key=${rowKey(value)} class=${rowClass(value)}>
    ${columns.map((column) => html`<${Cell} column=${column} row=${value} />`)}
  </tr>`;
  return html`<div class="table-frame" role="region" aria-label=${caption} tabindex="0">
      <table>
        <caption class="unseen">${caption}</caption>
        <thead><tr>${columns.map((column) => html`<${Heading} name=${name} column=${column} sort=${sort} />`)}</tr></thead>
        <tbody>${shown.map(row)}</tbody>
      </table>
    </div>
    ${
      rows.length > limit
        ? html`<button type="button" class="more" onClick=${() => setLimit(limit + 5 * STEP)}>
          Show more: ${count(rows.length - limit)} of ${count(rows.length)} are not shown
        </button>`
        : null
    }`;
}

/** @param {{column: Column<any>, row: any}} properties */
function Cell({ column, row }) {
  const style = column.number ? "number" : "";
  if (column.header) return html`<th scope="row" class=${style}>${column.cell(row)}</th>`;
  return html`<td class=${style} data-title=${column.title}>${column.cell(row)}</td>`;
}

/** @param {{name: string, column: Column<any>, sort: string}} properties */
function Heading({ name, column, sort }) {
  const style = column.number ? "number" : "";
  if (!column.sort) return html`<th scope="col" class=${style} title=${column.hint}>${column.title}</th>`;
  const isSorted = sort.replace(/^-/, "") === column.id;
  const descending = sort.startsWith("-");
  const first = column.largestFirst ? `-${column.id}` : column.id;
  const second = column.largestFirst ? column.id : `-${column.id}`;
  const next = sort === first ? second : sort === second ? "" : first;
  const direction = isSorted ? (descending ? "descending" : "ascending") : "none";
  return html`<th scope="col" class=${style} aria-sort=${direction} title=${column.hint}>
    <button type="button" class="sort" onClick=${() => setQuery({ [`sort-${name}`]: next })}>
      ${column.title}<span class="arrow" aria-hidden="true">${isSorted ? (descending ? "↓" : "↑") : ""}</span>
    </button>
  </th>`;
}
