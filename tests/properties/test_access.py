"""Properties of authorization over random worlds: in the model and in the proxies' configuration (003, D21)."""

from hypothesis import given
from hypothesis import strategies as st
from tests.properties.builds import (
    ACCESS_SETTINGS,
    CALLERS,
    REQUESTS,
    WORLDS,
    compiled,
    decoded,
    mesh_of,
    rendered_for,
)
from tests.properties.worlds import RULES, key_of, meshes, named, targets

from headgate.compiler.reasons import Reason
from headgate.envoy import names, pb
from headgate.envoy.config import LISTENER, ROUTES
from headgate.envoy.encode import Memo
from headgate.envoy.tap import RBAC
from headgate.envoy.view import sidecar
from headgate.model.authorization import authorize, would_refuse

EXTRA = targets().map(lambda obj: obj | {"metadata": obj["metadata"] | {"name": "extra"}})
ACCOUNT = {"kind": "ServiceAccount", "name": "ape"}
UNUSED_ACCOUNT_TARGETS = [
    named(
        "TrafficTarget",
        namespace,
        "without_grants",
        spec={"destination": ACCOUNT, "sources": [ACCOUNT], "rules": rules},
    )
    for namespace in ("default", "zoo")
    for rules in ([], [{"kind": "HTTPRouteGroup", "name": "g"}, {"kind": "TCPRoute", "name": "t"}])
]


def allowed_calls(mesh, *, closed_only=False):
    """Return each call that a workload allows; with `closed_only`, only calls to closed workloads."""
    return {
        (item.name, port.port, port_protocol.protocol, caller, index)
        for item in mesh.workloads
        if item.access.closed or not closed_only
        for port in item.ports
        for port_protocol in port.protocols
        for caller in CALLERS
        for index, request in enumerate(REQUESTS)
        if authorize(item, port.port, protocol=port_protocol.protocol, identity=caller, request=request).allowed
    }


@WORLDS
@given(meshes(), ACCESS_SETTINGS, st.sampled_from(UNUSED_ACCOUNT_TARGETS), st.randoms(use_true_random=False))
def test_the_properties_of_access_in_every_world(world, settings, target, random):
    """All properties share one world, because drawing it takes as long as compiling it."""
    mesh = mesh_of(world, settings)
    closed_workloads_without_grants_allow_no_caller(mesh)
    closed_workloads_allow_no_plaintext_call(mesh)
    a_target_about_an_unused_account_changes_no_mesh(mesh, world, settings, target)
    the_order_in_which_rules_are_written_does_not_matter(mesh, world, settings, random)


def closed_workloads_without_grants_allow_no_caller(mesh):
    """D21."""
    without_grants = {item.name for item in mesh.workloads if item.access.closed and not item.access.grants}
    memo = Memo()
    assert not {call for call in allowed_calls(mesh) if call[0] in without_grants}
    for item in mesh.workloads:
        if item.name in without_grants:
            config = rendered_for(mesh, sidecar(item), memo)
            assert all(not policies for policies in _policies(decoded(config, ROUTES)))
            assert _connected(decoded(config, LISTENER)) <= {names.MISSING}


def closed_workloads_allow_no_plaintext_call(mesh):
    """R70: a call in plaintext has no identity."""
    assert all(caller for _, _, _, caller, _ in allowed_calls(mesh, closed_only=True))


def a_target_about_an_unused_account_changes_no_mesh(mesh, world, settings, target):
    """Proxies get nothing new: what they get is rendered from the mesh."""
    assert mesh_of(world | {key_of(target): target}, settings) == mesh


@WORLDS
@given(meshes(), ACCESS_SETTINGS, st.randoms(use_true_random=False))
def test_audit_mode_refuses_no_call_and_marks_those_that_enforced_targets_refuse(world, settings, random):
    audited = {
        key: obj | {"metadata": obj["metadata"] | {"annotations": {"headgate.dev/mode": "audit"}}}
        for key, obj in world.items()
        if key.kind == "TrafficTarget" and random.random() < 0.8
    }
    before, after = mesh_of(world, settings), mesh_of(world | audited, settings)
    enforced, allowed = allowed_calls(before), allowed_calls(after)
    assert enforced <= allowed
    workloads = {item.name: item for item in after.workloads}
    refused = {
        (name, port, protocol, caller, index)
        for name, port, protocol, caller, index in allowed
        if would_refuse(workloads[name], port, protocol=protocol, identity=caller, request=REQUESTS[index])
    }
    assert refused == allowed - enforced


