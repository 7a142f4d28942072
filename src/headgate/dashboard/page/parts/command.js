/** The command in a terminal that does or shows the same, with a button that copies it. */

import { html } from "../vendor/htm-preact.js";
import { useState } from "../vendor/preact-hooks.js";

/**
 * Return words as a command for a shell, which passes each word to the program as it is: none is expanded or run. Texts of the URL come from the
 * author of a link.
 *
 * @param {string[]} words
 */
export function commandText(words) {
  return words.map(quoted).join(" ");
}

/** @param {string} word */
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}

/** @param {{words: string[]}} properties */
export function Command({ words }) {
  const text = commandText(words);
  const [copied, setCopied] = useState(false);
  const copy = () =>
    navigator.clipboard.writeText(text).then(
      () => setCopied(true),
      () => setCopied(false),
    );
  return html`<div class="command">
    <code>${text}</code>
    <button type="button" onClick=${copy} onBlur=${() => setCopied(false)} aria-label=${`Copy the command ${text}`}>
      ${copied ? "Copied" : "Copy"}
    </button>
  </div>`;
}
