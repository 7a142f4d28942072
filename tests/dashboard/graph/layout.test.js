import assert from "node:assert/strict";
import { test } from "node:test";
import { arrange } from "../../../src/headgate/dashboard/page/graph/layout.js";
import { drawingModel } from "../../../src/headgate/dashboard/page/graph/model.js";
import { labelRoom, NODE } from "../../../src/headgate/dashboard/page/graph/places.js";
import { placeLabels, routes } from "../../../src/headgate/dashboard/page/graph/routes.js";
import { nodeOrder, stepOf, walk } from "../../../src/headgate/dashboard/page/graph/walk.js";
import { status } from "./meshes.js";

function shapeOf(graph, rest = {}) {
  const model = drawingModel(graph);
  return {
    nodes: model.nodes.map(({ id, namespace }) => ({ id, namespace })),
    links: model.links.map((link) => ({
      id: link.id,
      source: link.source,
      target: link.target,
      label: labelRoom(link),
      ends: 0,
    })),
    labels: model.links.length <= 70,
    width: 1050,
    ...rest,
  };
}

function overlapping(layout) {
  const centers = Object.entries(layout.nodes);
  return centers.flatMap(([a, p], index) =>
    centers
      .slice(index + 1)
      .filter(([, q]) => Math.abs(p.x - q.x) < NODE.width && Math.abs(p.y - q.y) < NODE.height)
      .map(([b]) => [a, b]),
  );
}

test("the same graph has the same places, in whatever order the API lists it", () => {
  const graph = status("sixty");
  const reversed = { ...shapeOf(graph) };
  reversed.nodes = reversed.nodes.toReversed();
  reversed.links = reversed.links.toReversed();
  assert.deepEqual(arrange(reversed), arrange(shapeOf(graph)));
});

test("numbers do not move nodes", () => {
  assert.deepEqual(arrange(shapeOf(status("sixty_later"))), arrange(shapeOf(status("sixty"))));
});

test("nodes do not cover each other, and each is in the box of its namespace alone", () => {
  for (const [name, vertical] of [
    ["sixty", false],
    ["sixty", true],
    ["splits", undefined],
    ["bookstore", true],
  ]) {
    const shape = shapeOf(status(name), { vertical });
    const layout = arrange(shape);
    assert.deepEqual(overlapping(layout), []);
    for (const { id, namespace } of shape.nodes) {
      const { x, y } = layout.nodes[id];
      const inside = Object.entries(layout.boxes).filter(
        ([, box]) => x > box.x && x < box.x + box.width && y > box.y && y < box.y + box.height,
      );
      assert.deepEqual(
        inside.map(([box]) => box),
        [namespace],
        id,
      );
    }
  }
});

test("a new node moves no other node, and covers none", () => {
  const before = shapeOf(status("sixty"));
  const layout = arrange(before);
  const extra = { id: "Service/team-1/new", namespace: "team-1" };
  const link = {
    id: "traffic:new",
    source: before.nodes[20].id,
    target: extra.id,
    label: { width: 0, height: 0 },
    ends: 0,
  };
  const after = arrange({ ...before, nodes: [...before.nodes, extra], links: [...before.links, link] }, layout);
  const { [extra.id]: place, ...rest } = after.nodes;
  assert.deepEqual(rest, layout.nodes);
  assert.deepEqual(overlapping(after), []);
  const box = after.boxes["team-1"];
  assert.ok(place.x > box.x && place.x < box.x + box.width && place.y > box.y && place.y < box.y + box.height);
  for (const [name, other] of Object.entries(after.boxes)) {
    const apart =
      name === "team-1" ||
      box.x + box.width <= other.x ||
      other.x + other.width <= box.x ||
      box.y + box.height <= other.y ||
      other.y + other.height <= box.y;
    assert.ok(apart, name);
  }
});

