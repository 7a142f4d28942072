/** The types of the graph: what is drawn of a TrafficGraph, and where. This module has no code. */

/** @typedef {import("../types.js").GraphStatus} GraphStatus */
/** @typedef {import("../types.js").GraphNode} ApiNode */
/** @typedef {import("../types.js").GraphEdge} ApiEdge */
/** @typedef {import("../types.js").GraphSplit & {port?: number}} ApiSplit */
/** @typedef {import("../types.js").SplitBackend} ApiBackend */
/** @typedef {import("../types.js").GraphMirror} ApiMirror */

/**
 * What the user filters by; a plain object, which the page keeps in its URL.
 * @typedef {object} Filter
 * @property {string} search a part of the name, the namespace or the kind
 * @property {string[]} namespaces none: all
 * @property {string[]} kinds none: all
 * @property {string} labels a label selector with commas: `app=web,tier!=data,canary,!old`
 * @property {boolean} failing only what fails or is denied, with both ends
 * @property {string} around the id of the node whose neighbors are shown; empty: all nodes
 * @property {number} hops how far these neighbors are
 */

/**
 * A node of the drawing.
 * @typedef {object} GraphNode
 * @property {string} id `Kind/namespace/name`
 * @property {string} kind
 * @property {string} namespace
 * @property {string} name
 * @property {boolean} outside
 * @property {string} detail the line below the name
 * @property {Mark[]} marks
 * @property {number} total requests and connections that it receives, without denied ones
 * @property {number} failed failed requests and connections
 * @property {number} denied
 * @property {number} split requests that splits of other Services sent to it
 * @property {number | null} p99 microseconds of its slowest edge
 * @property {number} pods
 * @property {number} meshed
 * @property {number} errors
 * @property {number} warnings
 * @property {boolean} failing
 * @property {string} title what a screen reader says
 */

/** @typedef {"failing" | "denied" | "error" | "warning" | "band" | "fits"} MarkShape */

/**
 * A sign beside a text, so that no meaning depends on color.
 * @typedef {object} Mark
 * @property {MarkShape} shape
 * @property {string} text
 */

/**
 * A line of the drawing: an edge of traffic, one backend of a split, or a mirror.
 * @typedef {object} GraphLink
 * @property {string} id
 * @property {"traffic" | "split" | "mirror"} type
 * @property {string} source the id of a node
 * @property {string} target
 * @property {string} sourceName
 * @property {string} targetName
 * @property {number} width pixels
 * @property {boolean} copy whether it is dashed, because it has copies of requests
 * @property {boolean} failing
 * @property {boolean} refused whether all of its traffic was denied
 * @property {boolean} secured whether all of its traffic has mutual TLS
 * @property {string[]} lines its label: one or two lines
 * @property {Mark[]} marks
 * @property {string} match the requests of an A/B test
 * @property {string} object the object that causes it: `kind namespace/name`
 * @property {Share} [share] of a backend of a split
 * @property {object} counts what it shows, as the API has it
 * @property {() => [string, string][]} details names and values, for the panel
 * @property {string} title what a screen reader says
 */

/**
 * The part of a split that a backend gets.
 * @typedef {object} Share
 * @property {number} wanted 0 to 1
 * @property {number} observed 0 to 1; NaN without requests
 */

/** @typedef {{nodes: GraphNode[], links: GraphLink[]}} Model */

/** @typedef {{x: number, y: number}} Point */

/** @typedef {{x: number, y: number, width: number, height: number}} Rectangle the position is the top left corner */

/** @typedef {{width: number, height: number}} Size */

/**
 * What a layout depends on: no numbers, so that it is stable while they change.
 * @typedef {object} Shape
 * @property {{id: string, namespace: string}[]} nodes
 * @property {{id: string, source: string, target: string, label: Size, ends: number}[]} links with the room for the label
 *   and the pixels that must be visible beside it
 * @property {boolean} [vertical] whether traffic flows downward and not to the right; without it, what can be read better
 * @property {number} width pixels of the page, in steps
 * @property {boolean} labels whether links reserve room for their labels
 */

/**
 * @typedef {object} Layout
 * @property {boolean} vertical
 * @property {Record<string, Point>} nodes the center of each node
 * @property {Record<string, Point[]>} routes the bends of links that must not cross nodes
 * @property {Record<string, Point>} labels the free places that links have for their labels
 * @property {Record<string, Rectangle>} boxes one for each namespace
 * @property {Rectangle} bounds
 */

export {};
