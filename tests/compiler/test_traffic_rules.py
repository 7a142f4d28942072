"""Rules that are derived from recorded calls allow exactly these calls, whatever the objects (docs/tasks/access-from-traffic.md)."""

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.make import objects
from tests.make.objects import Object
from tests.properties.builds import ACCESS_SETTINGS, CALLERS, REQUESTS, mesh_of
from tests.properties.worlds import key_of, meshes

from headgate.cli.traffic_policies import pod_labels, pod_selector, policies
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.traffic_rules import CalledPort, Rules, all_calls, derive, is_allowed
from headgate.errors import Cause
from headgate.model.authorization import authorize
from headgate.model.identities import parse_id
from headgate.resources.call_records import CallProtocol, CallRecord
from headgate.resources.decode import check
from headgate.resources.inspect import ObjectName
from headgate.resources.registry import ROUTE_GROUP, TRAFFIC_TARGET


def record(destination: str, caller: str, port: int = 80, protocol: CallProtocol = "HTTP", **more: str) -> CallRecord:
    namespace, name = destination.split("/")
    metadata = ObjectName(namespace=namespace, name=name)
    return CallRecord(
        metadata=metadata,
        caller=caller,
        port=port,
        protocol=protocol,
        calls=1,
        first_call_time=None,
        last_call_time=None,
        **more,
    )


def account(identity: str) -> str:
    parsed = parse_id(identity)
    return f"{parsed.namespace}/{parsed.name}" if parsed else ""


def outcomes(mesh):
    """Return whether each call by a caller with an identity is allowed, by its record and the request."""
    return {
        (
            record(
                account(item.identity), account(caller), port.port, "HTTP" if port_protocol.protocol.is_http else "TCP"
            ),
            index,
        ): authorize(item, port.port, protocol=port_protocol.protocol, identity=caller, request=request).allowed
        for item in mesh.workloads
        for port in item.ports
        for port_protocol in port.protocols
        for caller in CALLERS
        if caller
        for index, request in enumerate(REQUESTS)
    }


def applied(world, rules: Rules):
    """Return a world in which the generated objects replace all TrafficTargets."""
    kept = {key: obj for key, obj in world.items() if key.kind != TRAFFIC_TARGET.kind}
    manifests = [item.manifest for item in rules.targets] + [obj for every in rules.routes.values() for obj in every]
    return kept | {key_of(obj): obj for obj in manifests}


@hypothesis.settings(max_examples=50)
@given(
    meshes(),
    ACCESS_SETTINGS,
    st.randoms(use_true_random=False),
    st.sampled_from([account(item) for item in CALLERS if item]),
)
def test_rules_from_the_traffic_of_a_world_refuse_none_of_it_and_all_calls_of_excluded_callers(
    world, settings, random, excluded
):
    before = outcomes(mesh_of(world, settings))
    seen = sorted({call for call, allowed in before.items() if allowed}, key=str)
    recorded = random.sample(seen, random.randint(0, len(seen)))
    rules = derive([call for call, _ in recorded], exclude=[excluded])
    after = outcomes(mesh_of(applied(world, rules), settings))
    governed = {(item.destination.namespace, item.destination.account) for item in rules.targets}
    called = {(call.caller, call.metadata, call.port, call.protocol) for call, _ in recorded}
    assert not rules.left_out
    for call, index in after:
        if (call.metadata.namespace, call.metadata.name) in governed:
            is_recorded = (call.caller, call.metadata, call.port, call.protocol) in called
            assert after[call, index] is (is_recorded and call.caller != excluded)


@hypothesis.settings(max_examples=50)
@given(meshes(), ACCESS_SETTINGS, st.randoms(use_true_random=False))
def test_policies_allow_exactly_what_the_traffic_targets_of_the_same_calls_allow(world, settings, random):
    seen = sorted({call for call, allowed in outcomes(mesh_of(world, settings)).items() if allowed}, key=str)
    targets = derive([call for call, _ in random.sample(seen, random.randint(0, len(seen)))])
    written = policies(targets, pod_labels(obj for obj in world.values() if obj["kind"] == "Pod"))
    selected = {(item.destination.namespace, item.destination.account) for item in written.targets}
    allowed, expected = (outcomes(mesh_of(applied(world, rules), settings)) for rules in (written, targets))
    for call, index in expected:
        if (call.metadata.namespace, call.metadata.name) in selected:
            assert allowed[call, index] is expected[call, index]
    for item in written.targets:
        assert all(is_allowed(call, [item.manifest]) for call in item.allowed)


