"""`kubectl traffic` on the example of specification 004: four Deployments with sidecars (R103 to R107)."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests.e2e.manifests import program_deployment, service_manifest
from tests.e2e.running_mesh import BIN, RunningMesh, mesh_in_a_new_directory
from tests.waiting import until

REQUESTS = 30
CHAIN = {"foo": "bar baz", "bar": "baz", "baz": "bar"}
KUBECTLS = [
    program for program in (str(BIN / "kubectl"), shutil.which("kubectl", path="/usr/local/bin:/usr/bin")) if program
]


@pytest.fixture(scope="module")
def mesh(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningMesh]:
    """Run a mesh whose Deployment `traffic` called foo, foo called bar and baz, and bar and baz called each other."""
    plans = tmp_path_factory.mktemp("plans")
    manifests = {"traffic.yaml": program_deployment("traffic", "caller.py", PLANS=str(plans))}
    for name, calls in CHAIN.items():
        made = program_deployment(name, "chain.py", CALLS=calls)
        manifests[f"{name}.yaml"] = f"{service_manifest(name, {'http': 8080}, selector={'app': name})}\n---\n{made}"
    with mesh_in_a_new_directory(manifests=manifests) as made_world:
        made_world.settle()
        (plans / "new").write_text(json.dumps({"http://foo:8080/2": REQUESTS}))
        (plans / "new").rename(plans / "0.json")
        until((plans / "0.done").exists, "the requests", 60)
        assert json.loads((plans / "0.done").read_text())["answers"] == {"http://foo:8080/2 200": REQUESTS}
        yield made_world


def traffic(mesh: RunningMesh, *words: str, program: str = KUBECTLS[0]) -> str:
    """Run `kubectl traffic` with a window that includes all requests; return its output."""
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "KUBECONFIG": str(mesh.state / "kubeconfig")}
    command = [program, "traffic", *words, "--window=15m"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def counts(mesh: RunningMesh) -> Mapping[str, tuple[str, str]]:
    def count(item: Any, name: str) -> str:
        return next(metric["value"] for metric in item["metrics"] if metric["name"] == name)

    items = json.loads(traffic(mesh, "top", "deployments", "-o", "json"))["items"]
    return {item["resource"]["name"]: (count(item, "success_count"), count(item, "failure_count")) for item in items}


@pytest.mark.parametrize("program", KUBECTLS)
def test_topology_draws_the_graph_of_the_specification(mesh: RunningMesh, program: str) -> None:
    # R105
    picture = (
        "                  +------------------------+\n"
        "                  |                        v\n"
        "+---------+     +-----+     +-----+      +-----+\n"
        "| traffic | --> | foo | --> | bar | <--> | baz |\n"
        "+---------+     +-----+     +-----+      +-----+\n"
    )

    def drawn() -> bool:
        text = traffic(mesh, "topology", "deployment", program=program)
        assert text == picture, text
        return True

    until(drawn, "the picture")


def test_top_and_edges_count_every_request(mesh: RunningMesh) -> None:
    """R86, R103, R104."""
    received = {"traffic": 0, "foo": REQUESTS, "bar": 2 * REQUESTS, "baz": 2 * REQUESTS}
    until(lambda: counts(mesh) == {name: (str(number), "0") for name, number in received.items()}, str(received))
    header, *lines = traffic(mesh, "top", "deployments", "--sort-by", "name").splitlines()
    assert header.split() == ["NAME", "SUCCESS", "RPS", "LATENCY_P99"]
    assert [line.split()[:2] for line in lines] == [
        ["bar", "100.00%"],
        ["baz", "100.00%"],
        ["foo", "100.00%"],
        ["traffic", "-"],
    ]
    edges = [line.split()[:3] for line in traffic(mesh, "edges", "deployment/bar").splitlines()[1:]]
    assert edges == [["from", "baz", "100.00%"], ["from", "foo", "100.00%"], ["to", "baz", "100.00%"]]
