"""`headgate plan`: its text, its exit codes, and the plans of a running headgate."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.cli.conftest import ServedMesh
from tests.make import objects
from tests.plan.manifests import group, target, workload
from typer.testing import CliRunner

from headgate.cli.app import app
from headgate.cli.plan_rates import SERVICES
from headgate.errors import Denied
from headgate.resources.meta import Key, Object

Run = Callable[..., Any]
VERSIONS = [objects.service(f"website{suffix}", 8080, selector={"app": "website"}) for suffix in ("", "-v1", "-v2")]


def write(path: Path, *objects: Any) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(yaml.safe_dump_all(objects, sort_keys=False))
    return str(path)


def base_and_change(tmp_path: Path) -> tuple[str, str]:
    base = write(tmp_path / "base/a.yaml", *VERSIONS, objects.split("website", {"website-v1": 90, "website-v2": 10}))
    return base, write(tmp_path / "new/b.yaml", objects.split("website", {"website-v1": 70, "website-v2": 30}))


def test_a_change_exits_with_1_and_shows_shares_cause_and_example(run: Run, tmp_path: Path) -> None:
    base, change = base_and_change(tmp_path)
    ended = run("plan", "--base", base, "-f", change)
    assert ended.code == 1
    assert [line.strip() for line in ended.out.splitlines() if line] == [
        "Requests",
        "Service default/website:8080: all requests",
        "before   90% default/website-v1:8080, 10% default/website-v2:8080 (TrafficSplit default/website)",
        "after    70% default/website-v1:8080, 30% default/website-v2:8080 (TrafficSplit default/website)",
        "change   20% of them from default/website-v1:8080 to default/website-v2:8080",
        f"cause    {change}:8: TrafficSplit default/website: spec.backends",
        "example  headgate explain http://website.default:8080/",
    ]
    assert ended.err == "1 change to requests\n"


def test_the_cause_of_access_and_of_a_finding_is_an_object_of_the_change(run: Run, tmp_path: Path) -> None:
    """The TrafficTarget that loses its pods does not change itself."""
    shop, rules = workload("shop"), [group("g", methods=["GET"]), target("web", "web")]
    base, change = tmp_path / "base.yaml", tmp_path / "change.yaml"
    base.write_text("\n---\n".join([shop, *rules]))
    change.write_text(shop.replace('"serviceAccountName": "shop"', '"serviceAccountName": "store"'))
    lines = run("plan", "--base", str(base), "-f", str(change)).out.splitlines()
    causes = [line.split("cause    ")[1] for line in lines if "cause    " in line]
    assert len(causes) >= 2
    assert all(re.fullmatch(rf"{change}:[0-9]+: Deployment default/shop: spec", cause) for cause in causes)
    (number,) = (number for number, line in enumerate(lines) if "warning NoSuchPods TrafficTarget default/web" in line)
    assert "cause    " in lines[number + 1]


def test_the_same_objects_change_nothing(run: Run, tmp_path: Path) -> None:
    base, _ = base_and_change(tmp_path)
    assert run("plan", "--base", base, "-f", base) == (0, "", "nothing changes\n")


def test_objects_without_a_namespace_are_in_that_of_the_option(run: Run, tmp_path: Path) -> None:
    """Else a check could prove something about the wrong namespace."""
    base, change = base_and_change(tmp_path)
    for path in (base, change):
        present = list(yaml.safe_load_all(Path(path).read_text()))
        for obj in present:
            obj["metadata"].pop("namespace", None)
        write(Path(path), *present)
    ended = run("plan", "--base", base, "-f", change, "-n", "shop")
    assert (ended.code, "Service shop/website:8080: all requests" in ended.out) == (1, True)
    first, second = objects.service("web", 80), objects.service("web", 80)
    del first["metadata"]["namespace"]
    both = write(tmp_path / "both.yaml", first, second)
    assert run("plan", "--base", both, "-f", both, "-n", "shop").code == 0  # shop/web and default/web
    second["metadata"]["namespace"] = "shop"
    twice = run("plan", "--base", write(tmp_path / "both.yaml", first, second), "-f", change, "-n", "shop")
    assert (twice.code, "Service shop/web" in twice.err) == (1, True), twice


def test_a_recorded_answer_of_the_metrics_api_gives_the_rates(run: Run, tmp_path: Path) -> None:
    base, change = base_and_change(tmp_path)
    metrics = [{"name": "success_count", "value": "423"}, {"name": "failure_count", "value": "3"}]
    resource = {"kind": "Service", "namespace": "default", "name": "website"}
    recorded = tmp_path / "metrics.json"
    recorded.write_text(json.dumps({"items": [{"resource": resource, "window": "30s", "metrics": metrics}]}))
    ended = run("plan", "--base", base, "-f", change, "--metrics", str(recorded))
    assert "rate     2.84 of the 14.2 requests per second to default/website move" in ended.out
    found = json.loads(run("plan", "--base", base, "-f", change, "--metrics", str(recorded), "-o", "json").out)
    assert found["status"]["differences"]["requests"][0]["rate"] == {
        "service": "default/website",
        "milliRequestsPerSecond": 14200,
        "movedMilliRequestsPerSecond": 2840,
    }
    bad = run("plan", "--base", base, "-f", change, "--metrics", change)
    assert (bad.code, f"kubectl get --raw {SERVICES}" in bad.err) == (1, True)


def test_prune_deletes_the_objects_that_the_change_lacks(run: Run, tmp_path: Path) -> None:
    base, change = base_and_change(tmp_path)
    ended = run("plan", "--base", base, "-f", change, "--prune")
    assert "all of them from default/website-v1:8080 to 404 (NoSuchPort)" in ended.out
    assert run("plan", "-f", change, "--prune").code == 2


def test_deleted_objects_are_planned(run: Run, tmp_path: Path) -> None:
    base, change = base_and_change(tmp_path)
    ended = run("plan", "--base", base, "--delete", "ts/website")
    assert ended.code == 1
    assert "after    default/website:8080 (the Service itself)" in ended.out
    assert f"cause    {base}:37: the deletion of TrafficSplit default/website" in ended.out
    assert run("plan", "--base", base, "--delete", "ts/gone").err.startswith(
        "error: TrafficSplit default/gone is not in --base, so it can't be deleted"
    )
    assert run("plan", "--base", base, "-f", change, "--delete", "ts/website").code == 2
    assert run("plan", "--base", base, "--delete", "serviceaccount/a").code == 2  # it changes no requests


def test_checks_decide_the_exit_code(run: Run, tmp_path: Path) -> None:
    pods = "\n---\n".join((workload("shop"), workload("web"), group("g", pathRegex="/items")))
    base, change = tmp_path / "base.yaml", tmp_path / "change.yaml"
    base.write_text(f"{pods}\n---\n{target('web', 'web')}")
    change.write_text(target("web", "web", "thief"))
    never = ("--never", "sa/thief", "deployment/shop")
    assert run("plan", "--base", str(base), *never).code == 0
    opened = run("plan", "--base", str(base), "-f", str(change), *never, "GET", "/items.*")
    assert opened.code == 1
    assert "does not hold: never serviceaccount default/thief to deployment default/shop GET /items.*" in opened.out
    assert "see: headgate explain http://shop.default:8080/items --from serviceaccount/thief -n default" in opened.out
    assert run("plan", "--base", str(base), "-f", str(base), "--no-new-access").code == 0
    assert run("plan", "--base", str(base), "-f", str(change), "--no-new-access").code == 1
    assert (
        "ServiceAccount default/thief may send path begins" in run("plan", "--base", str(base), "-f", str(change)).out
    )


def test_wrong_usage_and_mistakes_have_their_own_errors(run: Run, tmp_path: Path) -> None:
    base, _ = base_and_change(tmp_path)
    assert run("plan").code == 2
    assert run("plan", "--base", base, "-f", base, "GET", "/").code == 2
    assert run("plan", "--base", base, "-f", str(tmp_path / "gone")).code == 2
    assert run("plan", "--base", base, "--never", "x", "sa/y").code == 2
    broken = write(tmp_path / "broken.yaml", objects.split("website", {"website-v1": -1}))
    ended = run("plan", "--base", base, "-f", broken)
    assert (ended.code, f"{broken}:" in ended.err, "so there is no plan" in ended.err) == (1, True, True)


def ready(name: str) -> dict[str, Any]:
    """Return an EndpointSlice with one ready endpoint of a Service."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "namespace": "default", "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.9.9.9"]}],
        "ports": [{"name": "p8080", "port": 8080}],
    }


