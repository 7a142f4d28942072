"""`headgate plan --no-new-access` and `--never`: verdicts and exit codes, offline and of a running headgate."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects

from headgate.resources.meta import Object

Run = Callable[..., Any]
RULES = (
    objects.http_route_group("g", {"m": {"pathRegex": "/items"}}),
    objects.traffic_target("web", "shop", ["web"], [objects.http_rule("g")]),
)


LABELS = {"app": "shop", "headgate.dev/inject": "true"}


def shop(*ports: int, **template: Any) -> Object:
    """Return the protected Deployment, with other arguments of its pod template."""
    arguments = {"account": "shop", "labels": LABELS, **template}
    container = objects.container("app", *(ports or (8080,)))
    return objects.deployment("shop", container, labels={"app": "shop"}, template=arguments)


SERVICE = objects.service("shop", selector={"app": "shop"})
BARE = shop(labels={"app": "shop", "headgate.dev/inject": "false"})


def write(path: Path, *written: Mapping[str, Any]) -> str:
    path.write_text(yaml.safe_dump_all(written, sort_keys=False))
    return str(path)


def verdict_of(ended: Any) -> Any:
    (found,) = json.loads(ended.out)["status"]["verdicts"]
    return found


def test_a_template_without_a_sidecar_does_not_hold_and_its_findings_are_shown(run: Run, tmp_path: Path) -> None:
    base, change = write(tmp_path / "base.yaml", shop(), SERVICE, *RULES), write(tmp_path / "change.yaml", BARE)
    ended = run("plan", "--base", base, "-f", change, "--no-new-access")
    assert ended.code == 1, ended
    lines = ended.out.splitlines()
    assert lines[:2] == [
        "does not hold: no new access",
        "  pod default/shop loses its sidecar, so it allows all requests",
    ]
    assert lines[2] == "  undecided: new finding NotEnforced about TrafficTarget default/web"
    assert lines[3].startswith(f"new finding: {base}:"), lines
    assert "NotEnforced TrafficTarget default/web: spec.destination" in lines[3]
    plan = run("plan", "--base", base, "-f", change)
    assert "Access that sidecars no longer decide\n  pod default/shop loses its sidecar" in plan.out
    assert "Access lost" not in plan.out


def test_what_is_not_decided_has_its_own_exit_code(run: Run, tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", shop(), SERVICE, *RULES)
    ended = run("plan", "--base", base, "--delete", "service/shop", "--no-new-access")
    assert (ended.code, ended.out.splitlines()[0].partition(":")[0]) == (0, "holds")
    network = shop()
    network["spec"]["template"]["spec"]["hostNetwork"] = True
    ended = run("plan", "--base", base, "-f", write(tmp_path / "change.yaml", network), "--no-new-access")
    assert ended.code == 4, ended
    assert ended.out.splitlines()[:2] == [
        "undecided: no new access",
        "  undecided: pod default/shop uses the network of its node (spec.hostNetwork), where it gets no sidecar on a cluster",
    ]
    both = run(
        "plan",
        "--base",
        base,
        "-f",
        write(tmp_path / "both.yaml", BARE, network | {"metadata": {"name": "b"}}),
        "--no-new-access",
    )
    assert both.code == 1


def test_the_option_for_sidecars_decides_which_pods_are_guarded(run: Run, tmp_path: Path) -> None:
    base = write(tmp_path / "base.yaml", shop(), SERVICE, *RULES)
    claim = ("--never", "sa/thief", "deployment/shop")
    assert run("plan", "--base", base, *claim).code == 0
    base = write(tmp_path / "plain.yaml", shop(labels={"app": "shop"}), SERVICE, *RULES)
    ended = run("plan", "--base", base, "--sidecars", "labelled", *claim)
    assert (ended.code, "pod default/shop has no sidecar" in ended.out) == (1, True)


REPLICAS = {"name": "shop-7f9c8d6b5", "namespace": "default"}


@pytest.fixture
async def shop_runs(served: ServedMesh) -> ServedMesh:
    """Return a mesh in which a pod of the protected Deployment runs."""
    hashed = {**LABELS, "pod-template-hash": "7f9c8d6b5"}
    replicas = await served.store.create({**shop(labels=hashed), "kind": "ReplicaSet", "metadata": REPLICAS})
    pod = objects.meshed_pod(
        "shop-7f9c8d6b5-abcde",
        "127.9.9.9",
        account="shop",
        mode="explicit",
        labels=hashed,
        annotations=objects.headgate_keys(application_ports="8080=20417"),
        metadata={"ownerReferences": [objects.owner_reference(replicas, controller=True)]},
        containers=[objects.container("app", 8080)],
    )
    place = objects.endpoint("127.9.9.9", "shop-7f9c8d6b5-abcde")
    slices = objects.endpoint_slice("shop", [place], {"http": 8080})
    for obj in (pod, shop(), SERVICE, slices, *RULES):
        await served.store.create(obj)
    await served.status(pod, pod["status"])
    return served


async def planned(served: ServedMesh, path: Path, *change: Mapping[str, Any]) -> Any:
    return await served.run("plan", "-f", write(path, *change), "--no-new-access", "-o", "json")


CHANGES: Mapping[str, tuple[list[Object], str, str]] = {
    "the same": ([shop(), SERVICE], "Holds", "every request"),
    "another image": ([shop(annotations={"example.com/build": "2"})], "Holds", "every request"),
    "label": ([BARE], "DoesNotHold", "pod default/shop-7f9c8d6b5-abcde loses its sidecar"),
    "annotation": (
        [shop(labels={"app": "shop"}, annotations=objects.headgate_keys(inject="false"))],
        "DoesNotHold",
        "loses its sidecar",
    ),
    "excluded port": (
        [shop(annotations=objects.headgate_keys(excluded_inbound_ports="8080"))],
        "DoesNotHold",
        "port 8080 of pod default/shop-7f9c8d6b5-abcde is excluded",
    ),
    "account": ([shop(account="other")], "DoesNotHold", "may send all requests to ServiceAccount default/other"),
    "labels": (
        [shop(labels={**LABELS, "app": "other"})],
        "Undecided",
        "Service default/shop no longer selects it",
    ),
    "a new port": ([shop(8080, 9090)], "Holds", "every request"),
    "a new Deployment": (
        [objects.deployment("second", template={"account": "shop"})],
        "DoesNotHold",
        "pod default/second is new and has no sidecar",
    ),
    "the namespace": (
        [objects.namespace("default", labels={"headgate.dev/inject": "false"})],
        "Holds",  # the label of the pods decides
        "every request",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
async def test_a_running_headgate_predicts_the_pods_of_a_template(
    shop_runs: ServedMesh, tmp_path: Path, name: str
) -> None:
    change, expected, said = CHANGES[name]
    ended = await planned(shop_runs, tmp_path / "change.yaml", *change)
    found = verdict_of(ended)
    assert (found["verdict"], ended.code) == (expected, {"Holds": 0, "DoesNotHold": 1, "Undecided": 4}[expected]), ended
    counterexamples = [counterexample["message"] for counterexample in found["counterexamples"]]
    assert said in "\n".join((*counterexamples, *found["reasonMessages"]))


async def test_a_deleted_tls_config_that_gave_the_pods_their_sidecar_does_not_hold(shop_runs: ServedMesh) -> None:
    plain = objects.meshed_pod("plain", "127.9.9.8", account="shop", labels={"app": "shop"})
    await shop_runs.store.create(plain)
    await shop_runs.status(plain, plain["status"])
    await shop_runs.store.create(objects.tls_config("strict", {"app": "shop"}, "shop.example.com"))
    ended = await shop_runs.run("plan", "--delete", "tlsconfig/strict", "--no-new-access", "-o", "json")
    assert ended.code == 1, ended
    assert "loses its sidecar" in verdict_of(ended)["counterexamples"][0]["message"]


async def test_a_service_that_leads_past_the_sidecar_does_not_hold(shop_runs: ServedMesh, tmp_path: Path) -> None:
    """The sidecar serves the ports that were known when the pod was created (D26)."""
    late = objects.service("late", objects.port(80, "admin", target=9999), selector={"app": "shop"})
    ended = await planned(shop_runs, tmp_path / "late.yaml", late)
    found = verdict_of(ended)
    assert (found["verdict"], ended.code) == ("DoesNotHold", 1)
    assert (
        "leads to port 9999 of pod default/shop-7f9c8d6b5-abcde, which its sidecar does not serve"
        in found["counterexamples"][0]["message"]
    )


async def test_never_is_about_the_pods_after_the_change(shop_runs: ServedMesh, tmp_path: Path) -> None:
    claim = ("--never", "sa/thief", "deployment/shop", "-o", "json")
    holds = await shop_runs.run("plan", *claim)
    assert (verdict_of(holds)["verdict"], holds.code) == ("Holds", 0)
    ended = await shop_runs.run("plan", "-f", write(tmp_path / "bare.yaml", BARE), *claim)
    assert ended.code == 1
    assert "has no sidecar, so it allows all requests" in verdict_of(ended)["counterexamples"][0]["message"]


async def test_never_says_that_running_pods_of_this_machine_can_be_called_past_their_sidecars(
    shop_runs: ServedMesh,
) -> None:
    """A rule denies nothing there, and the claim about the rules holds all the same. Pods of files may run elsewhere."""
    note = "no rule of 1 pod allows such a request; but programs of this machine can call 1 of them past the sidecar, at $PORT, "
    ended = await shop_runs.run("plan", "--never", "sa/thief", "deployment/shop")
    assert ended.code == 0
    assert f"holds: never serviceaccount default/thief to deployment default/shop: {note}" in ended.out
    assert "which --network pod prevents" in ended.out
