"""Checks report all mistakes of an object together, each with its field and the fix (R6, R9; requirements 2.1)."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding import admit, decode, validate
from tests.make.objects import grant, http_route_group, obj

from headgate.errors import DecodeError, Invalid
from headgate.resources.core.service import Service
from headgate.resources.decode import check_stored, read
from headgate.resources.discovery.endpoint_slice import EndpointSlice
from headgate.resources.gateway_api.reference_grant import ReferenceGrant
from headgate.resources.smi.split_fields import ALLOW_SELF_REFERENCE, NO_ENDPOINTS
from headgate.resources.smi.traffic_split import TrafficSplit
from headgate.resources.versions import to_hub

HUB = "split.smi-spec.io/v1alpha4"
FIRST = "split.smi-spec.io/v1alpha1"
DROP = object()


def changed(base, **fields):
    return {name: value for name, value in {**base, **fields}.items() if value is not DROP}


def split_with(*, top=None, version=HUB, metadata=None, **spec):
    base = {"service": "web", "backends": [{"service": "web-v1", "weight": 90}, {"service": "web-v2", "weight": 10}]}
    whole = obj("TrafficSplit", "web", version=version, metadata=metadata, spec=changed(base, **spec))
    return changed(whole, **(top or {}))


def backend(version=HUB, **fields):
    return split_with(version=version, backends=[changed({"service": "web-v1", "weight": 1}, **fields)])


def service_with(*ports, **spec):
    return obj("Service", "web", spec={"ports": list(ports), **spec})


def grant_with(**spec):
    base = grant("g", ("split.smi-spec.io", "TrafficSplit", "a"), ("", "Service"))["spec"]
    return obj("ReferenceGrant", "g", spec=changed(base, **spec))


def slice_(**fields):
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1"},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"]}],
        "ports": [{"name": "http", "port": 80}],
        **fields,
    }


WEIGHT = "spec.backends[0].weight"
NAME = "spec.backends[0].service"


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (backend(weight=-1), WEIGHT, "must be 0 or more, not -1"),
        (backend(weight=10.5), WEIGHT, "must be a whole number, not 10.5; only the ratio of the weights counts"),
        (backend(weight="10"), WEIGHT, "must be a whole number, not the text '10'; write it without quotes"),
        (backend(weight="ten"), WEIGHT, "must be a whole number, not the text 'ten'"),
        (backend(weight=True), WEIGHT, "not a boolean"),
        (backend(weight=DROP), WEIGHT, "is missing"),
        (backend("split.smi-spec.io/v1alpha2", weight="500m"), WEIGHT, "whole number"),
        (backend(FIRST, weight="heavy"), WEIGHT, "'heavy' is not a quantity; write for example 1, 500m"),
        (backend("v1beta1", weight="-1m"), WEIGHT, "must be 0 or more"),
        (backend(FIRST, weight=[1]), WEIGHT, "must be a quantity such as"),
        (
            split_with(backends=[{"service": "a", "weight": 2**32}, {"service": "b", "weight": 1}]),
            "spec.backends",
            "fewer digits",
        ),
        (backend(service=DROP), NAME, "is missing"),
        (backend(service=5), NAME, "must be text, not a whole number"),
        (backend(service="Web_V1"), NAME, "does not name a Service"),
        (backend(service="web.ns.svc"), NAME, "write its name, or name.namespace"),
        (split_with(service=DROP), "spec.service", "is missing"),
        (split_with(service="web.ns.pod"), "spec.service", "does not name a Service"),
        (split_with(service="-web"), "spec.service", "does not name a Service"),
        (split_with(backends=DROP), "spec.backends", "is missing"),
        (split_with(backends=[]), "spec.backends", "is empty: name at least one Service and its weight"),
        (split_with(backends="web"), "spec.backends", "must be a list, not text"),
        (split_with(backends=["web"]), "spec.backends[0]", "must be an object, not text"),
        (split_with(top={"spec": DROP}), "spec", "is missing"),
        (split_with(top={"spec": []}), "spec", "must be an object, not a list"),
        (split_with(backend=[]), "spec.backend", "is not a field; did you mean backends?"),
        (backend(wieght=1), "spec.backends[0].wieght", "is not a field; did you mean weight?"),
        (split_with(top={"specs": {}}), "specs", "is not a field; did you mean spec?"),
        (split_with(zzz=1), "spec.zzz", "known fields are service, backends, matches"),
        (split_with(matches={}), "spec.matches", "must be a list"),
        (split_with(matches=[{"kind": "TCPRoute", "name": "x"}]), "spec.matches[0].kind", "must be HTTPRouteGroup"),
        (split_with(matches=[{"kind": "HTTPRouteGroup"}]), "spec.matches[0].name", "is missing"),
        (http_route_group("a", {"m": {"methods": []}}), "spec.matches[0].methods", "must have at least 1 entry"),
        (
            split_with(matches=[{"kind": "HTTPRouteGroup", "nam": "x", "name": "x"}]),
            "spec.matches[0].nam",
            "mean name?",
        ),
        (
            split_with(matches=[{"kind": "HTTPRouteGroup", "name": "x", "apiGroup": "g"}]),
            "spec.matches[0].apiGroup",
            "specs",
        ),
        (split_with(version=FIRST, matches=[]), "spec.matches", "is not a field of v1alpha1"),
        (
            split_with(metadata={"annotations": {NO_ENDPOINTS: "retry"}}),
            f"metadata.annotations.{NO_ENDPOINTS}",
            "must be fail or skip, not 'retry'",
        ),
        (
            split_with(metadata={"annotations": {ALLOW_SELF_REFERENCE: "yes"}}),
            f"metadata.annotations.{ALLOW_SELF_REFERENCE}",
            "must be true or false, not 'yes'",
        ),
        (split_with(metadata={"annotations": {"a": 1}}), "metadata.annotations.a", "must be text, not a whole number"),
        (split_with(metadata={"labels": {"a b": "c"}}), "metadata.labels.a b", "must have at most 63"),
        (split_with(metadata={"name": 7}), "metadata.name", "must be text"),
        (split_with(top={"metadata": DROP}), "metadata", "is missing"),
        (split_with(version="split.smi-spec.io/v1"), "apiVersion", "known versions are split.smi-spec.io/v1alpha4"),
        (
            split_with(version="flagger.app/v1beta1", top={"kind": "Canary"}),
            "apiVersion",
            "'Canary' of flagger.app is not a kind that headgate knows; known versions are headgate.dev/v1beta1",
        ),
        (split_with(top={"kind": "TrafficSplitt"}), "kind", "is not a kind that headgate knows"),
        (service_with({"port": 0}), "spec.ports[0].port", "must be from 1 to 65535, not 0"),
        (
            service_with({"port": "80"}),
            "spec.ports[0].port",
            "must be a whole number, not text; write it without quotes",
        ),
        (service_with({"port": 80}, {"port": 81, "name": "b"}), "spec.ports[0].name", "is required when"),
        (service_with({"port": 80, "name": "a"}, {"port": 81, "name": "a"}), "spec.ports[1].name", "must differ"),
        (service_with({"port": 80, "name": "A"}), "spec.ports[0].name", "is not valid"),
        (service_with({"port": 80, "targetPort": 70000}), "spec.ports[0].targetPort", "65535"),
        (service_with({"port": 80, "targetPort": []}), "spec.ports[0].targetPort", "a list"),
        (service_with(selector={"a": 1}), "spec.selector.a", "must be text"),
        (grant_with(to=[]), "spec.to", "must have at least 1 entry"),
        (grant_with(to=[{"group": "", "kind": "Service"}] * 17), "spec.to", "not 17"),
        (grant_with(**{"from": DROP}), "spec.from", "is missing"),
        (grant_with(**{"from": [{"group": "", "kind": "X"}]}), "spec.from[0].namespace", "is missing"),
        (grant_with(to=[{"kind": "Service"}]), "spec.to[0].group", "is missing"),
        (slice_(endpoints=[{"addresses": ["localhost"]}]), "endpoints[0].addresses[0]", "is not an IPv4 address"),
        (slice_(endpoints=[{"addresses": []}]), "endpoints[0].addresses", "is empty"),
        (
            slice_(endpoints=[{"addresses": ["10.1.0.1"], "conditions": {"ready": "yes"}}]),
            "endpoints[0].conditions.ready",
            "true",
        ),
        (slice_(ports=[{"port": 99999}]), "ports[0].port", "65535"),
        (slice_(addressType=4), "addressType", "must be text"),
    ],
)
def test_a_mistake_is_reported_with_its_field_and_a_fix(obj, field, message):
    causes = validate(obj)
    assert [cause.field for cause in causes] == [field]
    assert message in causes[0].message


@pytest.mark.parametrize(
    ("first", "second", "namespace", "same"),
    [
        ("web", "web", "default", True),
        ("web", "web.default", "default", True),
        ("web.shop", "web", "shop", True),
        ("web", "web.default", "shop", False),
        ("web", "web-v2", "default", False),
    ],
)
def test_a_backend_named_twice_in_different_forms_is_rejected(first, second, namespace, same):
    obj = split_with(
        metadata={"namespace": namespace},
        backends=[{"service": first, "weight": 1}, {"service": second, "weight": 2}],
    )
    causes = validate(obj)
    assert [cause.field for cause in causes] == (["spec.backends[1].service"] if same else [])
    assert not same or "name it once" in causes[0].message


@pytest.mark.parametrize(
    "root", ["website", "website.ns", "website.ns.svc", "website.ns.svc.cluster.local", "website.ns.svc.corp.example"]
)
def test_a_root_service_may_be_any_form_of_its_dns_name(root):  # R2
    assert validate(split_with(service=root)) == ()


def test_all_mistakes_are_reported_together():
    obj = split_with(
        service="",
        backends=[{"service": "a", "weight": -1}, {"service": "a", "weight": "x", "port": 80}],
        metadata={"labels": []},
    )
    assert [cause.field for cause in validate(obj)] == [
        "metadata.labels",
        "spec.backends[1].port",
        "spec.service",
        "spec.backends[0].weight",
        "spec.backends[1].service",
        "spec.backends[1].weight",
    ]


@pytest.mark.parametrize(
    "obj", [split_with(), backend(weight=0), backend(FIRST, weight="500m"), service_with(), grant_with(), slice_()]
)
def test_a_valid_object_is_admitted_unchanged(obj):
    assert admit(obj, None).object is obj


def test_admission_reports_every_mistake():
    with pytest.raises(Invalid) as caught:
        admit(split_with(backends=[], service="-"), None)
    assert [cause.field for cause in caught.value.causes] == ["spec.backends", "spec.service"]


def test_an_object_of_any_version_decodes_to_the_same_value():
    typed = decode(
        split_with(version="v1beta1", backends=[{"service": "a", "weight": 1}, {"service": "b", "weight": "500m"}])
    )
    assert isinstance(typed, TrafficSplit)
    assert [(item.service, item.weight) for item in typed.spec.backends] == [("a", 2), ("b", 1)]


def test_grants_slices_and_services_decode_to_their_types():
    assert isinstance(decode(grant_with()), ReferenceGrant)
    assert isinstance(decode(slice_()), EndpointSlice)
    typed = decode(service_with({"port": 80, "targetPort": "http"}, clusterIP="None"))
    assert isinstance(typed, Service)
    assert (typed.spec.cluster_ip, typed.spec.ports[0].target_port) == ("None", "http")


def test_null_fields_count_as_missing():
    typed = decode({**service_with(), "metadata": {"name": "web", "labels": None}})
    assert typed.metadata.labels == {}


@pytest.mark.parametrize(
    ("obj", "field", "message"),
    [
        (backend(weight="10"), WEIGHT, "must be a whole number, not text"),
        (backend(weight=-1), WEIGHT, "Expected `int` >= 0"),
        (backend(service=DROP), NAME, "is missing"),
        (split_with(top={"spec": {}}), "spec.service", "is missing"),
        (split_with(metadata={"labels": {"a": 1}}), "metadata.labels", "must be text, not a whole number"),
    ],
)
def test_a_decoding_error_names_the_field(obj, field, message):
    with pytest.raises(DecodeError) as caught:
        read(to_hub(obj), TrafficSplit)
    assert caught.value.causes[0].field == field
    assert message in caught.value.causes[0].message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def somewhere(base, path, value):
    """Return a copy of `base` with `value` at `path`."""
    if not path:
        return value
    head, *rest = path
    copy = dict(base) if isinstance(base, dict) else list(base)
    copy[head] = somewhere(copy[head] if isinstance(copy, list) else copy.get(head, {}), rest, value)
    return copy


def paths(value, at=()):
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in children:
        yield from paths(inner, (*at, name))


EXAMPLES = [
    split_with(matches=[{"kind": "HTTPRouteGroup", "name": "x"}]),
    split_with(version=FIRST),
    service_with({"port": 80, "name": "a"}, {"port": 81, "name": "b"}, selector={"a": "b"}),
    grant_with(),
    slice_(),
]


@settings(deadline=None)
@given(st.data())
def test_an_object_with_any_value_at_any_path_is_reported_or_decoded(data):
    base = data.draw(st.sampled_from(EXAMPLES))
    obj = somewhere(base, data.draw(st.sampled_from(list(paths(base)))), data.draw(JSON))
    if not validate(obj):
        assert decode(obj).metadata


def test_a_stored_namespace_with_an_annotation_that_is_no_text_is_only_invalid() -> None:
    shop = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "annotations": {"a": 1}}}
    checked = check_stored(shop)
    assert [cause.field for cause in checked.causes] == ["metadata.annotations.a"]
    assert checked.value is None
