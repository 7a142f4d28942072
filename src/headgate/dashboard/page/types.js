/**
 * The types of the API's objects that the page reads, as far as it reads them (docs/reference/inspect-api.md).
 *
 * @typedef {{group?: string, kind: string, namespace: string, name: string}} Ref
 * @typedef {{name: string, namespace: string}} ObjectName
 *
 * @typedef {{reason: string, message: string, object: Ref | null}} MeshProblem
 * @typedef {object} MeshState
 * @property {boolean} healthy
 * @property {MeshProblem[]} problems
 * @property {string} version
 * @property {string | null} startTime
 * @property {{total: number, inSync: number, lagging: number, refused: number, disconnected: number}} proxies
 * @property {{total: number, oldestIssueTime: string | null, firstExpiryTime: string | null, faults: number}} certificates
 * @property {{errors: number, warnings: number, notes: number}} findings
 * @property {{ready: number, wanted: number, unready: {object: Ref, ready: number, wanted: number, message: string}[]} | null} workloads
 * @property {{writable: boolean, message: string, failingSinceTime: string | null, damaged: string[]} | null} store
 * @property {{mtls: string, access: string}} settings
 * @typedef {{kind: string, metadata: ObjectName, status: MeshState}} MeshStatus
 *
 * @typedef {"Error" | "Warning" | "Note"} Severity
 * @typedef {{metadata: ObjectName, object: Ref, severity: Severity, reason: string, field: string, message: string}} Finding
 *
 * @typedef {"InSync" | "Lagging" | "Refused" | "Disconnected"} ProxyState
 * @typedef {object} Refusal
 * @property {string} type
 * @property {string} resource
 * @property {string} message
 * @property {Ref | null} object
 * @property {string | null} rejectionTime
 * @property {boolean} current
 * @typedef {object} ProxyCertificate
 * @property {string} identity
 * @property {string | null} issueTime
 * @property {string | null} notAfterTime
 * @property {string} message
 * @typedef {object} Proxy
 * @property {ObjectName} metadata
 * @property {string} node
 * @property {string[]} workloads
 * @property {string} revision
 * @property {{state: ProxyState, message: string, connectionTime: string | null, lastAcknowledgedTime: string | null,
 *   waitingSinceTime: string | null, types: {type: string, resources: number, held: number}[], refusals: Refusal[],
 *   lastRefusal: Refusal | null, certificate: ProxyCertificate | null}} status
 *
 * @typedef {{uid: string, namespace: string, name: string, resourceVersion: string, generation: number, labels?: Record<string, string>,
 *   annotations?: Record<string, string>, ownerReferences?: {kind: string, name: string}[]}} ObjectMeta
 * @typedef {{apiVersion: string, kind: string, metadata: ObjectMeta, spec: {service: string, matches?: {name: string}[],
 *   backends: {service: string, weight: number}[]}, status?: any}} SplitObject
 * @typedef {object} CanaryObject
 * @property {ObjectMeta} metadata
 * @property {{service: string, paused?: boolean, analysis?: {canary: string}}} spec
 * @property {{observedGeneration?: number, step: number, stepCount: number, canaryShare: string, rollout?: {pause?: string | null},
 *   backends?: {service: string, weight: number, requests?: number | null, failures?: number | null}[],
 *   criteria?: {name: string, rollBack?: string, promote?: string}[]}} [status]
 *
 * @typedef {{callersMessage: string, destination: string, pods: string[], port: number, requestMessage: string}} AccessRow
 * @typedef {{severity: Severity, reason: string, message: string}} NewFinding
 * @typedef {object} RequestChange
 * @property {{kind: string, name: string, port: number, host: string}} entry
 * @property {string[]} requestMessages
 * @property {string[]} changeMessages
 * @property {{milliRequestsPerSecond: number, movedMilliRequestsPerSecond: number} | null} rate
 * @typedef {object} Differences
 * @property {NewFinding[]} unreachable
 * @property {NewFinding[]} findings
 * @property {AccessRow[]} lost
 * @property {AccessRow[]} gained
 * @property {RequestChange[]} requests
 * @property {{pods: string[], before: string, after: string}[]} tls
 * @property {{gateway: string, port: number, beforeMessage: string, afterMessage: string}[]} clientCertificates
 * @property {{service: string, before: string, after: string}[]} gateways
 * @property {{message: string}[]} departures
 *
 * @typedef {{path: string, before: unknown, after: unknown}} ChangedField
 * @typedef {object} ObjectChange
 * @property {Ref} object
 * @property {"Created" | "Changed" | "Deleted" | "Unchanged"} action
 * @property {string} by the field manager of the writer
 * @property {string} file
 * @property {number} line
 * @property {ChangedField[]} fields
 * @typedef {object} Revision
 * @property {number} revision
 * @property {string | null} recordTime
 * @property {"RecordingStarted" | "Written" | "ControllerWrote" | "NotRecorded"} reason
 * @property {ObjectChange[]} changes
 * @property {string[]} effectMessages
 * @typedef {object} RestorationStep
 * @property {"create" | "update" | "delete"} verb
 * @property {Ref} object
 * @property {Record<string, unknown> | null} present
 * @property {Record<string, unknown> | null} wanted
 * @property {string} skipMessage
 *
 * @typedef {object} TrafficPoint
 * @property {string} startTime
 * @property {string} endTime
 * @property {number} requests
 * @property {number} failures
 * @property {number} denied
 * @property {number} connections
 * @property {number} failedConnections
 * @property {number} deniedConnections
 * @property {number | null} p50Microseconds
 * @property {number | null} p90Microseconds
 * @property {number | null} p99Microseconds
 * @property {ResponseCount[]} responses
 * @typedef {{responseClass: string, count: number, failure: boolean}} ResponseCount
 * @typedef {{object: Ref, recordTime: string | null, revision: number, backends: {service: string, weight: number}[]}} WeightChange
 * @typedef {object} TrafficSeriesStatus
 * @property {number} stepMilliseconds
 * @property {TrafficPoint[]} points
 * @property {{service: string, points: TrafficPoint[]}[]} backends
 * @property {WeightChange[]} weights
 * @property {string[]} messages
 *
 * @typedef {{numerator: number, denominator: number}} Share
 * @typedef {{object: Ref | null, name: string, matches: {split: Ref, match: string}[]}} ExplainedRoute
 * @typedef {{route: ExplainedRoute | null, host: string, result: "Matched" | "Failed" | "NotTried", message: string}} Tried
 * @typedef {object} Arrival
 * @property {string} workload
 * @property {string} address
 * @property {"MutualTLS" | "TLS" | "Plaintext"} transport
 * @property {boolean} allowed
 * @property {Ref | null} object the access rule that allows the request
 * @property {string} rule
 * @property {string} message
 * @property {string} remedyMessage
 * @property {any[]} [remedyObjects] the objects that would allow the caller's requests with exactly this method and path, or its connections, in
 *   the order to create them; empty where a TrafficTarget can't, or would close open pods; absent from older headgates
 * @property {any[]} [wideRemedyObjects] the same for all its requests; absent from older headgates, whose remedyObjects are for all requests
 * @typedef {object} ExplainedBackend
 * @property {string} service
 * @property {number} port
 * @property {Share} share
 * @property {number} [readyEndpoints]
 * @property {number} [statusCode] the response of the proxy itself; 0 if the backend answers
 * @property {string} [reason]
 * @property {string} [message]
 * @property {string[]} [filterMessages]
 * @property {Arrival[]} arrivals
 * @typedef {object} ExplanationStatus
 * @property {{object: Ref | null, identity: string, message: string}} caller
 * @property {string} service
 * @property {string} gateway
 * @property {number} port
 * @property {string} portMessage why a URL without a port means this one
 * @property {string} protocol
 * @property {string} protocolMessage
 * @property {{statusCode: number, messages: string[]} | null} sanitizing
 * @property {ExplainedRoute | null} route
 * @property {ExplainedBackend[]} backends
 * @property {ExplainedBackend[]} mirrors
 * @property {{service: string, port: number, readyEndpoints: number, arrivals: Arrival[]} | null} [authorizationServer] absent in responses of older headgates
 * @property {string[]} filterMessages
 * @property {string} location
 * @property {{by: string, name: string, service: string, port: number, statusCode: number} | null} stickiness
 * @property {string} fallbackMessage
 * @property {string[]} [unreadyMessages] absent in responses of older headgates
 * @property {Tried[]} candidates
 * @property {{object: Ref, reason: string, field: string, message: string}[]} remarks
 * @property {string} revisionMessage
 * @typedef {object} GraphNode
 * @property {string} kind `Service`, the kind of a workload, or `Outside` for a source that is not in the mesh
 * @property {string} namespace
 * @property {string} name
 * @property {Record<string, string>} labels
 * @property {number} pods
 * @property {number} meshed the pods with a sidecar
 * @property {number} errors
 * @property {number} warnings
 * @typedef {object} GraphEdge
 * @property {number} source the index of the calling node
 * @property {number} target the index of the called node
 * @property {boolean} copy whether the requests are copies of a mirror
 * @property {number} requests
 * @property {number} failures
 * @property {number} denied
 * @property {number} connections
 * @property {number} failedConnections
 * @property {number} deniedConnections
 * @property {number} [audited] requests that rules in audit mode would deny
 * @property {number | null} p50Microseconds
 * @property {number | null} p90Microseconds
 * @property {number | null} p99Microseconds
 * @property {number | null} bytes
 * @property {number} exchanged requests and connections whose security is known
 * @property {number} secured those of them with mutual TLS
 * @typedef {{service: number, wanted: Share, requests: number, expectedLow: number, expectedHigh: number}} SplitBackend
 * @typedef {{object: Ref, service: number, match: string, backends: SplitBackend[]}} GraphSplit
 * @typedef {{object: Ref, service: number, target: number, share: Share, copies: number, failures: number, verdict: string,
 *   message: string}} GraphMirror
 * @typedef {object} GraphStatus
 * @property {string} startTime
 * @property {string} endTime
 * @property {number} windowMilliseconds
 * @property {"" | "NoTraffic" | "NoSidecars" | "NothingRouted"} reason why the graph has no edges
 * @property {string} message
 * @property {GraphNode[]} nodes
 * @property {GraphEdge[]} edges
 * @property {GraphSplit[]} splits
 * @property {GraphMirror[]} mirrors
 * @typedef {{kind: "TrafficGraph", metadata: ObjectName, status: GraphStatus}} TrafficGraph
 */

export {};
