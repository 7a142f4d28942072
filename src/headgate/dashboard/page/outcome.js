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
 * Return the outcomes of requests and connections: only `denied` has the denied ones, as in `kubectl traffic`. `total`, `failed` and `audited`
 * have both kinds; `connections` are without failed ones.
 *
 * @param {Counted} counted
 */
export function outcome(counted) {
  const denied = counted.denied + counted.deniedConnections;
  const failed = counted.failures + counted.failedConnections;
  const requests = counted.requests - counted.denied;
  // Two proxies count a denied connection, and report it at different times.
  const connections = Math.max(counted.connections - counted.deniedConnections, 0);
  const total = requests + connections + counted.failedConnections;
  const failing = isFailing(failed, total);
  return { requests, connections, total, failed, denied, audited: counted.audited ?? 0, failing };
}

/**
 * @param {number} failed
 * @param {number} total
 */
export function isFailing(failed, total) {
  return failed > 0 && failed >= FAILING * total;
}
