"""Names of Envoy resources can be parsed, and no two Services share a spelling (R2)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headgate.envoy import names
from headgate.model.routing import Frontend, PortRef
from headgate.resources.meta import Key
from headgate.resources.registry import TRAFFIC_SPLIT

LABELS = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,8}[a-z0-9])?", fullmatch=True) | st.sampled_from(("svc", "default", "10"))
REFS = st.builds(lambda ns, name, port: PortRef(f"{ns}/{name}", port), LABELS, LABELS, st.integers(1, 65535))
FRONTENDS = st.builds(
    lambda ns, name, ports: Frontend(service=f"{ns}/{name}", ports=tuple(sorted(ports))),
    LABELS,
    LABELS,
    st.sets(st.integers(1, 65535), min_size=1, max_size=3),
)


@given(ref=REFS, target=REFS, authority=st.text())
def test_a_service_ports_name_can_be_parsed(ref, target, authority):
    made = (
        names.outbound(ref),
        names.backend(ref, target.service),
        names.no_endpoints(ref),
        names.host_scope(ref, authority),
    )
    assert [names.parse(name) for name in made] == [ref] * 4
    assert len(set(made)) == 4


@given(ref=REFS, origin=REFS, number=st.integers(0, 15))
def test_a_rules_name_can_be_parsed_for_services_and_gateways(ref, origin, number):
    rule = Key("gateway.networking.k8s.io", "HTTPRoute", *origin.service.split("/"))
    gateway = names.GatewayRef(ref.service, ref.port)
    made = [names.rule(parent, rule, str(number)) for parent in (ref, gateway)]
    assert [names.parse_rule(name) for name in made] == [rule, rule]
    assert [names.parse(name) for name in made] == [ref, None]
    assert [names.parse_gateway(name) for name in made] == [None, gateway]
    assert names.parse_gateway(names.gateway(gateway)) == gateway
    assert names.parse_rule(names.gateway(gateway)) is None


@given(ref=REFS)
def test_a_mirror_is_recognized_by_its_name(ref):
    assert names.parse(names.mirror(ref)) == ref
    assert [names.is_mirror(name) for name in (names.mirror(ref), names.outbound(ref))] == [True, False]


@pytest.mark.parametrize("name", [names.PROXY, names.TRY, names.MISSING, names.secret("default/all")])
def test_the_proxys_own_resources_belong_to_no_service(name):
    assert names.parse(name) is None


@given(st.lists(FRONTENDS, max_size=8, unique_by=lambda front: front.service), LABELS)
def test_two_services_never_get_the_same_host_name(frontends, domain):
    spelled = [item for front in frontends for item in names.authorities(front, domain)]
    assert len(dict(spelled)) == len(spelled)


def test_the_spellings_of_a_service_include_its_kubernetes_dns_names():
    web = Frontend(service="default/web", address="10.0.0.1", ports=(80, 8080))
    assert dict(names.authorities(web, "cluster.local")) == {
        f"{spelling}{suffix}": port
        for spelling in ("web", "web.default", "web.default.svc", "web.default.svc.cluster.local", "10.0.0.1")
        for suffix, port in (("", 80), (":80", 80), (":8080", 8080))
    }


def test_only_services_of_the_default_namespace_have_a_short_name():
    spellings = dict(names.authorities(Frontend(service="blue/web", ports=(80,)), "cluster.local"))
    assert "web" not in spellings
    assert spellings["web.blue"] == 80


def test_a_spelling_without_a_port_means_port_80_or_else_the_first_port():
    assert dict(names.authorities(Frontend(service="blue/web", ports=(8080, 9090)), "c.l"))["web.blue"] == 8080


def test_an_ipv6_address_has_brackets():
    spellings = dict(names.authorities(Frontend(service="blue/web", address="fd00::1", ports=(8080,)), "c.l"))
    assert {"[fd00::1]", "[fd00::1]:8080"} <= spellings.keys()
    assert "fd00::1" not in spellings


@given(ref=REFS, origin=REFS, target=REFS)
def test_the_split_in_a_matched_clusters_name_can_be_parsed(ref, origin, target):
    namespace, name = origin.service.split("/")
    matched = names.matched_requests(ref, TRAFFIC_SPLIT.key(namespace, name))
    assert (
        names.matching_split(matched)
        == names.matching_split(f"{matched}/{target.service}/{target.port}")
        == origin.service
    )
    assert names.matching_split(names.backend(ref, target.service)) == names.matching_split(names.outbound(ref)) == ""
