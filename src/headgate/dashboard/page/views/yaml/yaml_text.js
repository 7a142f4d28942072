/** A text of several lines with their numbers; the numbers of lines with a mistake are marked. */

import { html } from "../../vendor/htm-preact.js";
import { useRef } from "../../vendor/preact-hooks.js";

/** @param {{text: string, mistakes: {line: number}[], onInput: (text: string) => void}} properties */
export function YamlText({ text, mistakes, onInput }) {
  const numbers = useRef(/** @type {HTMLElement | null} */ (null));
  const marked = new Set(mistakes.map(({ line }) => line));
  const count = text.split("\n").length;
  const follow = (/** @type {Event} */ { target }) => {
    if (numbers.current) numbers.current.scrollTop = /** @type {HTMLElement} */ (target).scrollTop;
  };
  return html`<div class="yaml-area">
    <div class="yaml-numbers" aria-hidden="true" ref=${numbers}>
      ${Array.from({ length: count }, (_, index) => html`<div class=${marked.has(index + 1) ? "marked" : ""}>${marked.has(index + 1) ? "✕ " : ""}${index + 1}</div>`)}
    </div>
    <textarea class="yaml-text" aria-label="YAML of the object" rows=${Math.min(Math.max(count, 8), 30)} value=${text} wrap="off" spellcheck="false"
      autocomplete="off" autocapitalize="off" aria-invalid=${mistakes.length ? "true" : "false"} aria-describedby=${mistakes.length ? "yaml-mistakes" : undefined}
      onInput=${(/** @type {Event} */ { target }) => onInput(/** @type {HTMLTextAreaElement} */ (target).value)} onScroll=${follow}></textarea>
  </div>`;
}