def test_a_policy_has_a_rule_for_each_group_of_ports_with_the_same_callers():
    calls = [record("shop/web", f"blue/{name}", port) for name in ("a", "b") for port in (80, 90)]
    calls += [record("shop/web", "blue/a", 5000, "TCP"), record("shop/idle", "blue/a")]
    pods = [pod_of("web", app="web"), pod_of("idle", app="idle"), pod_of("idle", app="idle", tier="front")]
    web, idle = (
        item.manifest["spec"] for item in reversed(policies(derive(calls, exclude=[]), pod_labels(pods)).targets)
    )
    assert web["targetRefs"] == [{"group": "", "kind": "Pod", "selector": {"matchLabels": {"app": "web"}}}]
    assert [
        ([source["serviceAccount"]["name"] for source in rule["sources"]], rule["networkAttributes"]["ports"])
        for rule in web["rules"]
    ] == [(["a", "b"], [80, 90]), (["a"], [5000])]
    assert idle["targetRefs"][0]["selector"] == {"matchLabels": {"app": "idle"}}


def test_an_account_that_only_excluded_callers_call_gets_a_policy_without_rules():
    calls = [record("shop/web", "blue/a")]
    rules = policies(derive(calls, exclude=["blue/a"], audit=True), pod_labels([pod_of("web", app="web")]))
    (only,) = rules.targets
    assert (only.allowed, only.refused, only.manifest["spec"]["rules"]) == ([], calls, [])
    assert only.manifest["metadata"]["annotations"] == {"headgate.dev/mode": "audit"}


def test_many_callers_of_a_port_are_several_rules():
    calls = [record("shop/web", f"blue/caller-{number}") for number in range(300)]
    (only,) = policies(derive(calls), pod_labels([pod_of("web", app="web")])).targets
    assert [len(rule["sources"]) for rule in only.manifest["spec"]["rules"]] == [256, 44]
    check(only.manifest)


def pod_of(account: str, *, phase: str = "Running", **labels: str) -> Object:
    return objects.pod(account, account=account, namespace="shop", labels=labels, status={"phase": phase})


WEB = {"app": "web", "version": "v1"}
CHART = {"helm.sh/chart": "shop-1.2.3"}