test("a removed node moves no other node", () => {
  const before = shapeOf(status("sixty"));
  const layout = arrange(before);
  const gone = before.nodes[7].id;
  const after = arrange(
    {
      ...before,
      nodes: before.nodes.filter(({ id }) => id !== gone),
      links: before.links.filter(({ source, target }) => source !== gone && target !== gone),
    },
    layout,
  );
  assert.equal(after.nodes[gone], undefined);
  for (const [id, place] of Object.entries(after.nodes)) assert.deepEqual(place, layout.nodes[id]);
});

test("a filter that leaves little makes a fresh layout", () => {
  const before = shapeOf(status("sixty"));
  const few = { ...before, nodes: before.nodes.slice(0, 5), links: [] };
  assert.deepEqual(arrange(few, arrange(before)), arrange(few));
});

test("a graph flows downward where that is easier to read", () => {
  assert.equal(arrange(shapeOf(status("bookstore"), { width: 600 })).vertical, true);
  assert.equal(arrange(shapeOf(status("bookstore"), { width: 3000 })).vertical, false);
  assert.equal(arrange(shapeOf(status("bookstore"), { width: 3000, vertical: true })).vertical, true);
});

test("each line has a path, and labels cover no node", () => {
  for (const name of ["bookstore", "splits"]) {
    const model = drawingModel(status(name));
    const layout = arrange(shapeOf(status(name)));
    const paths = routes(model, layout);
    for (const { id } of model.links) assert.match(paths.get(id)?.path ?? "", /^M[-\d. ]+C[-\d. ]+$/, id);
    const sizes = model.links.map((link) => ({ id: link.id, width: 100, height: 30 }));
    for (const { x, y } of placeLabels(sizes, paths, layout).values()) {
      for (const node of Object.values(layout.nodes)) {
        assert.ok(Math.abs(x - node.x) >= (100 + NODE.width) / 2 || Math.abs(y - node.y) >= (30 + NODE.height) / 2);
      }
    }
  }
});

test("the backends of a split begin side by side, in the order of their places", () => {
  const model = drawingModel(status("splits"));
  const layout = arrange(shapeOf(status("splits"), { vertical: false }));
  const paths = routes(model, layout);
  const starts = model.links
    .filter(({ type }) => type === "split")
    .map((link) => ({ start: Number(paths.get(link.id).path.split(/[MC ]/)[2]), end: layout.nodes[link.target].y }))
    .sort((a, b) => a.end - b.end)
    .map(({ start }) => start);
  assert.deepEqual(
    starts,
    starts.toSorted((a, b) => a - b),
  );
  assert.equal(new Set(starts).size, 3);
});

test("arrow keys walk from a node over its line to the next node, and among siblings", () => {
  const model = drawingModel(status("bookstore"));
  const layout = arrange(shapeOf(status("bookstore"), { vertical: false }));
  const order = nodeOrder(model, layout);
  assert.deepEqual(order.slice(0, 3), [
    "Service/people/bookbuyer",
    "Service/people/bookthief",
    "Service/bookstore/bookstore",
  ]);
  const step = (id, key) => walk(id, stepOf(key, false), model, order);
  const buyer = "Service/people/bookbuyer";
  const line = step(buyer, "ArrowRight");
  assert.equal(line, `traffic:${buyer}>Service/bookstore/bookstore`);
  assert.equal(step(line, "ArrowRight"), "Service/bookstore/bookstore");
  assert.equal(step(line, "ArrowLeft"), buyer);
  assert.equal(step(buyer, "ArrowDown"), "Service/people/bookthief");
  assert.equal(step(buyer, "ArrowUp"), buyer);
  const split = step("Service/bookstore/bookstore", "ArrowRight");
  assert.match(step(split, "ArrowDown"), /^split:.*bookstore-v2$/);
  assert.equal(step(buyer, "End"), "Service/bookwarehouse/mysql");
  assert.equal(stepOf("ArrowDown", true), "forward");
  assert.equal(stepOf("x", false), undefined);
});
