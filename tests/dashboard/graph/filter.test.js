import assert from "node:assert/strict";
import { test } from "node:test";
import { choices, filtered, NO_FILTER, selector } from "../../../src/headgate/dashboard/page/graph/filter.js";
import { filterOf, queryOf } from "../../../src/headgate/dashboard/page/graph/filter_query.js";
import { status } from "./meshes.js";

const splits = status("splits");

function names(filter) {
  const graph = filtered(splits, { ...NO_FILTER, ...filter });
  for (const { source, target } of graph.edges) assert.ok(graph.nodes[source] && graph.nodes[target]);
  return graph.nodes.map(({ name }) => name);
}

test("without a filter the graph stays as it is", () => {
  assert.equal(filtered(splits, { ...NO_FILTER }), splits);
});

test("a search shows what it names with its direct peers", () => {
  assert.deepEqual(names({ search: "LEDGER" }), ["payments", "ledger", "reports"]);
  assert.deepEqual(names({ search: "pay led" }), ["payments", "ledger", "reports"]);
  assert.deepEqual(names({ search: "nothing" }), []);
});

test("namespaces and kinds restrict the nodes", () => {
  assert.deepEqual(names({ namespaces: ["analytics"] }), ["ledger", "reports"]);
  assert.deepEqual(names({ kinds: ["Outside"] }), ["198.51.100.7", "gateway"]);
  assert.deepEqual(choices(splits), {
    namespaces: ["analytics", "edge", "pay", "shop"],
    kinds: ["Outside", "Service"],
  });
});

test("edges between two peers of what fits are left out", () => {
  const graph = filtered(status("splits"), { ...NO_FILTER, search: "ledger" });
  const pairs = graph.edges.map(({ source, target }) => `${graph.nodes[source].name}>${graph.nodes[target].name}`);
  assert.deepEqual(pairs, ["payments>ledger", "reports>ledger", "ledger>payments"]);
});

test("a label selector has equality, inequality, presence and absence", () => {
  const holds = (text, labels) => selector(text).every((requirement) => requirement(labels));
  const labels = { app: "web", tier: "front" };
  for (const text of ["app=web", "app == web", "app!=db", "new!=1", "tier", "!old", " app=web , tier=front ", ""]) {
    assert.ok(holds(text, labels), text);
  }
  for (const text of ["app=db", "app!=web", "old", "!tier", "app=web,old", "app="])
    assert.ok(!holds(text, labels), text);
  assert.deepEqual(
    filtered(status("bookstore"), { ...NO_FILTER, labels: "version=v2" }).nodes.map(({ name }) => name),
    ["bookstore", "bookstore-v1", "bookstore-v2", "bookwarehouse"],
  );
});

test("only failing leaves what fails or is denied, with both ends", () => {
  const graph = filtered(status("bookstore"), { ...NO_FILTER, failing: true });
  assert.deepEqual(graph.nodes.map(({ name }) => name).slice(0, 2), ["bookthief", "bookstore"]);
  assert.deepEqual(
    graph.edges.map(({ denied }) => denied),
    [412],
  );
});

test("a neighborhood grows with its hops, against and along the traffic", () => {
  const around = "Service/pay/payments";
  assert.deepEqual(names({ around, hops: 1 }), ["cart", "payments", "ledger"]);
  assert.deepEqual(names({ around, hops: 2 }), [
    "website-blue",
    "website-green",
    "cart",
    "payments",
    "ledger",
    "reports",
  ]);
  assert.deepEqual(names({ around: "Service/pay/gone" }), []);
});

test("a shown split has all its backends, because its shares mean nothing without them", () => {
  assert.deepEqual(names({ around: "Service/shop/website-blue", hops: 1 }), [
    "website",
    "website-blue",
    "website-green",
    "cart",
  ]);
});

test("the query of the URL keeps a filter", () => {
  const full = {
    search: "web",
    labels: "app=web,!old",
    namespaces: ["a", "b"],
    kinds: ["Job"],
    failing: true,
    around: "Service/a/b",
    hops: 3,
  };
  for (const filter of [full, { ...NO_FILTER }, { ...NO_FILTER, around: "Service/a/b" }]) {
    const query = Object.fromEntries(Object.entries(queryOf(filter)).filter(([, value]) => value !== ""));
    assert.deepEqual(filterOf(query), filter);
  }
  assert.deepEqual(queryOf(NO_FILTER).hops, "");
  assert.equal(filterOf({ hops: "x" }).hops, 1);
});
