"""Conversion and checks of TrafficTargets, SMI's TCPRoutes and UDPRoutes, and TLSConfigs."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.decoding import admit, decode, validate
from tests.make.objects import SPECS, Object, obj
from tests.resources.seeds import SEED_004

from headgate.errors import DecodeError
from headgate.manifests.documents import parse
from headgate.resources.audit_mode import MODE
from headgate.resources.gateway_api.tcp_route import GatewayTCPRoute
from headgate.resources.mesh.tls_config import TLSConfig
from headgate.resources.smi.conversion import MATCHES
from headgate.resources.smi.port_routes import TCPRoute, UDPRoute
from headgate.resources.smi.traffic_target import TrafficTarget
from headgate.resources.versions import from_hub, to_hub, with_metadata_name

ACCESS = "access.smi-spec.io"
DROP = object()
SEED_003 = """
kind: TCPRoute
apiVersion: specs.smi-spec.io/v1alpha4
metadata:
  name: tcp-route
spec:
  matches:
    ports:
    - 8080
---
kind: TrafficTarget
apiVersion: access.smi-spec.io/v1alpha3
metadata:
  name: test
  namespace: default
spec:
  destination:
    kind: ServiceAccount
    name: sa-1 # There are 2 services under this service account:  service-1 and service-2
    namespace: default
  rules:
  - kind: TCPRoute
    name: tcp-route
  - kind: HTTPRouteGroup
    name: http-route
  sources:
  - kind: ServiceAccount
    name: sa-2
    namespace: default
