"""Shares of TrafficSplits, by weights and by the backends that exist (requirements 1.1 and 1.8)."""

import pytest
from tests.draws import fits
from tests.e2e.manifests import annotated, endpoints, external, service_manifest, split_grant, split_manifest
from tests.e2e.running_mesh import RunningMesh
from tests.waiting import until


def test_the_shares_of_a_split_are_exact(mesh: RunningMesh, namespace: str) -> None:
    """R7: with 1000/500 the second backend gets exactly one third."""
    v1, v2 = mesh.backend("v1"), mesh.backend("v2")
    mesh.apply(
        external("web"),
        external("web-v1", v1),
        external("web-v2", v2),
        split_manifest("web", "web", {"web-v1": 1000, "web-v2": 500}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(300, request, connections=3) == {"v1": 200, "v2": 100}
    assert (v1.reset_count(), v2.reset_count()) == (200, 100)
    assert mesh.send(300, mesh.request("web", 8080, namespace=namespace, via="proxy")) == {"v1": 200, "v2": 100}


def test_a_backend_without_endpoints_gets_no_requests_until_it_has_one(mesh: RunningMesh, namespace: str) -> None:
    """R28, D9."""
    v1, v2, late = mesh.backend("v1"), mesh.backend("v2"), mesh.backend("late")
    mesh.apply(
        external("web"),
        external("web-v1", v1),
        external("web-v2", v2),
        external("web-v3"),
        split_manifest("web", "web", {"web-v1": 2, "web-v2": 1, "web-v3": 3}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(30, request) == {"v1": 20, "v2": 10}
    assert mesh.conditions("web", namespace, BackendsReady="NoReadyEndpoints")["BackendsReady"][0] == "False"
    mesh.apply(endpoints("web-v3", {"http": [late]}), namespace=namespace)
    assert mesh.send(60, request) == {"v1": 20, "v2": 10, "late": 30}
    mesh.event("NoReadyEndpointsResolved", "web", namespace)
    mesh.conditions("web", namespace, BackendsReady="True")


def test_with_no_endpoints_fail_the_share_of_a_backend_without_endpoints_gets_503(
    mesh: RunningMesh, namespace: str
) -> None:
    """D9: such a share is random, not exact."""
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        external("web-v2"),
        annotated(split_manifest("web", "web", {"web-v1": 3, "web-v2": 1}), no_endpoints="fail"),
        namespace=namespace,
    )
    counts = mesh.send(1000, mesh.request("web", 8080, namespace=namespace), connections=4)
    assert set(counts) == {"v1", "503"}
    assert fits(counts["503"], 0.25, of=1000)
    event = mesh.event("Programmed", "web", namespace)
    assert event[2] == "every proxy applies these shares: port 8080: web-v1 75%, web-v2 0%, 503 25%"


def test_a_split_without_ready_backends_answers_503(mesh: RunningMesh, namespace: str) -> None:
    """D9: the root's own endpoints don't get this traffic, as the weights don't name them."""
    root = mesh.backend("root")
    mesh.apply(
        external("web", root), external("web-v1"), split_manifest("web", "web", {"web-v1": 1}), namespace=namespace
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"503": 20}
    assert root.requests == 0


def test_a_split_whose_weights_are_all_zero_answers_503_and_has_a_warning(mesh: RunningMesh, namespace: str) -> None:
    """D10."""
    mesh.apply(
        external("web", mesh.backend("root")),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", mesh.backend("v2")),
        split_manifest("web", "web", {"web-v1": 0, "web-v2": 0}),
        namespace=namespace,
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"503": 20}
    assert mesh.event("AllWeightsZero", "web", namespace)[0] == "Warning"
    event = mesh.event("Programmed", "web", namespace)
    assert event[2] == "every proxy applies these shares: port 8080: web-v1 0%, web-v2 0%, 503 100%"
    mesh.conditions("web", namespace, Programmed="True")  # Envoy accepts the configuration
    assert mesh.send(10, mesh.request("web-v1", 8080, namespace=namespace)) == {"v1": 10}  # R21


def test_a_split_whose_weights_are_all_zero_answers_503_on_a_port_that_no_backend_offers(
    mesh: RunningMesh, namespace: str
) -> None:
    """D10 takes precedence over D9: the root's own endpoints get no requests."""
    root = mesh.backend("root")
    mesh.apply(
        external("web", root),
        external("web-v1", mesh.backend("v1"), port=1024),
        split_manifest("web", "web", {"web-v1": 0, "gone": 0}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(20, request) == {"503": 20}
    assert root.requests == 0
    assert mesh.event("AllWeightsZero", "web", namespace)[0] == "Warning"
    assert (
        mesh.event("Programmed", "web", namespace)[2]
        == "every proxy applies these shares: port 8080: web-v1 0%, gone 0%, 503 100%"
    )
    mesh.apply(split_manifest("web", "web", {"web-v1": 1, "gone": 0}), namespace=namespace)
    assert mesh.send(20, request) == {"root": 20}


def test_a_backend_of_weight_zero_gets_no_requests_when_no_other_backend_is_ready(
    mesh: RunningMesh, namespace: str
) -> None:
    """R8, D9."""
    idle = mesh.backend("idle")
    mesh.apply(
        external("web"),
        external("web-v1"),
        external("web-v2", idle),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 0}),
        namespace=namespace,
    )
    assert mesh.send(20, mesh.request("web", 8080, namespace=namespace)) == {"503": 20}
    assert idle.requests == 0


def test_the_api_rejects_a_split_that_names_its_own_root_without_the_annotation(
    mesh: RunningMesh, namespace: str
) -> None:
    """R18, D1."""
    mesh.apply(external("web", mesh.backend("root")), external("web-v1", mesh.backend("v1")), namespace=namespace)
    written = split_manifest("web", "web", {"web-v1": 1, "web": 9})
    refused = mesh.try_kubectl("apply", "-n", namespace, "-f", "-", stdin=written)
    assert refused.returncode == 1
    assert "spec.backends[1].service" in refused.stderr
    assert "is both the root and a backend" in refused.stderr
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(10, request) == {"root": 10}
    mesh.apply(annotated(written, allow_self_reference="true"), namespace=namespace)
    assert mesh.send(50, request) == {"root": 45, "v1": 5}


def test_the_first_of_two_splits_of_a_root_applies_and_the_second_is_conflicted(
    mesh: RunningMesh, namespace: str
) -> None:
    """D8. Both splits have the same creation time (in seconds), so the first split by name takes precedence."""
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", mesh.backend("v2")),
        split_manifest("first", "web", {"web-v1": 1}),
        split_manifest("second", "web", {"web-v2": 1}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(20, request) == {"v1": 20}
    status, _, message = mesh.conditions("second", namespace, Conflicted="Conflicted")["Conflicted"]
    assert status == "True"
    assert f"{namespace}/first" in message
    mesh.event("Conflicted", "second", namespace)
    mesh.delete("trafficsplit/first", namespace)
    mesh.settle()
    assert mesh.send(20, request) == {"v2": 20}
    mesh.conditions("second", namespace, Conflicted="False")


def test_a_backend_in_another_namespace_gets_requests_only_with_a_grant(mesh: RunningMesh, namespace: str) -> None:
    """D12: the test sends requests without a grant, with a grant, and after the deletion of the grant."""
    other = f"{namespace}-other"
    mesh.create_namespace(other)
    mesh.apply(external("web-v2", mesh.backend("v2")), namespace=other)
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        split_manifest("web", "web", {"web-v1": 1, f"web-v2.{other}": 1}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(20, request) == {"v1": 20}
    status, _, message = mesh.conditions("web", namespace, ResolvedRefs="RefNotPermitted")["ResolvedRefs"]
    assert status == "False"
    assert f"create a ReferenceGrant in the namespace {other}" in message
    mesh.apply(split_grant("splits", source=namespace, to="web-v2"), namespace=other)
    assert mesh.send(20, request) == {"v1": 10, "v2": 10}
    mesh.conditions("web", namespace, ResolvedRefs="True")
    mesh.delete("referencegrant/splits", other)
    mesh.settle()
    assert mesh.send(20, request) == {"v1": 20}


def test_a_split_does_not_follow_the_split_of_its_backend(mesh: RunningMesh, namespace: str) -> None:
    """R17, R19: here two splits refer to each other."""
    mesh.apply(
        external("one", mesh.backend("1")),
        external("two", mesh.backend("2")),
        split_manifest("one", "one", {"two": 1}),
        split_manifest("two", "two", {"one": 1}),
        namespace=namespace,
    )
    assert mesh.send(10, mesh.request("one", 8080, namespace=namespace)) == {"2": 10}
    assert mesh.send(10, mesh.request("two", 8080, namespace=namespace)) == {"1": 10}


def test_headless_and_nodeport_backends_get_their_shares(mesh: RunningMesh, namespace: str) -> None:
    """R5: a backend may be a Service of any type with endpoints."""
    headless, port = mesh.backend("headless"), mesh.backend("nodeport")
    mesh.apply(
        external("web"),
        service_manifest("web-v1", {"http": 8080}, clusterIP="None"),
        endpoints("web-v1", {"http": [headless]}),
        service_manifest("web-v2", {"http": 8080}, type="NodePort"),
        endpoints("web-v2", {"http": [port]}),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 3}),
        namespace=namespace,
    )
    assert mesh.send(40, mesh.request("web", 8080, namespace=namespace)) == {"headless": 10, "nodeport": 30}
    through_proxy = mesh.request("web-v1", 8080, namespace=namespace, via="proxy")
    assert mesh.send(5, through_proxy) == {"headless": 5}


@pytest.mark.parametrize("form", ["web", "web.{}", "web.{}.svc", "web.{}.svc.cluster.local"])
def test_a_split_may_name_its_root_in_every_form(mesh: RunningMesh, namespace: str, form: str) -> None:
    """R2."""
    mesh.apply(
        external("web", mesh.backend("root")),
        external("web-v1", mesh.backend("v1")),
        split_manifest("web", form.format(namespace), {"web-v1": 1}),
        namespace=namespace,
    )
    assert mesh.send(5, mesh.request("web", 8080, namespace=namespace)) == {"v1": 5}


def test_backends_with_a_common_endpoint_get_their_shares(mesh: RunningMesh, namespace: str) -> None:
    """When two Services select the same pods, the proxy selects the backend of each request at random."""
    both, one = mesh.backend("both"), mesh.backend("one")
    mesh.apply(
        external("web"),
        external("web-v1", both),
        external("web-v2", both, one),
        split_manifest("web", "web", {"web-v1": 1, "web-v2": 1}),
        namespace=namespace,
    )
    counts = mesh.send(1000, mesh.request("web", 8080, namespace=namespace), connections=4)
    assert set(counts) == {"both", "one"}
    assert fits(counts["one"], 0.25, of=1000)


def test_a_split_works_in_every_order_of_creation_and_deletion(mesh: RunningMesh, namespace: str) -> None:
    """R22."""
    parts = {
        "v1": external("web-v1", mesh.backend("v1")),
        "root": external("web", mesh.backend("root")),
        "split": split_manifest("web", "web", {"web-v1": 1}),
    }
    mesh.apply(parts["split"], namespace=namespace)
    assert mesh.conditions("web", namespace, ResolvedRefs="ServiceNotFound")["ResolvedRefs"][0] == "False"
    mesh.apply(parts["root"], namespace=namespace)
    request = mesh.request("web", 8080, namespace=namespace)
    assert mesh.send(5, request) == {"root": 5}
    mesh.apply(parts["v1"], namespace=namespace)
    assert mesh.send(5, request) == {"v1": 5}
    mesh.delete("service/web", namespace)
    mesh.settle()
    until(lambda: mesh.send(2, request) == {"ConnectionRefusedError": 2})
    mesh.apply(parts["root"], namespace=namespace)
    assert mesh.send(5, mesh.request("web", 8080, namespace=namespace)) == {"v1": 5}


def test_the_last_of_many_quick_changes_is_active_and_no_request_fails(mesh: RunningMesh, namespace: str) -> None:
    """R25."""
    mesh.apply(
        external("web"),
        external("web-v1", mesh.backend("v1")),
        external("web-v2", mesh.backend("v2")),
        split_manifest("web", "web", {"web-v1": 1}),
        namespace=namespace,
    )
    request = mesh.request("web", 8080, namespace=namespace)
    with mesh.load(request) as load:
        for weight in (*range(10), 3):
            written = split_manifest("web", "web", {"web-v1": 1, "web-v2": weight})
            mesh.kubectl("apply", "-n", namespace, "-f", "-", stdin=written)
        mesh.settle()
    assert set(load.counts) <= {"v1", "v2"}
    assert mesh.send(40, request) == {"v1": 10, "v2": 30}
