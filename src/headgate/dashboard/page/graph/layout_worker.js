/** Compute layouts beside the page: one message with a shape gives one message with its layout. */

import { arrange } from "./layout.js";

addEventListener("message", ({ data }) => {
  postMessage({ ticket: data.ticket, layout: arrange(data.shape, data.previous) });
});
