/**
 * Loads a page again whose files did not arrive: a browser ends all requests when the addresses of its machine change, also those to this
 * machine. This is no module, because it must run without any other file.
 */

addEventListener(
  "error",
  ({ target }) => {
    if (!(target instanceof HTMLScriptElement || target instanceof HTMLLinkElement)) return;
    const start = document.querySelector(".start");
    if (start) start.textContent = "The files of this page did not arrive. It loads again in a moment …";
    setTimeout(() => location.reload(), 2_000);
  },
  true, // such an error does not bubble
);
