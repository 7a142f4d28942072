"""Checks and types of Gateways and GatewayClasses (requirements 2.4)."""

import base64
from typing import Any

import pytest
from tests.decoding import decode
from tests.make.objects import Object, listener, obj

from headgate.resources.core.secret import Secret
from headgate.resources.decode import read, validate
from headgate.resources.gateway_api.gateway import Gateway
from headgate.resources.gateway_api.listener_set import ListenerSet
from headgate.resources.meta import Key

GROUP = "gateway.networking.k8s.io"


def gateway_with(*listeners: Object, **spec: Any) -> Object:
    return obj("Gateway", "edge", spec={"gatewayClassName": "headgate", "listeners": list(listeners), **spec})


def set_with(*listeners: Object, **parent: Any) -> Object:
    return obj("ListenerSet", "team", spec={"parentRef": {"name": "edge", **parent}, "listeners": list(listeners)})


def listener_with(name: str = "http", port: Any = 80, protocol: str = "HTTP", **fields: Any) -> Object:
    return listener(port, name, protocol=protocol, **fields)


def gateway_class(controller: Any) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "c"},
        "spec": {"controllerName": controller},
    }


CERTIFICATE = {"certificateRefs": [{"name": "cert"}]}
FIRST = "spec.listeners[0]"


@pytest.mark.parametrize(
    "obj",
    [
        gateway_with(listener_with()),
        gateway_with(
            listener_with("a", 80, hostname="*.example.com"), listener_with("b", 80, hostname="a.example.com")
        ),
        gateway_with(
            listener_with("s", 443, "HTTPS", tls=CERTIFICATE),
            listener_with("p", 8443, "TLS", tls={"mode": "Passthrough"}),
        ),
        gateway_with(listener_with("mysql", 3306, "TCP", allowedRoutes={"kinds": [{"kind": "TCPRoute"}]})),
        gateway_with(listener_with(protocol="example.com/own")),
        gateway_with(
            listener_with(allowedRoutes={"namespaces": {"from": "Selector", "selector": {"matchLabels": {"a": "b"}}}})
        ),
        gateway_class("headgate.dev/gateway-controller"),
        gateway_with(listener_with(), allowedListeners={"namespaces": {"from": "All"}}),
        set_with(listener_with(), listener_with("s", 443, "HTTPS", hostname="a.example", tls=CERTIFICATE)),
    ],
)
def test_objects_that_the_released_api_allows_are_valid(obj):
    assert validate(obj) == ()


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (
            gateway_with(listener_with(), tls={"frontend": {"default": {}, "perPort": [{"port": 443, "tls": {}}] * 2}}),
            "spec.tls.frontend.perPort[1].port",
            "is the port of spec.tls.frontend.perPort[0] too; ports must differ",
        ),
        (gateway_with(), "spec.listeners", "must have at least 1 entry"),
        (gateway_with(listener_with(port=0)), f"{FIRST}.port", "must be from 1 to 65535, not 0"),
        (
            gateway_with(listener_with(port="80")),
            f"{FIRST}.port",
            "must be a whole number, not text; write it without quotes",
        ),
        (gateway_with(listener_with(name="Not_A_Name")), f"{FIRST}.name", "is not valid"),
        (gateway_with(listener_with(prt=80)), f"{FIRST}.prt", "is not a field; did you mean port?"),
        (gateway_with(listener_with(hostname="1.2.3.4")), f"{FIRST}.hostname", "is an address"),
        (gateway_with(listener_with(hostname="a.*.com")), f"{FIRST}.hostname", "write *.example.com"),
        (gateway_with(listener_with(hostname="WWW.example.com")), f"{FIRST}.hostname", "write www.example.com"),
        (
            gateway_with(listener_with(), listener_with("http", 81)),
            "spec.listeners[1].name",
            "is the name of spec.listeners[0] too",
        ),
        (
            gateway_with(listener_with("a"), listener_with("b")),
            "spec.listeners[1]",
            "has the same port, protocol and hostname as",
        ),
        (gateway_with(listener_with(tls=CERTIFICATE)), f"{FIRST}.tls", "is not possible with protocol HTTP"),
        (gateway_with(listener_with(protocol="HTTPS")), f"{FIRST}.tls", "is missing"),
        (gateway_with(listener_with(protocol="HTTPS", tls={})), f"{FIRST}.tls.certificateRefs", "name the Secret"),
        (
            gateway_with(listener_with(protocol="HTTPS", tls={"mode": "Passthrough"})),
            f"{FIRST}.tls.mode",
            "must be Terminate",
        ),
        (
            gateway_with(listener_with(protocol="TCP", hostname="a.b")),
            f"{FIRST}.hostname",
            "its connections carry no host name; leave it out",
        ),
        (
            gateway_with(listener_with(allowedRoutes={"namespaces": {"from": "Selector"}})),
            f"{FIRST}.allowedRoutes.namespaces.selector",
            "is missing",
        ),
        (
            gateway_with(listener_with(), allowedListeners={"namespaces": {"from": "Selector"}}),
            "spec.allowedListeners.namespaces.selector",
            "is missing",
        ),
        (
            gateway_with(listener_with(allowedRoutes={"namespaces": {"from": "Some"}})),
            f"{FIRST}.allowedRoutes.namespaces.from",
            "must be one of All, Selector, Same, None, not 'Some'",
        ),
        (gateway_with(listener_with(), gatewayClassName=None), "spec.gatewayClassName", "is missing"),
        (set_with(listener_with("a"), listener_with("b")), "spec.listeners[1]", "has the same port, protocol and"),
        (set_with(), "spec.listeners", "must have at least 1 entry"),
        (set_with(listener_with(), name=None), "spec.parentRef.name", "is missing"),
        (gateway_class("headgate"), "spec.controllerName", "is not the name of a controller"),
        ({**gateway_with(), "spec": None}, "spec", "is missing"),
        ({**gateway_with(), "spec": []}, "spec", "must be an object, not a list"),
    ],
)
def test_a_mistake_is_reported_with_its_field(obj, field, message):
    found = {cause.field: cause.message for cause in validate(obj)}
    assert message in found[field]


