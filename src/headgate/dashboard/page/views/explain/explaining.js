/** The decision about one request: when it is explained again, and whether it is older than a write that the mesh receives. */

import { answered, inspectPath } from "../../api.js";
import { Rerun } from "../../rerun.js";
import { signal } from "../../vendor/signals.js";
import { specOf } from "./question.js";

/**
 * `answer`: null until the first one. `isBusy`: an explanation runs. `isRequested`: the user waits for it.
 *
 * `write`: `none`, or the answer is older than a write. `pending`: the request is explained again when the mesh has the write. `unseen`: the
 * page could not see that the mesh has it.
 *
 * @typedef {{status: import("../../types.js").ExplanationStatus | null, error: import("../../api.js").ApiError | null}} Answer
 * @typedef {{answer: Answer | null, isBusy: boolean, isRequested: boolean, write: "none" | "pending" | "unseen"}} State
 */

/** The pauses between explanations after a write. They show its effect to a reader who may not read revisions. */
const PAUSES_MS = [1_000, 2_000, 4_000, 8_000, 16_000];

/**
 * @typedef {object} Write
 * @property {number} before the newest revision when the write began, or the first one that was read since; 0 while there is none
 * @property {string} decision the decision when the write began, as text; empty if `before` was known then
 * @property {boolean} isLive whether the mesh is known to have the write
 */

/**
 * One request, which is explained at the start, when the user requests it, and after each revision of the namespace that has its rules.
 */
export class Explaining {
  /** @param {import("./question.js").Question} question */
  constructor(question) {
    this.question = question;
    this.state = signal(/** @type {State} */ ({ answer: null, isBusy: false, isRequested: false, write: "none" }));
    /** The namespace whose revisions are read; empty until the decision has a rule to write. */
    this.namespace = signal("");
    /** The newest revision of the namespace; null while it is read, and 0 if it can't be read. */
    this.revision = signal(/** @type {number | null} */ (null));
    this.explanations = new Rerun((abort) => this.renew(abort));
    /** @type {Write | null} the last write that began */
    this.begun = null;
    /** @type {Write | null} the last write that is done, while the answer is older */
    this.write = null;
    /** @type {ReturnType<typeof setTimeout> | undefined} */
    this.timer = undefined;
  }

  end() {
    this.explanations.end();
    clearTimeout(this.timer);
  }

  /** Explain the request for the user. */
  request() {
    const { write } = this.state.peek();
    if (this.write && write === "unseen") this.write.isLive = true; // the page waited long enough, so the user decides
    this.set({ isRequested: true });
    return this.explain();
  }

  explain() {
    return this.explanations.run();
  }

  /** @param {AbortSignal} abort */
  async renew(abort) {
    const { write } = this;
    const wasLive = write?.isLive;
    this.set({ isBusy: true });
    const answer = await explained(this.question, abort);
    if (abort.aborted) return;
    const isCurrent = wasLive || (write?.decision && JSON.stringify(answer.status) !== write.decision);
    if (write && write === this.write && answer.status && isCurrent) this.settle();
    this.set({ answer, isBusy: false, isRequested: this.state.peek().isRequested && this.explanations.isDue });
  }

  /**
   * Read the revisions of a namespace from now on.
   *
   * @param {string} namespace
   */
  watch(namespace) {
    if (!namespace || namespace === this.namespace.peek()) return;
    this.namespace.value = namespace;
    this.revision.value = null;
  }

  /**
   * Receive the newest revision of the namespace.
   *
   * @param {number | null} revision
   */
  revise(revision) {
    const last = this.revision.peek();
    this.revision.value = revision;
    if (!revision || revision === last) return;
    for (const write of [this.begun, this.write]) {
      if (!write) continue;
      if (write.before && revision > write.before) write.isLive = true;
      write.before ||= revision; // the first one that is read may be older than the write; the next one is not
    }
    if (last || this.write) this.explain();
  }

  /**
   * Note that a write in a namespace begins: its revision may arrive before its response.
   *
   * @param {string} namespace
   */
  begin(namespace) {
    this.watch(namespace);
    const before = this.revision.peek() ?? 0;
    const decision = before ? "" : JSON.stringify(this.state.peek().answer?.status);
    this.begun = { before, decision, isLive: false };
  }

  /** Note that the write is done. The answer is old until one that was requested when the mesh had the write. */
  finish() {
    this.write = this.begun;
    this.set({ write: "pending" });
    this.explain();
    this.followUp(0);
  }

  /**
   * Explain the request after each of the remaining pauses, until the write is settled.
   *
   * @param {number} index of the next pause
   */
  followUp(index) {
    clearTimeout(this.timer);
    const pause = PAUSES_MS[index];
    if (pause === undefined) return this.set({ write: "unseen" });
    this.timer = setTimeout(() => {
      this.explain();
      this.followUp(index + 1);
    }, pause);
  }

  settle() {
    clearTimeout(this.timer);
    this.write = null;
    this.set({ write: "none" });
  }

  /** @param {Partial<State>} changes */
  set(changes) {
    this.state.value = { ...this.state.peek(), ...changes };
  }
}

/**
 * @param {import("./question.js").Question} question
 * @param {AbortSignal} abort
 * @returns {Promise<Answer>}
 */
function explained(question, abort) {
  const body = { apiVersion: "inspect.headgate.dev/v1beta1", kind: "Explanation", spec: specOf(question) };
  return answered(inspectPath("explanations", question.in), { method: "POST", body, signal: abort });
}
