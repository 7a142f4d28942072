/**
 * The streams that all open pages of this origin share. A browser opens only six connections to an origin: streams on all of them would
 * leave none for requests. Each stream holds a lock, which also ends with its page.
 */

const MOST = 4;

/**
 * Do `work`, which reads a stream, and return true; or return false without it, because the pages have the most streams already.
 *
 * @param {() => Promise<void>} work
 * @returns {Promise<boolean>}
 */
export async function withStream(work) {
  for (let number = 0; number < MOST; number += 1) {
    const ran = await navigator.locks.request(`stream ${number}`, { ifAvailable: true }, async (lock) => {
      if (lock) await work();
      return Boolean(lock);
    });
    if (ran) return true;
  }
  return false;
}
