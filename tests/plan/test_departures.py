"""What takes a workload out of the comparison of access is never `holds` (D32)."""

import copy
from pathlib import Path
from typing import Any

import pytest
from tests.make import objects
from tests.make.objects import Object, manifest
from tests.plan.manifests import compiled, group, planned, target, texts_of, workload

from headgate.plan.checks import CheckOutcome, CheckVerdict, Never, never, no_new_access
from headgate.plan.departures import Side

DOES_NOT_HOLD, HOLDS, UNDECIDED = CheckOutcome.DOES_NOT_HOLD, CheckOutcome.HOLDS, CheckOutcome.UNDECIDED
RULES = (group("g", pathRegex="/items"), target("web", "web"))
CALLERS = (workload("web"), workload("thief"))
STRICT = objects.tls_config("strict", {"app": "shop"})


def shop(**template: Any) -> Object:
    """Return the protected Deployment, with other arguments of its pod template."""
    arguments = {"account": "shop", "labels": {"app": "shop"}, **template}
    return objects.deployment("shop", objects.container("app", 8080), labels={"app": "shop"}, template=arguments)


def shop_service(*ports: Any) -> Object:
    return objects.service("shop", *ports, selector={"app": "shop"})


def verdict(directory: Path, before: list[Object], after: list[Object], **settings: Any) -> CheckVerdict:
    texts = ([manifest(*items), *CALLERS, *RULES] for items in (before, after))
    return no_new_access(planned(directory, *texts, **settings))


def shop_with_spec(**fields: Any) -> Object:
    changed = copy.deepcopy(shop())
    changed["spec"]["template"]["spec"] |= fields
    return changed


NO_SIDECAR = "pod default/shop loses its sidecar, so it allows all requests"


@pytest.mark.parametrize(
    ("after", "expected", "said"),
    [
        ([shop(), shop_service()], HOLDS, "every request"),
        ([shop(labels={"app": "shop", "headgate.dev/inject": "false"}), shop_service()], DOES_NOT_HOLD, NO_SIDECAR),
        ([shop(annotations=objects.headgate_keys(inject="disabled")), shop_service()], DOES_NOT_HOLD, NO_SIDECAR),
        (
            [shop(), shop_service(), objects.namespace("default", labels={"headgate.dev/inject": "false"})],
            DOES_NOT_HOLD,
            NO_SIDECAR,
        ),
        (
            [shop(annotations=objects.headgate_keys(excluded_inbound_ports="8080")), shop_service()],
            DOES_NOT_HOLD,
            "port 8080 of pod default/shop is excluded from its sidecar",
        ),
        ([shop(account="web"), shop_service()], DOES_NOT_HOLD, "pod default/shop"),
        ([shop(labels={"app": "shop", "tier": "other"}), shop_service()], HOLDS, "every request"),
        ([shop_with_spec(serviceAccountName="shop", hostNetwork=True), shop_service()], UNDECIDED, "spec.hostNetwork"),
        ([shop_service()], UNDECIDED, "pod default/shop has gone"),
    ],
)
def test_what_takes_the_sidecar_away_is_never_proven(
    tmp_path: Path, after: list[Object], expected: CheckOutcome, said: str
) -> None:
    found = verdict(tmp_path, [shop(), shop_service()], after)
    assert found.verdict is expected, found
    assert said in "\n".join(texts_of(found) if expected is DOES_NOT_HOLD else found.reason_messages)


def test_a_thief_that_takes_the_identity_of_a_caller_gains_its_access(tmp_path: Path) -> None:
    texts = [manifest(shop(), shop_service()), workload("web"), *RULES]
    same = manifest(objects.deployment("thief", objects.container("app", 8080), template={"account": "web"}))
    found = no_new_access(planned(tmp_path, [*texts, workload("thief")], [*texts, same]))
    assert found.verdict is DOES_NOT_HOLD
    (text,) = texts_of(found)
    assert "pod default/thief gets the identity of ServiceAccount default/web, which may call" in text
    assert "pod default/thief changes its identity" in "\n".join(found.reason_messages)


