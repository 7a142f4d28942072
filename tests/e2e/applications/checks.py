"""What the applications do, by kubectl alone: the same checks for one machine and for a cluster.

Each application is a kustomization in a directory of its own. Its programs have fixed ports, call each other by the names
of Services and know nothing of headgate. Each check takes the application in the namespace of a `ApplicationHost`.
"""

import itertools
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import yaml
from tests.draws import fits
from tests.make.objects import container, obj, pod_template
from tests.waiting import until

APPLICATIONS = Path(__file__).parent
IMAGE = "localhost/headgate-applications:test"
"""The image of all programs: Python with grpcio. On one machine, it is the `python3` of the PATH."""
PATIENCE_S, POLL_S = 240, 0.5
INSPECT = "/apis/inspect.headgate.dev/v1beta1"
KUBECTL = Path(sys.executable).parent / "kubectl"
_numbers = itertools.count(1)


class ApplicationHost(Protocol):
    """A mesh that runs the application in a namespace."""

    namespace: str

    def kubectl(self, *words: str, stdin: str = "") -> str:
        """Run kubectl in the namespace; return its output."""


def objects(application: str) -> list[dict[str, Any]]:
    """Return the objects of an application."""
    built = subprocess.run([KUBECTL, "kustomize", APPLICATIONS / application], capture_output=True, check=True)
    return list(yaml.load_all(built.stdout, yaml.CSafeLoader))


def wait_rolled_out(host: ApplicationHost) -> None:
    """Wait until all workloads are available."""
    wait(host, "rollout", "status", "deployments,statefulsets")
    wait_in_sync(host)


def wait_in_sync(host: ApplicationHost) -> None:
    """Wait until all stored objects are compiled, and all connected proxies have the result."""

    def states() -> set[str]:
        host.kubectl("get", "--raw", f"{INSPECT}/findings")
        proxies = json.loads(host.kubectl("get", "--raw", f"{INSPECT}/proxies"))["items"]
        return {proxy["status"]["state"] for proxy in proxies}

    until(lambda: states() <= {"InSync", "Disconnected"}, "all proxies in sync", PATIENCE_S, poll=POLL_S)


def wait(host: ApplicationHost, *words: str) -> None:
    """Wait by a command of kubectl, which waits for a while itself."""
    until(lambda: host.kubectl(*words, "--timeout=30s"), " ".join(words), PATIENCE_S)


def visit(host: ApplicationHost, *requests: tuple[int, str, str]) -> Sequence[Counter[str]]:
    """Send requests (count, method, URL) from one Job, as `web/visit.py` says; return how often each answer came, for each URL."""
    name = f"visit-{next(_numbers)}"
    (web,) = (name for name in host.kubectl("get", "configmaps", "-o", "name").split() if "/web-" in name)
    mounted = {"name": "web", "configMap": {"name": web.partition("/")[2]}}
    app = container(
        "app",
        image=IMAGE,
        command=["python3", "/app/visit.py", *(str(word) for group in requests for word in group)],
        volumeMounts=[{"name": "web", "mountPath": "/app"}],
    )
    template = pod_template(app, labels={"app": name}, restartPolicy="Never", volumes=[mounted])
    job = obj("Job", name, version="batch/v1", namespace="", spec={"backoffLimit": 0, "template": template})
    host.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    return list(map(Counter, json.loads(output_of(host, name, "app"))))


def output_of(host: ApplicationHost, job: str, container: str) -> str:
    """Wait until a Job is complete; return the output of its container."""
    wait(host, "wait", "--for=condition=complete", f"job/{job}")
    return host.kubectl("logs", f"job/{job}", "-c", container)


def called(host: ApplicationHost, kind: str, name: str) -> Mapping[str, tuple[int, int]]:
    """Return the requests that a workload has sent, by the metrics API: successes and failures by peer."""
    path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{host.namespace}/{kind}/{name}/edges?t=15m"
    edges = json.loads(host.kubectl("get", "--raw", path))["items"]
    return {edge["edge"]["resource"]["name"]: _counts(edge) for edge in edges if edge["edge"]["direction"] == "to"}


