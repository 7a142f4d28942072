"""The rules of the definitions: API servers reject the same mistakes as admission, while the webhook is away.

`tests.decoding` shows for each object that admission accepts in any test that no rule rejects it.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.cel_rules import broken_rules, compiled
from tests.decoding import validate
from tests.make.objects import Object, obj, sidecar
from tests.resources.canary import BACKENDS, WITH_BASELINE, canary_with

from headgate.resources.schema.builders import RULES, Schema
from headgate.resources.schema.catalog import schemas

BASELINE = {"baseline": "website-base"}
THREE = [*BACKENDS, {"service": "website-v3", "weight": 1}]


def split_with(version: str = "v1alpha4", **spec: Any) -> Object:
    whole = {"service": "website", "backends": [{"service": "website-v1", "weight": 1}], **spec}
    return obj("TrafficSplit", "website", version=f"split.smi-spec.io/{version}", spec=whole)


def group_with(**content: Any) -> Object:
    return obj("HTTPRouteGroup", "group", **content)


def target_with(rule: Any, version: str = "v1alpha3") -> Object:
    account = {"kind": "ServiceAccount", "name": "web"}
    fields = {"destination": account, "sources": [account], "specs" if version == "v1alpha1" else "rules": [rule]}
    content = fields if version == "v1alpha1" else {"spec": fields}
    return obj("TrafficTarget", "target", version=f"access.smi-spec.io/{version}", **content)


def sidecar_with(**spec: Any) -> Object:
    return sidecar("agent", {"app": "web"}, **spec)


def selecting(operator: str, **fields: Any) -> dict[str, Any]:
    selector = {"matchExpressions": [{"key": "app", "operator": operator, **fields}]}
    return sidecar_with(selector=selector, env=[{"name": "A", "value": "1"}])


MATCH = {"name": "all", "pathRegex": "/.*"}
HAS_MATCHES = {"kind": "TCPRoute", "name": "ports", "matches": ["all"]}


@pytest.mark.parametrize(
    ("obj", "message"),
    [
        (split_with(service=""), "service is missing"),
        (split_with(backends=[]), "name at least one Service"),
        (split_with("v1alpha1", backends=[]), "name at least one Service"),
        (split_with(matches=[{"kind": "HTTPRouteGroup", "name": ""}]), "name is missing"),
        (
            split_with(matches=[{"kind": "HTTPRouteGroup", "name": "a", "apiGroup": "apps"}]),
            "must be specs.smi-spec.io",
        ),
        (group_with(), "spec.matches is missing"),
        (group_with(spec={}), "spec.matches is missing"),
        (group_with(matches=[MATCH], spec={"matches": [MATCH]}), "only one of the two places"),
        (group_with(spec={"matches": [{**MATCH, "name": ""}]}), "name is missing"),
        (target_with(HAS_MATCHES), "only possible for an HTTPRouteGroup"),
        (target_with(HAS_MATCHES, "v1alpha1"), "only possible for an HTTPRouteGroup"),
        (sidecar_with(), "adds nothing"),
        (sidecar_with(containers=[], env=[]), "adds nothing"),
        (sidecar_with(containers=[{"name": "headgate-sidecar"}]), "choose another name"),
        (sidecar_with(initContainers=[{"name": "headgate-redirect"}]), "choose another name"),
        (sidecar_with(volumes=[{"name": "headgate"}]), "choose another name"),
        (sidecar_with(env=[{"name": ""}]), "name is empty"),
        (selecting("In"), "compare with values"),
        (selecting("NotIn", values=[]), "compare with values"),
        (selecting("Exists", values=["web"]), "compare with no values"),
        (canary_with(service=""), "service is missing"),
        (canary_with(backends=[]), "name at least one Service"),
        (canary_with({"canary": "website-v9"}), "canary is not one of spec.backends"),
        (canary_with({"baseline": "other"}, backends=WITH_BASELINE), "baseline is not one of spec.backends"),
        (canary_with({"baseline": "website-v2"}, backends=WITH_BASELINE), "baseline is the canary"),
        (canary_with({}, backends=THREE), "backends must be 2"),
        (canary_with({}, backends=BACKENDS[1:]), "backends must be 2"),
        (canary_with(BASELINE), "backends must be 3 for this analysis"),
        (canary_with({"steps": [{"share": "20%"}, {"share": "20%"}]}), "above the share of the step before"),
        (canary_with({"steps": [{"share": "20%"}], "stepShare": "5%"}), "can't be combined with steps"),
        (canary_with({"steps": [{"share": "20%"}], "maxShare": "50%"}), "can't be combined with steps"),
        (canary_with({"stepShare": "5%"}), "maxShare is missing: write"),
        (canary_with({"maxShare": "50%"}), "stepShare is missing: write"),
        (canary_with({**BASELINE, "stepShare": "5%", "maxShare": "60%"}, backends=WITH_BASELINE), "must be at most 50"),
        (canary_with({**BASELINE, "steps": [{"share": "60%"}]}, backends=WITH_BASELINE), "must be at most 50"),
        (canary_with({"dryRun": True, "mirror": "20%"}), "can't be combined with dryRun"),
        (canary_with({"dryRun": True, "matches": [MATCH]}), "can't be combined with dryRun"),
        (canary_with({"matches": [{**MATCH, "name": ""}]}), "name is missing"),
        (canary_with({"interval": "0s"}), "must be longer than 0"),
        (canary_with({"interval": "0m00ms"}), "must be longer than 0"),
        (canary_with({"latencies": [{"percentile": "p99"}]}), "has no limit"),
    ],
)
def test_a_mistake_that_admission_rejects_is_rejected_without_the_webhook(obj: dict[str, Any], message: str) -> None:
    assert validate(obj) != ()
    assert [one for one in broken_rules(obj) if message in one], broken_rules(obj)
    assert all(one.count(": ") <= 1 for one in broken_rules(obj)), "a rule could not be evaluated"


@pytest.mark.parametrize("api_group", ["", "specs.smi-spec.io", "specs.smi-spec.io/v1alpha4", "/v1alpha4"])
def test_every_way_to_name_the_group_of_a_match_is_accepted(api_group: str) -> None:
    assert validate(split_with(matches=[{"kind": "HTTPRouteGroup", "name": "a", "apiGroup": api_group}])) == ()


@pytest.mark.parametrize("interval", ["1ms", "0m1s", "10s", "1h0m0s0ms", "00100ms"])
def test_every_interval_above_zero_is_accepted(interval: str) -> None:
    assert validate(canary_with({"interval": interval})) == ()


@pytest.mark.parametrize("name", ["website-v1", "website-v2"])
def test_the_canary_may_be_any_of_the_backends(name: str) -> None:
    assert (
        validate(canary_with({"canary": name}, backends=[{"service": f"website-v{i}", "weight": 1} for i in (1, 2)]))
        == ()
    )


def ruled(schema: Schema, items: bool = False) -> Iterator[tuple[Schema, str, bool]]:
    """Yield each rule with its schema, and whether the schema is in a list without `maxItems`."""
    for rule in schema.get(RULES, ()):
        yield schema, rule["rule"], items
    for part in schema.get("properties", {}).values():
        yield from ruled(part, items)
    if "items" in schema:
        yield from ruled(schema["items"], items or "maxItems" not in schema)


@pytest.mark.parametrize("kind", [kind for kind in schemas() if any(ruled(schemas()[kind]))], ids=":".join)
def test_rules_compile_and_loop_only_over_lists_with_a_limit(kind: tuple[str, str, str]) -> None:
    """A rule in an unlimited list is evaluated for up to 262,144 items, of 10,000,000 units for all of them."""
    for schema, rule, in_unlimited_list in ruled(schemas()[kind]):
        assert compiled(rule).return_type() == compiled("true").return_type()
        loops = any(f".{name}(" in rule for name in ("all", "exists", "exists_one", "map", "filter"))
        limits = [part.get("maxItems") for part in (schema, *schema.get("properties", {}).values()) if "items" in part]
        assert not loops or (not in_unlimited_list and any(limits))
        assert not (in_unlimited_list and ".matches(" in rule)