"""


def changed(base: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {name: value for name, value in {**base, **fields}.items() if value is not DROP}


def account(name: Any = "sa-2", **fields: Any) -> dict[str, Any]:
    return changed({"kind": "ServiceAccount", "name": name}, **fields)


def rule_with(kind: str = "HTTPRouteGroup", **fields: Any) -> dict[str, Any]:
    return changed({"kind": kind, "name": "routes"}, **fields)


def parts(named: str = "rules", /, **fields: Any) -> dict[str, Any]:
    return changed({"destination": account("sa-1"), "sources": [account()], named: [rule_with()]}, **fields)


def target(version: str = "v1alpha3", top: Any = None, **fields: Any) -> Object:
    content = parts("specs", **fields) if version == "v1alpha1" else {"spec": parts(**fields)}
    return changed(obj("TrafficTarget", "t", namespace="shop", version=f"{ACCESS}/{version}", **content), **(top or {}))


def smi_route(version: str = "v1alpha4", kind: str = "TCPRoute", spec: Any = DROP, **metadata: Any) -> Object:
    return changed(obj(kind, "r", version=f"{SPECS}/{version}", metadata=metadata), spec=spec)


def ports(*numbers: Any, **fields: Any) -> dict[str, Any]:
    return {"matches": {"ports": list(numbers), **fields}}


def tls(version: str = "headgate.dev/v1beta1", top: Any = None, **fields: Any) -> Object:
    base = {"selector": {"matchLabels": {"role": "frontend"}}, "subjectNames": ["foo", "*.shop.example.com"]}
    return changed(obj("TLSConfig", "c", version=version, spec=changed(base, **fields)), **(top or {}))


def pod_with(annotations: Any = None, labels: Any = None, **spec: Any) -> Object:
    return obj("Pod", "p", annotations=annotations, labels=labels, spec=spec)


def deployment_with(template: Any = None, **metadata: Any) -> Object:
    return obj("Deployment", "d", metadata=metadata, spec={"template": template or {}})


def test_the_objects_of_specification_003_are_decoded() -> None:  # R68, R70
    documents, flaws = parse(SEED_003)
    assert not flaws
    assert [validate(document.object) for document in documents] == [(), ()]
    tcp, allowed = (decode(document.object) for document in documents)
    assert isinstance(tcp, TCPRoute)
    assert isinstance(allowed, TrafficTarget)
    assert tcp.spec.matches.ports == (8080,)
    assert (allowed.spec.destination.name, allowed.spec.sources[0].name) == ("sa-1", "sa-2")
    assert [(one.kind, one.name, one.matches) for one in allowed.spec.rules] == [
        ("TCPRoute", "tcp-route", None),
        ("HTTPRouteGroup", "http-route", None),
    ]


def test_the_object_of_specification_004_is_decoded() -> None:  # R72, R73, R75
    (document,), flaws = parse(SEED_004)
    assert not flaws
    assert validate(document.object) == ()
    hub = to_hub(document.object)
    assert (hub["apiVersion"], hub["metadata"]) == ("headgate.dev/v1beta1", {"name": "my-tls-config"})
    typed = decode(document.object)
    assert isinstance(typed, TLSConfig)
    assert typed.spec.subject_names == ("foo", "bar")
    assert typed.spec.selector.match_labels == {"role": "frontend", "stage": "production"}
    assert from_hub(hub, "", "v1beta1") == {**document.object, "metadata": {"name": "my-tls-config"}}


def test_a_top_level_name_is_merged_with_metadata() -> None:  # R72
    bare = {"apiVersion": "v1beta1", "kind": "TLSConfig", "name": "a"}
    assert with_metadata_name(bare)["metadata"] == {"name": "a"}
    assert with_metadata_name({**bare, "metadata": {"namespace": "n"}})["metadata"] == {"namespace": "n", "name": "a"}
    both = {**bare, "metadata": {"name": "b"}}
    assert with_metadata_name(both) is both


def test_top_level_fields_of_v1alpha1_are_in_spec_in_later_versions() -> None:
    old = target("v1alpha1", destination=account("sa-1", port=8080))
    hub = to_hub(old)
    assert hub["spec"] == parts(destination=account("sa-1", port=8080))
    assert not {"destination", "sources", "specs"} & set(hub)
    assert from_hub(hub, ACCESS, "v1alpha1") == old
    assert from_hub(hub, ACCESS, "v1alpha2")["spec"]["destination"]["port"] == 8080


def test_ports_of_a_route_survive_conversion_to_versions_without_ports() -> None:
    hub = to_hub(smi_route(spec=ports(8080, 9090)))
    for version in ("v1alpha3", "v1alpha2", "v1alpha1"):
        view = from_hub(hub, SPECS, version)
        assert "matches" not in view.get("spec", {})
        assert ("spec" in view) == (version == "v1alpha3")
        assert to_hub(view) == hub
        del view["metadata"]["annotations"][MATCHES]
        assert "matches" not in to_hub(view)["spec"]


@pytest.mark.parametrize("version", ["v1", "v1alpha2"])
def test_the_two_tcproute_kinds_are_distinguished_by_their_group(version: str) -> None:
    """The Gateway API's kind has both versions: the standard channel of v1.6 serves v1 only (report 9)."""
    gateway = {
        "apiVersion": f"gateway.networking.k8s.io/{version}",
        "kind": "TCPRoute",
        "metadata": {"name": "r"},
        "spec": {"rules": [{"backendRefs": [{"name": "db", "port": 5432}]}]},
    }
    assert isinstance(decode(gateway), GatewayTCPRoute)
    assert to_hub(gateway) == {**gateway, "apiVersion": "gateway.networking.k8s.io/v1"}
    assert isinstance(decode(smi_route(spec=ports())), TCPRoute)
    assert isinstance(decode(smi_route(kind="UDPRoute", spec=ports(53))), UDPRoute)


NAMES = st.from_regex(r"[a-z]{1,5}", fullmatch=True)
ACCOUNTS = st.fixed_dictionaries({"kind": st.just("ServiceAccount"), "name": NAMES}, optional={"namespace": NAMES})
RULES = st.one_of(
    st.fixed_dictionaries(
        {"kind": st.just("HTTPRouteGroup"), "name": NAMES},
        optional={"matches": st.lists(NAMES, min_size=1, max_size=3)},
    ),
    st.fixed_dictionaries({"kind": st.sampled_from(["TCPRoute", "UDPRoute"]), "name": NAMES}),
)
DESTINATIONS = st.fixed_dictionaries(
    {"kind": st.just("ServiceAccount"), "name": NAMES},
    optional={"namespace": st.just("shop"), "port": st.integers(1, 65535)},
)


@st.composite
def targets(draw: st.DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from(["v1alpha1", "v1alpha2", "v1alpha3"]))
    rules = "specs" if version == "v1alpha1" else "rules"
    fields = {"sources": draw(st.lists(ACCOUNTS, max_size=3)), rules: draw(st.lists(RULES, max_size=3))}
    return target(version, destination=draw(DESTINATIONS), **fields)