def _counts(edge: Mapping[str, Any]) -> tuple[int, int]:
    values = {metric["name"]: metric["value"] for metric in edge["metrics"]}
    return int(values["success_count"]), int(values["failure_count"])


def wait_called(host: ApplicationHost, kind: str, name: str, expected: Mapping[str, tuple[int, int]]) -> None:
    """Wait until the metrics API has the requests that a workload has sent."""

    def agrees() -> bool:
        counted = called(host, kind, name)
        assert counted == expected, counted
        return True

    until(agrees, f"{expected} of {name}", PATIENCE_S, poll=POLL_S)


def check_bookshop(host: ApplicationHost) -> None:
    """R1, R7, R80: pages have reviews of three versions by their weights, and each request is counted at its edge."""
    requests, shares = 100, {"200 v1": 0.5, "200 v2": 0.3, "200 v3": 0.2}
    page, health = (f"http://productpage:9080/{path}" for path in ("productpage", "health"))
    answers, healthy = visit(host, (requests, "GET", page), (1, "GET", health))
    assert answers.keys() == shares.keys()
    assert answers.total() == requests
    assert all(fits(answers[version], share, of=requests) for version, share in shares.items()), answers
    reviews = {f"reviews-{answer.removeprefix('200 ')}": (count, 0) for answer, count in answers.items()}
    wait_called(host, "deployments", "productpage", {"details": (requests, 0), **reviews})
    for name in ("reviews-v2", "reviews-v3"):
        wait_called(host, "deployments", name, {"ratings": reviews[name]})
    assert called(host, "deployments", "reviews-v1") == {}
    assert healthy == {"200": 1}


def check_voting(host: ApplicationHost) -> None:
    """Votes arrive in the database of a StatefulSet by a queue; a Job has filled it, and a CronJob's Job reads it."""
    assert output_of(host, "fill", "fill") == "filled\n"
    votes = ((30, "a"), (20, "b"), (3, "c"))
    answers = visit(host, *((count, "POST", f"http://vote:8080/{choice}?voter-{{}}") for count, choice in votes))
    assert answers == [{"200 cats": 30}, {"200 dogs": 20}, {"404": 3}]
    until(lambda: result(host) == {"cats": 15, "dogs": 25}, "all votes", PATIENCE_S, poll=POLL_S)
    # As `kubectl create job --from=cronjob/tally`, which knows no cluster with CronJobs of batch/v1beta1 only.
    template = json.loads(host.kubectl("get", "cronjob", "tally", "-o", "json"))["spec"]["jobTemplate"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "tally"}, "spec": template["spec"]}
    host.kubectl("apply", "-f", "-", stdin=json.dumps(job))
    assert output_of(host, "tally", "tally") == "{'cats': 15, 'dogs': 25}\n"


def result(host: ApplicationHost) -> Any:
    """Return the counts, as the database has them."""
    read = "import sys; sys.path.append('/app'); from web import fetch; print(fetch('http://localhost/counts'))"
    return yaml.safe_load(host.kubectl("exec", "deploy/result", "-c", "result", "--", "python3", "-c", read))


def check_grpc_shop(host: ApplicationHost) -> None:
    """R65: calls between the servers are counted at their edges. A card that is refused is no failure of the server."""
    host.kubectl("scale", "deploy/loadgenerator", "--replicas=1")

    def load() -> str:
        return host.kubectl("logs", "deploy/loadgenerator", "-c", "main")

    answers = json.loads(until(load, "the load", PATIENCE_S, poll=POLL_S))
    assert answers == {"GET  200": 50, "POST cart 200": 50, "POST checkout 200": 40, "POST checkout 402": 10}
    wait_called(host, "deployments", "loadgenerator", {"frontend": (150, 0)})
    expected = {"catalog": (50, 0), "currency": (150, 0), "cart": (150, 0), "payment": (50, 0)}
    wait_called(host, "deployments", "frontend", expected)


CHECKS = {"bookshop": check_bookshop, "voting": check_voting, "grpc_shop": check_grpc_shop}
