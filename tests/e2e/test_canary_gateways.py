"""Canaries whose root Service gets requests only through a Gateway: they are the evidence, as those of other clients (R108)."""

import time
from collections.abc import Mapping
from typing import Any

from tests.e2e.canaries import TESTER, canary_of_website, changed
from tests.e2e.gateway_api.objects import edge_route, gateway_address, gateway_for_hosts, rule_to
from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.make.rollouts import message_of, state_of
from tests.waiting import until
from tests.wire import Request

from headgate.envoy.stats_sink import CLUSTER_SECONDS

HOST = "shop.example"
TESTERS = [{"name": "testers", "headers": {"x-tester": "yes"}}]


class Shop:
    """A Canary behind a Gateway, whose HTTPRoute sends the requests of a host to the root."""

    def __init__(self, mesh: RunningMesh, namespace: str, manifest: str) -> None:
        self.mesh, self.namespace = mesh, namespace
        self.v1, self.v2 = mesh.backend("v1"), mesh.backend("v2")
        mesh.apply(
            external("website-v1", self.v1),
            external("website-v2", self.v2),
            manifest,
            gateway_for_hosts(),
            edge_route("route", rule_to("website"), hosts=[HOST]),
            namespace=namespace,
        )
        self.request = Request(gateway_address(mesh, namespace), "/", HOST)
        until(self._is_served)

    def _is_served(self) -> bool:
        """Return whether all proxies route requests to the versions. The test sends none: its report could arrive late."""
        (parent,) = self.mesh.get("httproute/route", self.namespace)["status"]["parents"]
        found = {item["type"]: item["status"] for item in parent["conditions"]}
        assert (found["ResolvedRefs"], found["headgate.dev/Programmed"]) == ("True", "True"), found
        return bool(self.status["rollout"].get("since"))

    @property
    def status(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.mesh.get("canary/website", self.namespace).get("status") or {}
        return found

    @property
    def counts(self) -> Mapping[str, tuple[int, int]]:
        """The requests and failures of each version in the current step."""
        return {row["service"]: (row.get("requests", 0), row.get("failures", 0)) for row in self.status["backends"]}

    def until_counts(self, wanted: Mapping[str, tuple[int, int]]) -> None:
        """Wait until the status has these requests and failures."""

        def current() -> bool:
            found = self.counts
            assert found == wanted, self.status
            return True

        until(current)

    def until_counting(self) -> None:
        """Wait until new requests are evidence: all proxies have the step, and their reports have no earlier ones."""

        def begun() -> bool:
            since = self.status["rollout"].get("since", 0)
            return bool(since) and time.time() > since + CLUSTER_SECONDS

        until(begun)


def test_requests_through_a_gateway_count_exactly_and_roll_a_failing_version_back(
    mesh: RunningMesh, namespace: str
) -> None:
    manifest = canary_of_website(steps=[{"share": "50%"}])
    shop = Shop(mesh, namespace, changed(manifest, paused=True))
    shop.v2.status = "500 Broken"
    shop.until_counting()
    assert mesh.send(100, shop.request) == {"v1": 90, "500": 10}
    shop.until_counts({"website-v1": (90, 0), "website-v2": (10, 10)})

    mesh.submit(changed(manifest, paused=False), namespace=namespace)
    until(lambda: state_of(shop.status) == "RolledBack")
    assert "website-v2 failed 10 of 10 requests" in message_of(shop.status)
    until(lambda: shop.status["rollout"]["since"], "every proxy has the weights")
    assert mesh.send(100, shop.request) == {"v1": 100}
    proxies = mesh.get("trafficsplit/website", namespace)["status"]["proxies"]
    assert proxies["programmed"] == proxies["total"] > 0


def test_copies_and_matches_before_the_first_share_apply_to_requests_through_a_gateway(
    mesh: RunningMesh, namespace: str
) -> None:
    manifest = canary_of_website(mirror="50%", matches=TESTERS, steps=[{"share": "10%", "pause": True}], minRequests=10)
    shop = Shop(mesh, namespace, manifest)
    assert shop.status["step"] == 1
    assert mesh.send(40, shop.request) == {"v1": 40}
    until(lambda: shop.v2.requests > 0, "copies")

    def is_next() -> bool:  # the second step lasts, because its evidence are requests of testers
        if shop.status["step"] == 1:
            mesh.send(20, shop.request)
        return bool(shop.status["step"] == 2 and "waiting" not in message_of(shop.status))

    until(is_next)
    assert mesh.send(20, shop.request) == {"v1": 20}
    assert mesh.send(20, shop.request._replace(headers=TESTER)) == {"v2": 20}
