"""Services whose target port no container declares: the sidecar protects it, or a condition reports a bypass (D26)."""

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import manifests
from tests.e2e.running_mesh import RunningMesh, headgate
from tests.e2e.test_sidecars import ask
from tests.make import objects
from tests.make.objects import http_route_group, http_rule, manifest, obj, service, tls_config, traffic_target
from tests.waiting import until

BYPASS = 31002  # the process listens on this port directly, not behind its sidecar


def undeclared_deployment(count: Path, **env: str) -> str:
    """Return a Deployment of one pod that declares no port and listens on every PORT_... of its environment."""
    labels = {"app": "web"}
    made = json.loads(manifests.counting_deployment("web", count, labels=labels, ports={}, account="server"))
    (container,) = made["spec"]["template"]["spec"]["containers"]
    container["env"] += [{"name": name, "value": value} for name, value in env.items()]
    return manifest(made)


def service_to(name: str, port: int) -> str:
    return manifest(service(name, objects.port(8080, "http", target=port), selector={"app": "web"}))


ACCESS = [
    *(obj("ServiceAccount", name) for name in ("server", "reader", "thief")),
    http_route_group("all", {"any": {}}),
    traffic_target("readers", "server", ["reader"], [http_rule("all")]),
]
STRICT = tls_config("strict", {"app": "web"})


def programmed(mesh: RunningMesh, what: str) -> tuple[str, str, str]:
    conditions = mesh.get(what)["status"]["conditions"]
    found = next(item for item in conditions if item["type"] == "Programmed")
    return found["status"], found["reason"], found["message"]


def explained(mesh: RunningMesh, url: str) -> Any:
    done = mesh.headgate("explain", "GET", url, "-o", "json")
    ((arrival,),) = [backend["arrivals"] for backend in json.loads(done.stdout)["status"]["backends"]]
    return arrival


@pytest.fixture
def closed(new_mesh: Callable[..., RunningMesh], tmp_path: Path) -> RunningMesh:
    """Run a pod without declared ports that only `reader` may call, and the pod's Service."""
    files = {
        "1.yaml": undeclared_deployment(tmp_path / "count", PORT_BYPASS=str(BYPASS)),
        "2.yaml": service_to("web", 31001),
    }
    files["3.yaml"] = manifest(*ACCESS)
    return new_mesh(manifests=files)


