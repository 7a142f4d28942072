import assert from "node:assert/strict";
import { test } from "node:test";
import { drawingModel } from "../../../src/headgate/dashboard/page/graph/model.js";
import { changedShares } from "../../../src/headgate/dashboard/page/graph/weight_changes.js";
import { status } from "./meshes.js";

const bookstore = drawingModel(status("bookstore"));
const splits = drawingModel(status("splits"));

/** The line whose id contains a text. */
function line(model, part) {
  const lines = model.links.filter(({ id }) => id.includes(part));
  assert.equal(lines.length, 1, part);
  return lines[0];
}

function marks(element) {
  return element.marks.map(({ shape, text }) => `${shape}: ${text}`);
}

test("an edge shows its rate, success, latency, bytes and mutual TLS", () => {
  const edge = line(bookstore, "bookbuyer>");
  assert.deepEqual(edge.lines, ["40/s · 99.75 %", "p99 11.5 ms · 69.2 kB/s"]);
  assert.equal(edge.secured, true);
  assert.deepEqual(marks(edge), []);
  const details = Object.fromEntries(edge.details());
  assert.equal(details.Requests, "1,200 (40/s)");
  assert.equal(details["Mutual TLS"], "all");
});

test("an edge on which all requests are denied has a sign and no rate", () => {
  const edge = line(bookstore, "bookthief>");
  assert.equal(edge.refused, true);
  assert.deepEqual(edge.lines, []);
  assert.deepEqual(marks(edge), ["denied: 412 denied"]);
  assert.match(edge.title, /^Traffic from bookthief to bookstore, 412 denied/);
});

test("denied requests are in no success and no failure", () => {
  const edge = line(splits, "reports>");
  assert.deepEqual(edge.lines[0], "0.67/s · 100 %");
  assert.deepEqual(marks(edge), ["denied: 95 denied"]);
  const ledger = splits.nodes.find(({ name }) => name === "ledger");
  assert.equal(ledger.total, 100);
  assert.equal(ledger.denied, 95);
});

test("an edge is failing from one percent of failed requests on", () => {
  assert.deepEqual(marks(line(splits, "Service/edge/gateway>")), ["failing: 2.5 % failed"]);
  const graph = status("bookstore");
  graph.edges[0].failures = 11;
  assert.equal(line(drawingModel(graph), "bookbuyer>").failing, false);
  graph.edges[0].failures = 12;
  assert.equal(line(drawingModel(graph), "bookbuyer>").failing, true);
});

test("a split has a line for each backend with the wanted and the observed share and its band", () => {
  const blue = line(splits, ">Service/shop/website-blue");
  assert.deepEqual(blue.lines, ["wanted 70 %", "observed 63 %"]);
  assert.deepEqual(marks(blue), ["band: outside 65.7–74.3 %"]);
  assert.equal(blue.object, "TrafficSplit shop/website");
  const inside = bookstore.links.find(({ id }) => id.endsWith(">Service/bookstore/bookstore-v1"));
  assert.deepEqual(marks(inside), ["fits: in its band"]);
});

test("a split without requests, or without a band, claims nothing", () => {
  const graph = status("bookstore");
  for (const backend of graph.splits[0].backends) backend.requests = 0;
  const idle = line(drawingModel(graph), ">Service/bookstore/bookstore-v1");
  assert.deepEqual([idle.lines[1], idle.marks], ["no requests", []]);
  for (const backend of graph.splits[0].backends)
    Object.assign(backend, { requests: 9, expectedLow: null, expectedHigh: null });
  assert.deepEqual(line(drawingModel(graph), ">Service/bookstore/bookstore-v1").marks, []);
});

test("the line of a backend is thicker for a larger share", () => {
  const widths = bookstore.links.filter(({ type }) => type === "split").map(({ width }) => width);
  assert.ok(widths[0] > 4 * widths[1]);
});

test("an A/B test is named by its match", () => {
  const beta = line(splits, ">Service/shop/website-beta");
  assert.equal(beta.match, "cookie: beta=1");
  assert.match(beta.title, /for cookie: beta=1/);
});

test("a mirror is dashed, and shows what the comparison of its copies says", () => {
  const mirror = line(splits, ">Service/shop/website-next");
  assert.equal(mirror.copy, true);
  assert.deepEqual(mirror.lines, ["copies 20 % · 8/s"]);
  assert.deepEqual(marks(mirror), ["warning: more failures", "failing: 5 % failed"]);
  assert.deepEqual(mirror.details().at(-1), ["", "5 % of the copies fail, 1 % of the requests"]);
  assert.deepEqual(marks(line(splits, "mirror:HTTPRoute/shop/cart")), ["fits: not proven worse"]);
});

test("edges of copies are drawn only where no mirror shows them", () => {
  const graph = status("splits");
  const target = graph.mirrors[0].target;
  graph.edges.push({ ...graph.edges[0], target, copy: true });
  assert.equal(drawingModel(graph).links.filter(({ id }) => id.startsWith("copies:")).length, 0);
  graph.mirrors = [];
  assert.equal(line(drawingModel(graph), "copies:").copy, true);
});

test("each id of a node or a line is unique", () => {
  for (const model of [bookstore, splits, drawingModel(status("large"))]) {
    const ids = [...model.nodes, ...model.links].map(({ id }) => id);
    assert.equal(new Set(ids).size, ids.length);
  }
});

test("nodes say what is wrong with them, and how many pods have a sidecar", () => {
  const node = (name) => splits.nodes.find((candidate) => candidate.name === name);
  assert.deepEqual(marks(node("payments")), ["error: 2 errors", "warning: 1 warning", "failing: 43.48 % failed"]);
  assert.equal(node("reports").detail, "2 of 3 pods in the mesh");
  assert.equal(node("198.51.100.7").detail, "outside the mesh");
});

test("a backend has the requests that splits send to it, and copies count as nothing that a node receives", () => {
  const graph = status("splits");
  const node = (name) => drawingModel(graph).nodes.find((candidate) => candidate.name === name);
  assert.deepEqual([node("website-blue").total, node("website-blue").split], [0, 630]);
  assert.match(node("website-blue").title, /gets 21\/s by splits/);
  graph.edges.push({ ...graph.edges[0], target: graph.mirrors[0].target, copy: true });
  assert.equal(node("website-next").total, 0);
  graph.splits[0].backends.push({ ...graph.splits[0].backends[0], service: graph.splits[0].service });
  assert.equal(node("website").split, 0);
});

test("a changed weight is reported with the share before", () => {
  assert.deepEqual(
    changedShares(
      new Map([
        ["a", 0.9],
        ["b", 0.1],
      ]),
      new Map([
        ["a", 0.8],
        ["b", 0.1],
        ["c", 0.1],
      ]),
    ),
    new Map([["a", "90 %"]]),
  );
});