def test_all_mistakes_are_reported_together():
    wrong = gateway_with(
        listener_with(port=0, hostname="a b"), listener_with("http", 81, "TCP", hostname="x.y", more=1)
    )
    assert [cause.field for cause in validate(wrong)] == [
        "spec.listeners[0].port",
        "spec.listeners[0].hostname",
        "spec.listeners[1].more",
        "spec.listeners[1].name",
        "spec.listeners[1].hostname",
    ]


def test_a_listener_set_names_its_gateway():
    listener_set = read(set_with(listener_with(), namespace="infra"), ListenerSet)
    assert listener_set.gateway == Key(GROUP, "Gateway", "infra", "edge")
    assert read(set_with(listener_with()), ListenerSet).gateway.namespace == "default"


def test_a_gateways_address_is_read_from_its_status():
    given = {"addresses": [{"type": "Hostname", "value": "h"}, {"type": "IPAddress", "value": "127.77.0.5"}]}
    found = decode({**gateway_with(listener_with()), "status": given})
    assert isinstance(found, Gateway)
    assert found.address == "127.77.0.5"
    before = decode(gateway_with(listener_with()))
    assert isinstance(before, Gateway)
    assert before.address == ""


def secret(**data: str) -> Object:
    return obj("Secret", "cert", type="kubernetes.io/tls", data=data)


def test_a_secret_has_chain_and_key_but_its_repr_does_not_show_them():
    text = base64.b64encode(b"-----BEGIN").decode()
    found = decode(secret(**{"tls.crt": text, "tls.key": text}))
    assert isinstance(found, Secret)
    assert found.certificate == (b"-----BEGIN", b"-----BEGIN")
    assert text not in repr(found)
    assert decode(secret(password="eA==")) == decode(secret(password="eQ=="))  # headgate reads no other keys


def test_a_certificate_that_is_not_base64_is_decoded_as_empty_bytes():
    found = read(secret(**{"tls.crt": "%%%"}), Secret)
    assert found.certificate == (b"", b"")
