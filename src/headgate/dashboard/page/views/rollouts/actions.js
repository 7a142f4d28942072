/** The state of a rollout, and what a user may do in it, as `headgate rollout` does. */

import { conditionOf } from "../../objects.js";

/**
 * @typedef {import("../../types.js").CanaryObject} CanaryObject
 * @typedef {import("../../parts/badge.js").Level} Level
 * @typedef {{word: string, hint: string, patch: () => Record<string, unknown>}} Action
 */

/** @type {Record<string, Level>} */
const LEVELS = {
  Promoted: "good",
  RolledBack: "bad",
  Paused: "warning",
  Progressing: "neutral",
  Invalid: "bad",
  Split: "neutral",
};

/**
 * Return the state of a rollout in a word: the reason of the condition Promoted, `Invalid`, or `Split` without an analysis.
 *
 * @param {CanaryObject} canary
 * @returns {{level: Level, word: string}}
 */
export function stateOf(canary) {
  const isInvalid = conditionOf(canary, "Accepted")?.status === "False";
  const word = isInvalid
    ? "Invalid"
    : (conditionOf(canary, "Promoted")?.reason ?? (canary.spec.analysis ? "waiting" : "Split"));
  return { level: LEVELS[word] ?? "neutral", word };
}

/**
 * Return the actions that have an effect in the state of a rollout.
 *
 * @param {CanaryObject} canary
 * @returns {Action[]}
 */
export function actionsOf(canary) {
  const { word } = stateOf(canary);
  if (!canary.spec.analysis || word === "Invalid" || word === "Split") return [];
  const restart = requested("restart", "Begin with the first step again", "Restart");
  if (word === "Promoted" || word === "RolledBack") return [restart];
  const pause = canary.status?.rollout?.pause;
  const isPaused = canary.spec.paused || pause === "the TrafficSplit was edited";
  /** @type {Action} */
  const resume = {
    word: "resume",
    hint: "Continue",
    patch: () => ({ paused: false, ...(pause === "the TrafficSplit was edited" ? request("Resume") : {}) }),
  };
  /** @type {Action} */
  const hold = { word: "pause", hint: "Keep the weights for now", patch: () => ({ paused: true }) };
  return [
    requested("promote", "End this step as passed", "Promote"),
    isPaused ? resume : hold,
    requested("abort", "Give all requests to the old version", "Abort"),
    restart,
  ];
}

/**
 * @param {string} word
 * @param {string} hint
 * @param {string} action
 * @returns {Action}
 */
function requested(word, hint, action) {
  return { word, hint, patch: () => request(action) };
}

/** @param {string} action */
function request(action) {
  const [number = 0] = crypto.getRandomValues(new Uint32Array(1));
  return { request: { action, id: number.toString(16) } };
}