async def test_a_running_headgate_plans_a_change_and_keeps_its_objects(served: ServedMesh, tmp_path: Path) -> None:
    slices = [ready(name) for name in ("website-v1", "website-v2")]
    for obj in (*VERSIONS, *slices, objects.split("website", {"website-v1": 90, "website-v2": 10})):
        await served.store.create(obj)
    change = write(tmp_path / "new/b.yaml", objects.split("website", {"website-v1": 70, "website-v2": 40}), *VERSIONS)
    ended = await served.run("plan", "-f", change, "-o", "json")
    assert ended.code == 1, ended
    (item,) = json.loads(ended.out)["status"]["differences"]["requests"]
    assert item["entry"] == {
        "kind": "Service",
        "name": "default/website",
        "port": 8080,
        "host": "",
        "consumer": "",
        "transport": "TCP",
    }
    assert item["causes"][0]["line"] == 8
    ended = await served.run("plan", "-f", write(tmp_path / "same.yaml", *VERSIONS))
    assert (ended.code, ended.out) == (0, "")
    unknown = await served.run("plan", "--never", "sa/a", "sa/gone")
    assert (unknown.code, "no pod of serviceaccount default/gone exists" in unknown.err) == (1, True)
    deleted = await served.run("plan", "--delete", "ts/website", "-o", "json")
    (item,) = json.loads(deleted.out)["status"]["differences"]["requests"]
    (cause,) = item["causes"]
    assert (cause["object"]["kind"], cause["object"]["name"], cause["deleted"]) == ("TrafficSplit", "website", True)
    gone = await served.run("plan", "--delete", "ts/gone")
    assert (gone.code, "TrafficSplit default/gone does not exist" in gone.err) == (1, True), gone
    other = write(tmp_path / "other.yaml", {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}})
    assert (await served.run("plan", "-f", other)).code == 0


