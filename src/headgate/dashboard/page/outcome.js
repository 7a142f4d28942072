/** The outcomes of requests and connections, counted in one way by the graph, the tables and the plots. */

/**
 * What an edge or a point of a series has counted. `requests` includes failures and denied ones; `connections` includes denied ones, but not
 * those that failed.
 *
 * @typedef {object} Counted
 * @property {number} requests
 * @property {number} failures
 * @property {number} denied
 * @property {number} connections
 * @property {number} failedConnections
 * @property {number} deniedConnections
 * @property {number} [audited] requests that rules in audit mode would deny; absent from older headgates and from series
 */

/** The share of failures from which traffic counts as failing. */
const FAILING = 0.01;

/**
 * Return the outcomes of requests and connections: `denied` ones are not in `total`, `failed` and `audited` ones are.
 *
 * @param {Counted} counted
 */
export function outcome(counted) {
  const denied = counted.denied + counted.deniedConnections;
  const failed = counted.failures + counted.failedConnections;
  const total = counted.requests + counted.connections + counted.failedConnections - denied;
  return { total, failed, denied, audited: counted.audited ?? 0, failing: isFailing(failed, total) };
}

/**
 * @param {number} failed
 * @param {number} total
 */
export function isFailing(failed, total) {
  return failed > 0 && failed >= FAILING * total;
}
