"""A new field of the routing model needs a decision: each renderer carries it over, or reports an omission."""

from collections.abc import Sequence

import msgspec
import pytest
from tests.golden.cases import compiled

from headgate.model.requests import (
    Filters,
    Header,
    HeaderEdit,
    Match,
    Path,
    PathEdit,
    Query,
    Redirect,
    Rewrite,
    Text,
    Timeouts,
)
from headgate.model.routing import (
    Broken,
    Endpoint,
    GatewayPort,
    HostRoutes,
    Mirror,
    Protocol,
    Redirected,
    Route,
    RouteTable,
    Split,
    Sticky,
    Target,
)
from headgate.render.omissions import Omission, OmissionReason
from headgate.render.proxy_ports import Chosen, Selection, select

RENDERED = {
    Broken: "weight status",
    Endpoint: "address port resolved",
    Filters: "request response rewrite",
    GatewayPort: "gateway address port protocol hosts tls connections server_names client_certificates client",
    Header: "name text",
    HeaderEdit: "set add remove",
    HostRoutes: "host routes listener",
    Match: "path other_paths methods headers query",
    Mirror: "ref targets numerator denominator",
    Path: "kind value",
    PathEdit: "kind value",
    Query: "name text",
    Redirect: "status scheme hostname port path",
    Rewrite: "hostname path",
    Route: "split match name origin redirect cors external_auth session filters mirrors timeouts retry",
    RouteTable: "ref routes server_names protocol resilience",
    Redirected: "weight redirect filters",
    Split: "targets broken redirected sticky order",
    Sticky: "kind name",
    Target: "ref weight filters protocol resilience session tls",
    Text: "value regex",
    Timeouts: "request backend",
}
WITHOUT_EFFECT = {
    Broken: "reason",
    # render/identities.py names pods that need an identity; rendered proxies serve no names of pods, as no addresses of pods
    Endpoint: "workload identity terminating hostname",
    Mirror: "split by",
    Route: "split_matches needs_permission",
    Sticky: "slot_ranges",  # sticky splits are omissions
    Target: "root policy_roots",
}
"""Fields that change no request: names for messages and counters, and parts of what is reported as a whole."""


@pytest.mark.parametrize("kind", RENDERED, ids=lambda kind: kind.__name__)
def test_every_field_of_the_model_is_rendered_or_has_no_effect(kind: type[msgspec.Struct]) -> None:
    known = {*RENDERED[kind].split(), *WITHOUT_EFFECT.get(kind, "").split()}
    assert {field.name for field in msgspec.structs.fields(kind)} == known


def test_every_protocol_is_known() -> None:
    assert {item.value for item in Protocol} == {"http", "http2", "http-any", "tcp", "tcp-server-first", "tls", "udp"}


def omissions_of(selection: Selection, reason: OmissionReason) -> Sequence[Omission]:
    """Return what a rendered proxy leaves out for one reason."""
    return [omission for omission in selection.omissions if omission.reason is reason]


def test_settings_about_failing_endpoints_are_omissions_of_their_objects() -> None:
    """The golden case has annotations on three Services, one of them with mistakes only, and a rule with retries."""
    left_out = omissions_of(select(compiled("resilience").mesh), OmissionReason.RESILIENCE)
    assert [(str(omission.origin), omission.what) for omission in left_out] == [
        ("Service default/plain", "settings about failing endpoints"),
        ("Service default/shop", "settings about failing endpoints"),
        ("HTTPRoute default/edge", "retry"),
    ]


def test_cors_policies_are_omissions_of_their_rules() -> None:
    left_out = omissions_of(select(compiled("gw-cors").mesh), OmissionReason.CORS)
    assert {(str(omission.origin), omission.where, omission.what) for omission in left_out} == {
        ("HTTPRoute default/cors", f"route {number}", "CORS filter") for number in range(3)
    }


def test_rules_with_an_authorization_server_are_closed_and_omissions() -> None:
    selection = select(compiled("gw-external-auth").mesh, Chosen(gateways=["default/edge"]))
    left_out = omissions_of(selection, OmissionReason.EXTERNAL_AUTH)
    assert {(omission.where, omission.what) for omission in left_out} == {
        (f"route {number}", "ExternalAuth filter") for number in range(3)
    }
    (port,) = selection.ports
    routes = [route for host in port.hosts for route in host.routes]
    assert {(route.redirect, route.split.targets) for route in routes} == {(None, ())}
    assert sorted((route.name, route.split.broken[0].status) for route in routes) == [
        ("0", 403),
        ("1", 403),
        ("2", 403),
        ("3", 400),  # ambiguous paths
        ("3", 500),
    ]


def test_sessions_are_omissions_of_their_rules() -> None:
    left_out = omissions_of(select(compiled("gw-filters").mesh), OmissionReason.SESSION)
    assert [(str(omission.origin), omission.where, omission.what) for omission in left_out] == [
        ("HTTPRoute default/filters", f"route {number}", "sessionPersistence") for number in (7, 8)
    ]


def test_routes_of_tls_listeners_are_omissions_and_https_listeners_of_their_port_remain() -> None:
    selection = select(compiled("gw-tls").mesh)
    left_out = omissions_of(selection, OmissionReason.SERVER_NAME)
    in_mesh = ("TLSRoute default/in-mesh", "port 443 of Service default/mail-v1, host mail.example.com")
    assert {(str(omission.origin), omission.where) for omission in left_out} - {in_mesh} == {
        (f"TLSRoute default/{name}", f"port 443, host {host}")
        for name, host in (
            ("db", "db.example.com"),
            ("late", "late.example.com"),
            ("mail", "mail.example.com"),
            ("mail", "*.mail.example.com"),
            ("missing", "missing.example.com"),
        )
    }
    (web,) = [port for port in selection.ports if port.port == 443]
    assert [host.names for host in web.hosts] == [("shop.example.com",)]
    assert [host for host, _ in web.tls] == ["shop.example.com"]


def test_udp_ports_are_omissions_of_their_routes() -> None:
    selection = select(compiled("gw-udp").mesh)
    left_out = omissions_of(selection, OmissionReason.UDP)
    assert {(str(item.origin), item.where) for item in left_out} == {
        ("UDPRoute default/dns", "UDP port 53"),
        ("UDPRoute default/partly", "UDP port 514"),
    }
    assert [port.protocol for port in selection.ports] == [Protocol.TCP]