def test_a_new_pod_without_a_sidecar_is_new_access(tmp_path: Path) -> None:
    bare = shop(labels={"app": "shop", "headgate.dev/inject": "false"})
    found = verdict(tmp_path, [shop_service()], [bare, shop_service()])
    assert texts_of(found) == ["pod default/shop is new and has no sidecar, so it allows all requests"]


def test_labels_that_leave_a_tls_config_are_not_proven(tmp_path: Path) -> None:
    """The access rules still close the pod, so nothing is gained; but it is another pod for the TLSConfig."""
    other = shop(labels={"app": "other"})
    found = verdict(tmp_path, [shop(), shop_service(), STRICT], [other, shop_service(), STRICT])
    assert found.verdict is UNDECIDED
    reasons = "\n".join(found.reason_messages)
    assert "changes its labels, so TLSConfig default/strict no longer selects it" in reasons
    assert "so Service default/shop no longer selects it" in reasons


def test_a_tls_config_that_injected_the_sidecar_takes_it_away_when_it_is_deleted(tmp_path: Path) -> None:
    texts = [manifest(shop(), shop_service()), *RULES]
    with_config = [*texts, manifest(STRICT)]
    found = no_new_access(planned(tmp_path, with_config, texts, sidecars="labelled"))
    assert texts_of(found) == [NO_SIDECAR]


def test_pods_that_never_had_a_sidecar_do_not_matter(tmp_path: Path) -> None:
    texts = [workload("bare", **{"headgate.dev/inject": "false"})]
    changed = [workload("bare", **{"headgate.dev/inject": "false", "tier": "x"})]
    assert no_new_access(planned(tmp_path, texts, changed)).holds


def test_the_plan_itself_says_that_access_is_gained_not_lost(tmp_path: Path) -> None:
    bare = shop(labels={"app": "shop", "headgate.dev/inject": "false"})
    texts = ([manifest(item, shop_service()), *CALLERS, *RULES] for item in (shop(), bare))
    found = planned(tmp_path, *texts)
    assert [item.message for item in found.departures] == [NO_SIDECAR]
    assert not found.lost
    assert not found.is_empty
    assert "NotEnforced" in {item.reason for item in found.findings}


def test_never_is_not_proven_for_an_excluded_port_or_an_open_pod_without_ports(tmp_path: Path) -> None:
    claim = Never(caller="sa/thief", server="deployment/shop")
    excluded = shop(annotations=objects.headgate_keys(excluded_inbound_ports="9000"))
    portless = objects.deployment("shop", objects.container("app"), template={"account": "shop"})
    for number, (item, said) in enumerate(((excluded, "port 9000"), (portless, "is open, and declares no port"))):
        files = compiled(tmp_path / str(number), manifest(item), *(RULES if item is excluded else ()))
        found = never(Side(files.compiled.mesh, files.snapshot), claim)
        assert found.verdict is DOES_NOT_HOLD
        assert any(said in text for text in texts_of(found))


def test_never_is_undecided_for_addresses_that_are_no_pods(tmp_path: Path) -> None:
    foreign = objects.endpoint_slice("shop", ["10.9.9.9"], {"http": 8080}, name="shop-vm")
    served = objects.endpoint_slice("shop", [objects.endpoint("127.0.9.9", "shop")], {"http": 8080}, name="shop-pod")
    pod = objects.meshed_pod("shop", "127.0.9.9", account="shop", labels={"app": "shop"})
    files = compiled(tmp_path, manifest(pod, shop_service(), foreign, served), *RULES)
    found = never(Side(files.compiled.mesh, files.snapshot), Never(caller="sa/thief", server="service/shop"))
    assert found.verdict is UNDECIDED
    assert "leads to 10.9.9.9, which is no pod of the mesh" in found.reason_messages[0]
