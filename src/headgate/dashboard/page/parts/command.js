/** The command in a terminal that does or shows the same, with a button that copies it. */

import { html } from "../vendor/htm-preact.js";
import { useState } from "../vendor/preact-hooks.js";

/** @param {{text: string}} properties */
export function Command({ text }) {
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
