"""Traces over transparent sidecars: one tree over the sidecars of a client and a server (docs/tasks/traces.md)."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.e2e.span_collector import CLIENT, SERVER, ReceivedSpan, SpanCollector, span_collector_at
from tests.make.objects import Object
from tests.netns.namespaced_mesh import NamespacedMesh
from tests.netns.objects import ALL_STRICT, ONE
from tests.netns.traffic import Relay, ask
from tests.waiting import until

from headgate.settings import Settings

COLLECTOR_PORT = 4317
SPAN = "b7ad6b7169203331"
BOTH = [("client", SERVER), ("client", CLIENT), ("one", SERVER), ("one", CLIENT)]


class Traced(NamedTuple):
    """The lab with a collector in the pod `plain`, which has no sidecar."""

    lab: NamespacedMesh
    services: Sequence[Object]
    collector: SpanCollector

    def serve(self, *objects: Object) -> None:
        """Serve the Services and objects, with traces; wait until no connection of before is left, which has none."""
        address = f"{self.lab.members['plain'].address}:{COLLECTOR_PORT}"
        self.lab.serve(*self.services, *objects, settings=Settings(otlp_traces=address))
        self.lab.run(self.lab.drained())

    def spans(self, trace: str) -> Sequence[ReceivedSpan]:
        """Wait until the spans of both sidecars have arrived; return them, each after its parent."""

        def arrived() -> Sequence[ReceivedSpan]:
            spans = self.collector.of_trace(trace)
            assert len(spans) >= len(BOTH), spans
            return spans

        spans = until(arrived)
        assert not self.collector.mistakes
        return spans


@pytest.fixture(scope="module")
def traced(
    lab: NamespacedMesh, services: Sequence[Object], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Traced]:
    path: Path = tmp_path_factory.mktemp("collector") / "socket"
    with span_collector_at(path) as collector:
        relay = lab.run(Relay("plain").forward_to_socket(lab.members["plain"], COLLECTOR_PORT, str(path)))
        yield Traced(lab, services, collector)
        lab.serve(*services)
        lab.run(relay.close())


@pytest.mark.parametrize(("number", "access"), [(1, []), (2, ALL_STRICT)], ids=["permissive", "strict"])
def test_a_trace_of_a_client_is_one_tree_over_both_sidecars(
    traced: Traced, number: int, access: Sequence[Object]
) -> None:
    trace, app = f"{number:032x}", traced.lab.members["one"].apps[8080]
    traced.serve(*access)
    app.seen.clear()
    client = traced.lab.members["client"]
    answer = traced.lab.run(ask(client, ONE, headers=[("traceparent", f"00-{trace}-{SPAN}-01")]))
    assert answer.status == 200
    spans = traced.spans(trace)
    assert [(span.service, span.kind) for span in spans] == BOTH
    assert [span.parent for span in spans] == [SPAN, *(span.id for span in spans[:-1])]
    (seen,) = app.seen
    assert seen.headers["traceparent"] == f"00-{trace}-{spans[-1].id}-01"
    assert "x-request-id" not in seen.headers
    caller = spans[2].attributes.get("headgate.caller")
    assert caller == "spiffe://cluster.local/ns/default/sa/client"