@pytest.mark.parametrize(
    ("own", "others", "selector"),
    [
        ([WEB], [], {"matchLabels": {"app": "web"}}),
        ([WEB, {"app": "web", "version": "v2"}], [{"app": "db"}, {}], {"matchLabels": {"app": "web"}}),
        ([WEB], [{"app": "web", "version": "v2"}], {"matchLabels": {"version": "v1"}}),
        (
            [{"app": "b"}, {"app": "a"}],
            [{"app": "c"}],
            {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
        ),
        ([{"a": "1", "b": "2"}], [{"a": "1"}, {"b": "2"}], {"matchLabels": {"a": "1", "b": "2"}}),
        (
            [{"app": "shop", "team": "x", "tier": "front", **CHART}],
            [{"app": "shop", "team": "x", "tier": "back"}, {"app": "db", "tier": "front"}],
            {"matchLabels": {"app": "shop", "tier": "front"}},
        ),
        (
            [{"app": "shop", "tier": "front"}, {"app": "shop", "tier": "back"}],
            [{"app": "shop", "tier": "data"}, {"app": "db", "tier": "back"}],
            {
                "matchLabels": {"app": "shop"},
                "matchExpressions": [{"key": "tier", "operator": "In", "values": ["back", "front"]}],
            },
        ),
        ([{"app": "shop", **CHART}], [{"app": "shop"}], {"matchLabels": CHART}),
        ([WEB], [WEB], None),
        ([{}], [], None),
        ([WEB, {}], [], None),
        ([], [WEB], None),
    ],
)
def test_the_selector_of_a_policy_selects_the_pods_of_the_account_alone(own, others, selector):
    assert pod_selector(own, others) == selector


LABELS_OF_CONTROLLERS = (
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "pod-template-generation",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-name",
    "job-name",
    "controller-uid",
    "topology.kubernetes.io/zone",
)


def test_pods_that_have_ended_and_labels_of_controllers_do_not_count():
    pods = [
        pod_of("web", app="web", **dict.fromkeys(LABELS_OF_CONTROLLERS, "1a")),
        pod_of("job", phase="Succeeded", app="web"),
        objects.obj("Pod", "plain", namespace="shop", spec={}),
    ]
    assert list(pod_labels(pods)) == [("shop/web", {"app": "web"}), ("shop/default", {})]


def test_an_account_whose_pods_no_label_distinguishes_is_named():
    calls = [record("shop/web", "blue/a"), record("shop/gone", "blue/a")]
    rules = policies(derive(calls), pod_labels([pod_of("web", app="x"), pod_of("other", app="x")]))
    assert not rules.targets
    assert rules.unselected == {
        "shop/web": "no labels that outlast a rollout distinguish its pods from the other pods of the namespace",
        "shop/gone": "it has no running pod, so its labels are unknown",
    }


def test_an_account_whose_pods_only_the_rollout_distinguishes_gets_no_policy():
    pods = [pod_of(name, app="shop", **{"rollouts-pod-template-hash": name}) for name in ("web", "other")]
    rules = policies(derive([record("shop/web", "blue/a")]), pod_labels(pods))
    assert (list(rules.targets), list(rules.unselected)) == ([], ["shop/web"])


def test_an_account_whose_pods_only_the_version_distinguishes_is_named_with_these_labels():
    pods = [pod_of("web", app="shop", version="v1"), pod_of("other", app="shop", version="v2"), pod_of("db", app="db")]
    rules = policies(derive([record("shop/web", "blue/a"), record("shop/db", "blue/a")]), pod_labels(pods))
    assert len(rules.targets) == 2
    assert rules.of_version == {"shop/web": ["version"]}


def test_each_source_of_the_rules_is_needed():
    calls = [record("shop/web", f"shop/{name}", port) for name in ("a", "b") for port in (80, 90)]
    calls.append(record("shop/web", "blue/a", 5000, "TCP"))
    rules = derive(calls)
    assert [str(item.destination) for item in rules.targets] == [
        "shop/web port 80 (HTTP)",
        "shop/web port 90 (HTTP)",
        "shop/web port 5000 (TCP)",
    ]
    for item in rules.targets:
        sources = item.manifest["spec"]["sources"]
        for left_out in sources:
            spec = {**item.manifest["spec"], "sources": [one for one in sources if one is not left_out]}
            assert not all(is_allowed(call, [{**item.manifest, "spec": spec}]) for call in item.allowed)


def test_an_account_with_calls_that_no_rule_can_allow_gets_no_rules_unless_they_are_excluded():
    plain = record("shop/web", "", plaintext_caller="192.0.2.1")
    other = record("shop/web", "shop/a", 0, "TCP")
    good = record("shop/web", "shop/b")
    rules = derive([plain, other, good])
    assert (rules.targets, rules.left_out) == ([], {"shop/web": [plain, other]})
    rules = derive([plain, other, good], exclude=["192.0.2.1", "shop/a"])
    assert not rules.left_out
    (only,) = rules.targets
    assert (str(only.destination), only.allowed, only.refused) == ("shop/web port 80 (HTTP)", [good], [plain, other])


def test_an_account_that_only_excluded_callers_call_is_closed_by_one_target_without_rules():
    calls = [record("shop/web", "shop/a", port) for port in (80, 90)]
    derived = derive(calls, exclude=["shop/a"], audit=True)
    (only,) = derived.targets
    assert (only.refused, derived.routes) == (calls, {"shop": []})
    assert only.manifest["metadata"]["annotations"] == {"headgate.dev/mode": "audit"}
    assert only.manifest["spec"] == {
        "destination": {"kind": "ServiceAccount", "name": "web"},
        "sources": [],
        "rules": [],
    }


def test_the_objects_that_allow_a_caller_replace_no_invalid_objects_and_have_valid_names():
    where = CalledPort("shop", "w" * 253, 80, "HTTP")
    names = [obj["metadata"]["name"] for obj in all_calls("blue/a", where, Snapshot())]
    keys = [ROUTE_GROUP.key("shop", names[0]), TRAFFIC_TARGET.key("shop", names[1])]
    invalid = Snapshot(mistakes=dict.fromkeys(keys, (Cause("spec", "is missing"),)))
    second = all_calls("blue/a", where, invalid)
    assert [obj["metadata"]["name"] for obj in second] == ["all-requests-2", f"{names[1][:251].rstrip('.-')}-2"]
    assert second[1]["spec"]["rules"] == [{"kind": "HTTPRouteGroup", "name": "all-requests-2"}]
    for obj in second:
        assert not check(obj).causes