def test_an_undeclared_target_port_is_reported_by_the_service_kubectl_and_check(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """R37, D26: a condition, an Event, a warning at the write, and `check` report it until the port is corrected."""
    deployed = json.loads(manifests.counting_deployment("web", tmp_path, labels={"app": "web"}, ports={"http": 31000}))
    (tmp_path / "index.html").write_text("web")
    (container,) = deployed["spec"]["template"]["spec"]["containers"]
    container["command"] = [sys.executable, "-m", "http.server", "-d", str(tmp_path), "--bind", "$(HOST)", "$(PORT)"]
    written = json.dumps(deployed)
    wrong = json.loads(service_to("web", 31001))
    mesh = new_mesh(manifests={"web.yaml": f"{written}\n---\n{json.dumps(wrong)}"})
    until(lambda: mesh.send(1, mesh.request("web", 8080)) == {"503": 1})
    severity, _, message = mesh.event("TargetPortNotDeclared", "web")
    assert severity == "Warning"
    assert "port 8080 has the targetPort 31001, which no container of pod default/web-" in message
    assert "declares (declared: 31000)" in message

    def condition() -> tuple[str, str]:
        (found,) = mesh.get("service/web")["status"]["conditions"]
        return found["status"], found["reason"]

    until(lambda: condition() == ("False", "TargetPortNotDeclared"))
    checked = headgate("check", str(mesh.directory))
    assert "web.yaml:3: warning TargetPortNotDeclared Service default/web: spec.ports[0].targetPort" in checked.stdout
    warned = mesh.try_kubectl("apply", "-f", "-", stdin=json.dumps(wrong | {"metadata": {"name": "other"}})).stderr
    assert "Warning: spec.ports[0].targetPort: port 8080 has the targetPort 31001" in warned
    mesh.write("web.yaml", f"{written}\n---\n{json.dumps(wrong).replace('31001', '31000')}")
    until(lambda: condition() == ("True", "ResolvedRefs"))
    until(lambda: mesh.send(1, mesh.request("web", 8080)) == {"web": 1})


def answers(mesh: RunningMesh, service: str, *accounts: str) -> Sequence[str]:
    """Return the answer or error that each account and then a client of the gateway gets from a Service."""
    results = [ask(mesh, f"http://{service}:8080/", "--service-account", account) for account in accounts]
    gateway = mesh.send(1, mesh.request(service, 8080))
    return [out.strip() if code == 0 else errors.strip()[-14:] for code, out, errors in results] + list(gateway)


def test_an_undeclared_port_is_denied_to_callers_without_a_rule_and_a_bypass_by_a_later_service_is_reported(
    closed: RunningMesh,
) -> None:
    """D26: `explain` says the same as the proxies."""
    until(lambda: programmed(closed, "traffictarget/readers")[:2] == ("True", "Programmed"))
    until(lambda: answers(closed, "web", "reader")[0] == "web")
    assert answers(closed, "web", "thief")[1:] == ["403"]
    assert "403" in ask(closed, "http://web:8080/", "--service-account", "thief")[2]
    arrival = explained(closed, "http://web:8080/")
    assert not arrival["allowed"]
    assert arrival["transport"] == "MutualTLS"

    # The sidecar of a running pod can't take over the port of a later Service; the sidecar of a new pod serves it.
    closed.apply(json.dumps(STRICT))
    until(lambda: programmed(closed, "tlsconfig/strict")[0] == "True")
    closed.apply(service_to("late", BYPASS))
    until(lambda: closed.send(1, closed.request("late", 8080)) == {"web": 1})
    pods = [item["metadata"] for item in closed.get("pods")["items"]]  # also callers that have ended
    (pod,) = [metadata["name"] for metadata in pods if metadata.get("labels", {}).get("app") == "web"]
    for what in ("traffictarget/readers", "tlsconfig/strict"):
        _, _, message = until(
            lambda what=what: found if (found := programmed(closed, what))[:2] == ("False", "NotEnforced") else None
        )
        assert (
            f"port 8080 of Service default/late leads to port {BYPASS} of pod default/{pod} and bypasses the sidecar"
            in message
        )
        assert "replace the pods (kubectl rollout restart)" in message
    assert closed.event("NotEnforced", "readers")[0] == "Warning"
    arrival = explained(closed, "http://late:8080/")
    assert arrival["allowed"]
    assert f"does not serve port {BYPASS}" in arrival["message"]
    assert not explained(closed, "http://web:8080/")["allowed"]
    template = closed.get("deployment/web")["spec"]["template"]
    (container,) = template["spec"]["containers"]
    container["env"] = [item for item in container["env"] if item["name"] != "PORT_BYPASS"]
    closed.roll_out("web", {"spec": {"template": template}})
    until(lambda: programmed(closed, "traffictarget/readers")[0] == "True")
    until(lambda: closed.send(1, closed.request("late", 8080)) == {"403": 1})
    assert closed.event("NotEnforcedResolved", "readers")[0] == "Normal"


def test_pods_start_whatever_the_order_of_deployments_and_services(
    new_mesh: Callable[..., RunningMesh], tmp_path: Path
) -> None:
    """A Service with a port that no container declares may come before or after the pods that it selects (D26)."""
    mesh = new_mesh()
    names = [f"app-{number}" for number in range(4)]
    items = []
    for number, name in enumerate(names):
        written = manifests.counting_deployment(name, tmp_path / name, labels={"app": name}, ports={"http": 31000})
        deployed = json.loads(written)
        late = service(name, objects.port(8080, "http", target=31001), selector={"app": name})
        items += [deployed, late] if number % 2 else [late, deployed]
    random.Random(7).shuffle(items)
    mesh.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    for name in names:
        mesh.wait_for_rollout(name)
        until(lambda name=name: mesh.send(1, mesh.request(name, 8080)) == {name: 1})
    assert len(mesh.sidecars()) == len(names)
    assert mesh.stop() == 0
    assert not mesh.sidecars()