@WORLDS
@given(meshes(), EXTRA, ACCESS_SETTINGS)
def test_an_added_target_adds_grants_to_its_own_workloads_only(world, extra, settings):
    """Requirement 2.3."""
    about = f"/ns/{extra['metadata']['namespace']}/sa/{extra['spec']['destination']['name']}"
    world.pop(key_of(extra), None)
    before, after = mesh_of(world, settings), mesh_of(world | {key_of(extra): extra}, settings)
    assert allowed_calls(before, closed_only=True) <= allowed_calls(after)
    for old, new in zip(before.workloads, after.workloads, strict=True):
        if not old.identity.endswith(about):
            assert _inbound(rendered_for(before, sidecar(old))) == _inbound(rendered_for(after, sidecar(new)))


def the_order_in_which_rules_are_written_does_not_matter(mesh, world, settings, random):
    shuffled = {key: _shuffled(obj, random) for key, obj in world.items()}
    assert allowed_calls(mesh) == allowed_calls(mesh_of(shuffled, settings))


@WORLDS
@given(meshes(), ACCESS_SETTINGS, st.lists(st.sampled_from(RULES), min_size=1, max_size=2))
def test_a_rule_reported_as_not_applicable_allows_nothing(world, settings, rules):
    """R69. The same calls are allowed without the rule."""
    account = {"kind": "ServiceAccount", "name": "a"}
    spec = {"destination": account, "sources": [account], "rules": rules}
    target = named("TrafficTarget", "default", "extra", spec=spec)
    result = compiled(world | {key_of(target): target}, settings)
    useless = {
        finding.field.partition("]")[0].removeprefix("spec.rules[")
        for finding in result.report.findings
        if finding.about == key_of(target)
        and finding.reason in {Reason.RULE_NOT_APPLICABLE, Reason.RULE_NOT_FOUND}
        and "matches" not in finding.field
    }
    kept = [rule for index, rule in enumerate(rules) if str(index) not in useless]
    less = target | {"spec": spec | {"rules": kept}}
    assert allowed_calls(result.mesh) == allowed_calls(mesh_of(world | {key_of(target): less}, settings))


def _policies(routes):
    """Yield the policies of each route of the inbound side."""
    for name, config in routes.items():
        if name.startswith(f"{names.INBOUND}/"):
            for route in config.virtual_hosts[0].routes:
                yield pb.HttpRbacPerRoute.FromString(route.typed_per_filter_config[RBAC].value).rbac.rules.policies


def _connected(listeners):
    """Return the clusters to which inbound connections lead, through the listeners inside the proxy."""
    return {
        cluster
        for name, listener in listeners.items()
        if name == names.INBOUND or name.startswith(f"{names.INBOUND}/")
        for direct in _clusters(listener)
        for cluster in (_clusters(listeners[direct]) if direct.startswith(f"{names.CALLERS}/") else [direct])
    }


def _clusters(listener):
    """Yield the cluster of each filter chain for connections."""
    for chain in listener.filter_chains:
        if chain.filters[-1].name == "envoy.filters.network.tcp_proxy":
            yield pb.TcpProxy.FromString(chain.filters[-1].typed_config.value).cluster


def _inbound(config):
    return {
        (type_url, name): item
        for type_url, found in config.items()
        for name, item in found.items()
        if name == names.INBOUND or name.startswith(f"{names.INBOUND}/")
    }


def _shuffled(obj, random):
    spec = dict(obj.get("spec") or {})
    for field in ("rules", "sources", "matches"):
        if isinstance(spec.get(field), list):
            spec[field] = random.sample(spec[field], len(spec[field]))
    return obj | {"spec": spec} if "spec" in obj else obj