@st.composite
def port_routes(draw: st.DrawFn) -> dict[str, Any]:
    version = draw(st.sampled_from(["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"]))
    kept = {"annotations": {"team": "a"}} if draw(st.booleans()) else {}
    if version != "v1alpha4":
        return smi_route(version, spec={} if version == "v1alpha3" else DROP, **kept)
    fields = draw(
        st.fixed_dictionaries({"ports": st.lists(st.integers(1, 65535), max_size=3)}, optional={"name": NAMES})
    )
    return smi_route(spec=draw(st.sampled_from([{}, {"matches": fields}])), **kept)


@settings(deadline=None)
@given(st.one_of(targets(), port_routes()), st.sampled_from(["v1alpha1", "v1alpha2", "v1alpha3"]))
def test_conversion_between_versions_loses_nothing(written: dict[str, Any], through: str) -> None:
    group, _, version = written["apiVersion"].partition("/")
    assert validate(written) == ()
    hub = to_hub(written)
    assert validate(hub) == ()
    assert to_hub(hub) == hub
    view = from_hub(hub, group, through)
    assert validate(view) == ()
    assert to_hub(view) == hub
    assert from_hub(hub, group, version) == written


def mode(text: str) -> dict[str, Any]:
    """Return a TrafficTarget with the annotation of a mode."""
    obj = target()
    return {**obj, "metadata": {**obj["metadata"], "annotations": {MODE: text}}}


