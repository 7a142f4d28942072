"""Findings about gateways behind Services depend on the host (R32, D23)."""

from typing import Any

import pytest
from tests.make.objects import Object, canary, service

from headgate.compiler.compile import compile_mesh
from headgate.envoy.view import MeshView, ProxyKind
from headgate.plane.feed import snapshot_of
from headgate.resources.registry import key_of
from headgate.settings import Settings

NO_NGINX = (
    "this machine has no nginx, so the gateway serves the Service default/web; install nginx, and start headgate again"
)
HEADLESS = "has no effect: the Service default/web is headless, so clients call pods; create it with a clusterIP"


def fronted_service(proxy: str, **spec: Any) -> Object:
    return service("web", 80, annotations={"headgate.dev/gateway": proxy}, **{"clusterIP": "127.1.0.1", **spec})


@pytest.mark.parametrize(
    ("proxy", "spec", "nginx", "reported"),
    [
        ("envoy", {}, True, []),
        ("envoy", {"selector": {"app": "web"}}, True, []),
        ("envoy", {"clusterIP": "None"}, True, []),
        ("nginx", {}, True, []),
        ("nginx", {"clusterIP": "None"}, True, [HEADLESS]),
        ("nginx", {}, False, [NO_NGINX]),
        (
            "apache",
            {},
            True,
            ["must be envoy or nginx, not 'apache'; until then the Service default/web has no gateway"],
        ),
    ],
)
def test_on_one_machine_a_gateway_of_a_service_is_reported_only_if_it_can_not_be_had(
    proxy: str, spec: dict[str, Any], nginx: bool, reported: list[str]
) -> None:
    obj = fronted_service(proxy, **spec)
    compiled = compile_mesh(snapshot_of({key_of(obj): obj}), Settings(gateway_pods=False, nginx=nginx))
    assert [item.message for item in compiled.report.findings] == reported


def test_the_field_of_a_canary_requests_a_gateway_and_findings_name_it() -> None:
    written = canary("web", {"web-next": 1}, gateway="Nginx")
    objects = {key_of(obj): obj for obj in (written, service("web", 80, clusterIP="127.1.0.1"))}
    report = compile_mesh(snapshot_of(objects), Settings(gateway_pods=False, nginx=False)).report
    (finding,) = [finding for finding in report.findings if finding.about == key_of(written)]
    assert (finding.field, finding.message) == ("spec.gateway", NO_NGINX)


def test_the_annotation_of_a_service_has_no_effect_on_a_canary_and_the_finding_names_the_field() -> None:
    written = canary("web", {"web-next": 1}, annotations={"headgate.dev/gateway": "nginx"})
    objects = {key_of(obj): obj for obj in (written, service("web", 80, clusterIP="127.1.0.1"))}
    report = compile_mesh(snapshot_of(objects), Settings(gateway_pods=False, nginx=True)).report
    assert report.service_gateways == ()
    (finding,) = [finding for finding in report.findings if finding.about == key_of(written)]
    assert finding.message == "headgate.dev/gateway has no effect on a Canary; set spec.gateway, or remove it"


@pytest.mark.parametrize(
    ("proxy", "settings", "listening"),
    [
        ("nginx", Settings(), False),
        ("envoy", Settings(), True),
        ("nginx", Settings(nginx=False), True),
        ("nginx", Settings(gateway_pods=True), True),
    ],
)
def test_the_gateway_of_the_machine_listens_unless_nginx_can(proxy: str, settings: Settings, listening: bool) -> None:
    obj = fronted_service(proxy)
    mesh = compile_mesh(snapshot_of({key_of(obj): obj}), settings).mesh
    (port,) = MeshView(
        mesh, ProxyKind("gateway", http_proxy=True, has_certificate=True, gateway="", service="")
    ).services()
    assert bool(port.ports[0].address) == listening
