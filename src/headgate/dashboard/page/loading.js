/**
 * Loads a page again whose scripts did not arrive, and a style alone: a browser ends all requests when the addresses of its machine change,
 * also those to this machine. After a few attempts, the user decides: a reload loses what is typed into forms.
 * This is no module, because it must run without any other file.
 */

(() => {
  const PAUSES_MS = [2_000, 5_000, 15_000];
  const STORED = "reloads"; // how often this tab has loaded the page again, until all its files arrive
  let hasFailed = false;

  const hasRendered = () => document.querySelector("#app > :not(.start)") !== null;

  /** Return how often the page was loaded again; without a storage as if it was often, because nothing else ends a loop. */
  const reloads = () => {
    try {
      return Number(sessionStorage.getItem(STORED) ?? 0);
    } catch {
      return PAUSES_MS.length;
    }
  };

  const offerReload = () => {
    if (document.querySelector(".notice.missing-files")) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Reload";
    button.addEventListener("click", () => location.reload());
    const notice = document.createElement("div");
    notice.className = "notice warning missing-files";
    notice.setAttribute("role", "alert");
    notice.append(`${hasRendered() ? "The style" : "The files"} of this page did not arrive. `, button);
    document.querySelector(".start")?.remove();
    document.body.prepend(notice);
  };

  const reload = () => {
    if (hasRendered()) return offerReload();
    sessionStorage.setItem(STORED, String(reloads() + 1));
    location.reload();
  };

  const requestAgain = (/** @type {HTMLLinkElement} */ style) => {
    const attempts = Number(style.dataset.attempts ?? 0);
    const pause = PAUSES_MS[attempts];
    if (pause === undefined) return offerReload();
    const next = /** @type {HTMLLinkElement} */ (style.cloneNode());
    next.dataset.attempts = String(attempts + 1);
    setTimeout(() => style.replaceWith(next), pause);
  };

  addEventListener(
    "error",
    ({ target }) => {
      if (target instanceof HTMLLinkElement && target.rel === "stylesheet") return requestAgain(target);
      if (hasFailed || !(target instanceof HTMLScriptElement)) return;
      hasFailed = true;
      addEventListener("load", () => {
        const pause = PAUSES_MS[reloads()];
        if (pause === undefined || hasRendered()) return offerReload();
        const start = document.querySelector(".start");
        if (start) start.textContent = "The files of this page did not arrive. It loads again in a moment …";
        setTimeout(reload, pause);
      });
    },
    true, // such an error does not bubble
  );

  addEventListener("load", () => {
    if (!hasFailed && hasRendered() && reloads()) sessionStorage.removeItem(STORED);
  });
})();