LABELS = "spec.selector.matchLabels"
INJECT, EXCLUDED = "headgate.dev/inject", "headgate.dev/excluded-inbound-ports"
# entries: invalid object, field, part of the message
MISTAKES: list[tuple[dict[str, Any], str, str]] = [
    (
        target(destination=account("sa-1", kind="Service")),
        "spec.destination.kind",
        "must be ServiceAccount, not 'Service'",
    ),
    (target(destination=account(DROP)), "spec.destination.name", "is missing"),
    (target(destination=account("SA")), "spec.destination.name", "lower case"),
    (target(destination=account("a/../b")), "spec.destination.name", "is not valid"),
    (target(destination=account("sa-1", port=0)), "spec.destination.port", "must be from 1 to 65535, not 0"),
    (
        target(destination=account("sa-1", port="80")),
        "spec.destination.port",
        "must be a whole number, not text; write it without quotes",
    ),
    (
        target(destination=account("sa-1", namespace="other")),
        "spec.destination.namespace",
        "is 'other', but a TrafficTarget is about pods of its own namespace, 'shop': set metadata.namespace to 'other'",
    ),
    (target(destination=DROP), "spec.destination", "is missing"),
    (mode("Audit"), f"metadata.annotations.{MODE}", "must be audit or enforce, not 'Audit'"),
    (target(sources=DROP), "spec.sources", "is missing"),
    (target(sources=[account(kind="Group")]), "spec.sources[0].kind", "must be ServiceAccount"),
    (target(sources=[account(port=80)]), "spec.sources[0].port", "is not a field"),
    (target(sources=[account(namespace="A b")]), "spec.sources[0].namespace", "is not valid"),
    (target(rules=DROP), "spec.rules", "is missing"),
    (
        target(rules=[rule_with("GRPCRoute")]),
        "spec.rules[0].kind",
        "must be one of HTTPRouteGroup, TCPRoute, UDPRoute, not 'GRPCRoute'",
    ),
    (
        target(rules=[rule_with("TCPRoute", matches=["a"])]),
        "spec.rules[0].matches",
        "is only possible for an HTTPRouteGroup: leave it out to allow the whole route",
    ),
    (target(rules=[rule_with(matches=[])]), "spec.rules[0].matches", "must have at least 1 entry"),
    (target(rules=[rule_with(matches="get")]), "spec.rules[0].matches", "must be a list"),
    (target(rules=[rule_with(match=["get"])]), "spec.rules[0].match", "is not a field; did you mean matches?"),
    (target(specs=[]), "spec.specs", "is no longer a field as of v1alpha2; rename it to rules"),
    (target(top={"spec": DROP}), "spec", "is missing"),
    (target(top={"sources": []}), "sources", "is not a field"),
    (target("v1alpha1", specs=DROP), "specs", "is missing"),
    (target("v1alpha1", top={"spec": {}}), "spec", "is not a field of v1alpha1"),
    (
        target("v1alpha1", specs=[rule_with("TCPRoute", matches=["a"])]),
        "specs[0].matches",
        "is only possible for an HTTPRouteGroup",
    ),
    (target("v1alpha1", destination=account("sa-1", namespace="x")), "destination.namespace", "own namespace"),
    (target("v1alpha1", destination=account("sa-1", port=70000)), "destination.port", "65535"),
    (target("v1alpha4"), "apiVersion", "v1alpha4 is a draft: write a TrafficTarget in v1alpha3"),
    (target(top={"kind": "IdentityBinding"}), "kind", "v1alpha4 is a draft"),
    (
        target(top={"apiVersion": DROP}),
        "apiVersion",
        "is missing: every object needs it, as text; for TrafficTarget write access.smi-spec.io/v1alpha3",
    ),
    (smi_route(spec=ports(0)), "spec.matches.ports[0]", "must be from 1 to 65535"),
    (smi_route(spec=ports("80")), "spec.matches.ports[0]", "without quotes"),
    (smi_route(spec={"matches": {}}), "spec.matches.ports", "is missing"),
    (smi_route(spec={"matches": None}), "spec.matches", "is empty: write a list of ports, or ports: [] for all ports"),
    (smi_route(spec={"matches": [{"ports": [80]}]}), "spec.matches", "must be an object, not a list"),
    (smi_route(spec={"ports": [80]}), "spec.ports", "is not a field"),
    (smi_route(), "spec", "is missing"),
    (smi_route("v1alpha3", spec=ports(80)), "spec.matches", "is not a field of v1alpha3; write the route in v1alpha4"),
    (
        smi_route("v1alpha1", spec={"ports": [80]}),
        "spec",
        "it selects every connection; to select ports, write the route in v1alpha4",
    ),
    (smi_route(kind="UDPRoute", spec=ports(-1)), "spec.matches.ports[0]", "must be from 1 to 65535"),
    (
        smi_route("v1alpha1", annotations={MATCHES: "[]"}),
        f"metadata.annotations.{MATCHES}",
        "must be an object in JSON",
    ),
    (
        smi_route("v1alpha9"),
        "apiVersion",
        "known versions are gateway.networking.k8s.io/v1, gateway.networking.k8s.io/v1alpha2, specs.smi-spec.io/v1alpha4",
    ),
    (tls(selector=DROP), "spec.selector", "matchLabels: {} selects all pods of the namespace"),
    (tls(selector={}), LABELS, "is missing: select pods"),
    (tls(selector={"matchLabels": None}), LABELS, "is missing: select pods"),
    (tls(selector={"matchLabels": {"a b": "c"}}), f"{LABELS}.a b", "at most 63"),
    (tls(selector={"matchLabels": {"a": "-"}}), f"{LABELS}.a", "is not a label value"),
    (tls(selector={"matchLabels": {"a": 1}}), f"{LABELS}.a", "must be text"),
    (
        tls(selector={"matchExpressions": [{"key": "app", "operator": "In"}]}),
        "spec.selector.matchExpressions[0].values",
        "the operators In and NotIn compare with values",
    ),
    (tls(subjectNames=["Foo"]), "spec.subjectNames[0]", "write foo"),
    (tls(subjectNames=["a", "a.*.b"]), "spec.subjectNames[1]", "has a wildcard that is not the whole first label"),
    (tls(subjectNames=["*.*.com"]), "spec.subjectNames[0]", "has a wildcard that is not the whole first label"),
    (tls(subjectNames=["10.0.0.1"]), "spec.subjectNames[0]", "is an address"),
    (tls(subjectNames=["https://a.b"]), "spec.subjectNames[0]", "without scheme"),
    (tls(subjectNames=["a" * 64 + ".example.com"]), "spec.subjectNames[0]", "at most 63"),
    (tls(subjectNames="foo"), "spec.subjectNames", "must be a list"),
    (
        tls(subjectNames=["web.bank.svc.cluster.local"]),
        "spec.subjectNames[0]",
        "only a TLSConfig in that namespace can list it",
    ),
    (
        tls(subjectNames=["a", "*.headgate-system.svc"]),
        "spec.subjectNames[1]",
        "is the name of a Service in the namespace headgate-system",
    ),
    (tls(top={"name": "c"}), "name", "write the name in metadata.name only"),
    (tls(version="headgate.dev/v1"), "apiVersion", "known versions are headgate.dev/v1beta1, v1beta1"),
    (
        pod_with({INJECT: "yes"}),
        f"metadata.annotations.{INJECT}",
        'must be "true", "enabled", "false" or "disabled", not \'yes\'',
    ),
    (pod_with(labels={INJECT: "no"}), f"metadata.labels.{INJECT}", 'must be "true", "enabled", "false" or "disabled"'),
    (
        pod_with({EXCLUDED: "metrics"}),
        f"metadata.annotations.{EXCLUDED}",
        "must be ports separated by commas, without spaces, such as 9090,9102, not 'metrics'",
    ),
    (
        pod_with({"headgate.dev/trace-sampling": "half"}),
        "metadata.annotations.headgate.dev/trace-sampling",
        "percentage",
    ),
    (pod_with({EXCLUDED: "9090, 9102"}), f"metadata.annotations.{EXCLUDED}", "without spaces"),
    (
        pod_with({EXCLUDED: "9090,99999"}),
        f"metadata.annotations.{EXCLUDED}",
        "contains port 99999; port numbers are from 1 to 65535",
    ),
    (
        pod_with({"headgate.dev/sidecar-mode": "on"}),
        "metadata.annotations.headgate.dev/sidecar-mode",
        "leave out the annotation: headgate writes it when the pod is created",
    ),
    (
        pod_with({"headgate.dev/application-ports": "80"}),
        "metadata.annotations.headgate.dev/application-ports",
        "8080=20417",
    ),
    (pod_with(serviceAccountName="a/b"), "spec.serviceAccountName", "is not the name of a ServiceAccount"),
    (
        deployment_with({"metadata": {"annotations": {EXCLUDED: "x"}}}),
        f"spec.template.metadata.annotations.{EXCLUDED}",
        "such as 9090",
    ),
    (
        deployment_with(annotations={INJECT: "false"}),
        f"metadata.annotations.{INJECT}",
        "write it in spec.template.metadata.annotations",
    ),
    (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {INJECT: "1"}}},
        f"metadata.labels.{INJECT}",
        'must be "true", "enabled", "false" or "disabled"',
    ),
]


