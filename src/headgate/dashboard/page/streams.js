/**
 * The streams that all open pages of this origin share. A browser opens only six connections to an origin: streams on all of them would
 * leave none for requests. Each stream holds a lock, which also ends with its page. A lost stream reconnects with growing pauses.
 *
 * Readings leave one of the streams to taps: a reading without a stream is polled, but a tap has no other way.
 */

import { ApiError } from "./api.js";

/** The numbers of the streams that each use may have, in the order in which it tries them. */
const STREAMS = { reading: [0, 1, 2], tap: [3, 2, 1, 0] };
const FIRST_PAUSE_MS = 500;
const LONGEST_PAUSE_MS = 15_000;

/**
 * Do `work`, which reads a stream until `abort`, and return true; or return false without it, because the pages have the most streams already.
 *
 * @param {"reading" | "tap"} use
 * @param {AbortSignal} abort
 * @param {() => Promise<void>} work
 * @returns {Promise<boolean>}
 */
export async function withStream(use, abort, work) {
  for (const number of STREAMS[use]) {
    const ran = await navigator.locks.request(`stream ${number}`, { ifAvailable: true }, async (lock) => {
      // A view that is left before it has the lock must not open a stream: nothing would end it.
      if (lock && !abort.aborted) await work();
      return Boolean(lock);
    });
    if (ran) return true;
  }
  return false;
}

/**
 * Repeat an attempt until `abort`, with a pause after each that grows while attempts fail, up to 15 seconds.
 *
 * @param {AbortSignal} abort
 * @param {(connected: () => void) => Promise<number | undefined>} attempt calls `connected` once it has a connection, and may return its pause
 * @param {(error: ApiError) => void} fail
 */
export async function repeated(abort, attempt, fail) {
  let pause = FIRST_PAUSE_MS;
  const connected = () => {
    pause = FIRST_PAUSE_MS;
  };
  while (!abort.aborted) {
    try {
      pause = (await attempt(connected)) ?? pause;
    } catch (error) {
      if (abort.aborted) return;
      fail(error instanceof ApiError ? error : new ApiError(0, "The connection is lost."));
      pause = Math.min(pause * 2, LONGEST_PAUSE_MS);
    }
    await sleep(pause * (0.75 + Math.random() / 2), abort);
  }
}

/**
 * @param {number} milliseconds
 * @param {AbortSignal} abort
 * @returns {Promise<void>}
 */
function sleep(milliseconds, abort) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, milliseconds);
    abort.addEventListener(
      "abort",
      () => {
        clearTimeout(timer);
        resolve();
      },
      { once: true },
    );
  });
}