def test_a_plan_of_a_rule_in_audit_mode_says_what_it_would_deny(run: Run, tmp_path: Path) -> None:
    pods = "\n---\n".join((workload("shop"), workload("web"), group("g", pathRegex="/items")))
    base, change = tmp_path / "base.yaml", tmp_path / "change.yaml"
    base.write_text(pods)
    rule = yaml.safe_load(target("buyers", "web"))
    rule["metadata"]["annotations"] = {"headgate.dev/mode": "audit"}
    change.write_text(yaml.safe_dump(rule))
    ended = run("plan", "--base", str(base), "-f", str(change))
    assert (
        "Audit mode denies nothing; enforced, it would deny\n  all requests from every ServiceAccount except default/web"
        in ended.out
    )
    assert "Access lost" not in ended.out
    assert ended.err == "1 new finding\n"


async def test_a_plan_of_config_maps_needs_no_permission_to_get_them(
    served: ServedMesh, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a cluster, the control plane may only list and watch ConfigMaps and Secrets."""
    get = served.store.get

    async def denied(key: Key) -> Object:
        if key.kind == "ConfigMap":
            raise Denied(f"{key} is forbidden")
        return await get(key)

    monkeypatch.setattr(served.store, "get", denied)
    program = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "program"}, "data": {}}
    ended = await served.run("plan", "-f", write(tmp_path / "program.yaml", program))
    assert (ended.code, ended.err) == (0, "nothing changes\n")


async def test_a_running_headgate_predicts_the_endpoints_of_a_new_service(served: ServedMesh, tmp_path: Path) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default", "labels": {"app": "website"}},
        "spec": {"containers": [{"name": "app", "image": "app"}]},
    }
    created = await served.store.create(pod)
    status = {"phase": "Running", "podIP": "127.9.9.9"}
    await served.store.update({**created, "status": status}, subresource="status")
    ended = await served.run("plan", "-f", write(tmp_path / "new.yaml", VERSIONS[0]), "-o", "json")
    (item,) = json.loads(ended.out)["status"]["differences"]["requests"]
    assert item["changeMessages"] == ["new Service", "all of them to default/website:8080"]


def test_standard_input_takes_what_kubectl_takes(tmp_path: Path) -> None:
    """JSON documents one after the other or with `---`, a List, and YAML after JSON."""
    base, _ = base_and_change(tmp_path)
    listed = {"apiVersion": "v1", "kind": "List", "items": [objects.split("website", {"website-v1": 1})]}
    new = objects.service("new", 80)
    for text in (
        f"{json.dumps(VERSIONS[0], indent=2)}\n---\n{json.dumps(listed)}\n---\n{yaml.safe_dump(new)}",
        f"{json.dumps(VERSIONS[0])}\n{json.dumps(listed)}{json.dumps(new)}",
        f"{yaml.safe_dump(new)}---\n{json.dumps(listed)}\n",
    ):
        ended = CliRunner().invoke(app, ["plan", "--base", base, "-f", "-"], input=text, prog_name="headgate")
        assert ended.exit_code == 1, ended.output
        assert "after    default/website-v1:8080 (TrafficSplit default/website)" in ended.stdout
        assert "default/new:80" in ended.stdout