@pytest.mark.parametrize(("obj", "field", "message"), MISTAKES)
def test_a_mistake_is_reported_with_its_field_and_a_fix(obj: dict[str, Any], field: str, message: str) -> None:
    causes = validate(obj)
    assert [cause.field for cause in causes] == [field]
    assert message in causes[0].message


@pytest.mark.parametrize(
    "obj",
    [
        target(sources=[], rules=[]),
        mode("audit"),
        mode("enforce"),
        target(destination=account("sa-1", namespace="shop", port=80)),
        target("v1alpha2", destination=account("sa-1", port=80)),
        smi_route(spec=ports()),
        smi_route(spec=ports(80, name="web")),
        smi_route(spec={}),
        smi_route("v1alpha1"),
        tls(selector={"matchLabels": {}}),
        tls(subjectNames=DROP),
        tls("v1beta1"),
        pod_with({INJECT: "false", EXCLUDED: "9090,9102"}, serviceAccountName=""),
        deployment_with({"metadata": {"labels": {INJECT: "true"}}}, labels={INJECT: "true"}),
    ],
)
def test_a_valid_object_is_admitted_unchanged(obj: dict[str, Any]) -> None:
    assert admit(obj, None).object is obj


def test_a_target_without_a_namespace_is_in_the_namespace_default() -> None:
    obj = target(top={"metadata": {"name": "t"}}, destination=account("sa-1", namespace="shop"))
    assert "own namespace, 'default'" in validate(obj)[0].message


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
EXAMPLES = [
    target(),
    target("v1alpha1"),
    smi_route(spec=ports(80)),
    smi_route("v1alpha3", spec={}),
    tls(),
    pod_with({INJECT: "true"}),
]


def places(value: Any, at: tuple[Any, ...] = ()) -> Any:
    yield at
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in children:
        yield from places(inner, (*at, name))


def replaced(base: Any, path: Any, value: Any) -> Any:
    if not path:
        return value
    copy = dict(base) if isinstance(base, dict) else list(base)
    copy[path[0]] = replaced(copy[path[0]], path[1:], value)
    return copy


@settings(deadline=None)
@given(st.data())
def test_an_object_with_any_value_at_any_path_is_reported_or_decoded(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from(EXAMPLES))
    obj = replaced(base, data.draw(st.sampled_from(list(places(base)))), data.draw(JSON))
    if not validate(obj):
        assert decode(obj).metadata
        assert validate(to_hub(obj)) == ()


def test_the_error_for_an_unknown_version_lists_the_known_versions() -> None:
    with pytest.raises(
        DecodeError, match=r"known versions are access\.smi-spec\.io/v1alpha3, access\.smi-spec\.io/v1alpha2"
    ):
        to_hub(target("v1beta1"))
