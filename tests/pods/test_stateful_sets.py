"""Pods of a StatefulSet are called by their names, with strict mutual TLS and whatever splits their Service (D37)."""

import json
from collections.abc import Mapping

import pytest
from tests.make.objects import Object, port, service, split, tls_config, with_spec
from tests.pods.conftest import (
    Cluster,
    app_deployment,
    is_deleted,
    is_ready,
    mesh_namespace,
    until,
)
from tests.pods.kit import BIN

PLACE = "stateful"
HTTP, TCP, COUNT = 8080, 8081, 20
PODS = ("db-0", "db-1")
NAMES = ("{}.db", f"{{}}.db.{PLACE}", f"{{}}.db.{PLACE}.svc.cluster.local")
SEND = """
import collections, http.client, json, sys
count, *places = sys.argv[1:]
results = {}
for place in places:
    answers = []
    for _ in range(int(count)):
        connection = http.client.HTTPConnection(place, timeout=50)
        try:
            connection.request("GET", "/")
            answers.append(connection.getresponse().read().decode().split()[-2])
        except (OSError, http.client.HTTPException) as error:
            answers.append(repr(error))
        connection.close()
    results[place] = collections.Counter(answers)
print(json.dumps(results))
"""
"""Sends requests to each `HOST:PORT`, each over its own connection, and prints how often each pod answered."""


def stateful_set() -> Object:
    """Return a StatefulSet of two servers with the HTTP port, and the same on a port of the Service that is TCP."""
    pod = app_deployment(PLACE, "db", replicas=len(PODS))["spec"]
    (web,) = pod["template"]["spec"]["containers"]
    tcp = {**web, "name": "tcp", "env": [{"name": "PORT", "value": str(TCP)}], "ports": [{"containerPort": TCP}]}
    del tcp["readinessProbe"]
    pod["template"]["spec"]["containers"] = [web, tcp]
    return with_spec("StatefulSet", "db", {**pod, "serviceName": "db"}, {"namespace": PLACE, "version": "apps/v1"})


@pytest.fixture(scope="module")
def database(shared_cluster: Cluster) -> Cluster:
    """A client, and a StatefulSet whose headless Service is split to the Service of its second pod alone."""
    ports = (port(HTTP, "http"), port(TCP, "tcp", app="tcp"))
    second = {"statefulset.kubernetes.io/pod-name": "db-1"}
    shared_cluster.apply(
        mesh_namespace(PLACE),
        service("db", *ports, selector={"app": "db"}, clusterIP="None", namespace=PLACE),
        service("second", *ports, selector=second, namespace=PLACE),
        tls_config("strict", {}, namespace=PLACE),
    )
    shared_cluster.apply(stateful_set(), app_deployment(PLACE, "client", command=["sleep", "infinity"]))
    shared_cluster.wait_rolled_out(PLACE, "client")
    shared_cluster.kubectl("-n", PLACE, "rollout", "status", "statefulset/db", "--timeout=240s")
    shared_cluster.apply(split("db", {"second": 1}, namespace=PLACE))
    shared_cluster.wait_programmed("trafficsplit/db", PLACE)
    shared_cluster.wait_programmed("tlsconfig/strict", PLACE)
    shared_cluster.wait_in_sync(PLACE)
    return shared_cluster


def answered(cluster: Cluster, *places: str) -> Mapping[str, Mapping[str, int]]:
    """Return how often each pod answered the client at each `HOST:PORT`."""
    answers: Mapping[str, Mapping[str, int]] = cluster.python(PLACE, "client", SEND, COUNT, *places)
    return answers


def test_each_name_of_a_pod_leads_to_this_pod_and_the_split_of_its_service_applies_to_requests(
    database: Cluster,
) -> None:
    places = {f"{name.format(pod)}:{number}": pod for name in NAMES for pod in PODS for number in (HTTP, TCP)}
    assert answered(database, *places) == {place: {pod: COUNT} for place, pod in places.items()}
    assert answered(database, f"db:{HTTP}") == {f"db:{HTTP}": {"db-1": COUNT}}


def test_the_split_says_that_it_does_not_route_connections_to_pods_with_names(database: Cluster) -> None:
    findings = database.api.call("GET", "/apis/inspect.headgate.dev/v1beta1/findings")["items"]
    (message,) = (item["message"] for item in findings if item["reason"] == "NotRouted" and PLACE in item["message"])
    assert f"port {TCP} of the headless Service {PLACE}/db is tcp" in message


def test_the_name_of_a_replaced_pod_leads_to_the_new_one(database: Cluster) -> None:
    def first() -> Object:
        pod: Object = database.get("pod/db-0", PLACE)
        return pod

    before = first()["metadata"]["uid"]
    database.kubectl("-n", PLACE, "delete", "pod", "db-0", "--wait=false")

    def replaced() -> bool:
        pods = database.get("pods", PLACE, "app=db")["items"]
        uids = {pod["metadata"]["uid"] for pod in pods if is_ready(pod) and not is_deleted(pod)}
        return len(pods) == len(uids - {before}) == len(PODS)

    until(replaced, "another pod db-0")
    database.wait_in_sync(PLACE)
    address = first()["status"]["podIP"]
    resolve = "import json, socket; print(json.dumps(socket.gethostbyname('db-0.db')))"
    until(lambda: database.python(PLACE, "client", resolve) == address, "the new address of db-0.db")
    places = (f"db-0.db:{HTTP}", f"db-0.db:{TCP}")
    assert answered(database, *places) == {place: {"db-0": COUNT} for place in places}


def test_a_write_of_a_service_warns_of_fields_without_effect(database: Cluster) -> None:
    """D38. Kubernetes accepts the Service, and the webhook's warning is printed by kubectl."""
    written = service("sticky", port(HTTP, "http"), selector={"app": "db"}, namespace=PLACE, sessionAffinity="ClientIP")
    apply = ("sh", "-c", '"$@" 2>&1', "sh", BIN / "kubectl", "apply", "-f", "-")
    printed = database.run(*apply, stdin=json.dumps(written))
    assert "Warning: " in printed
    assert "spec.sessionAffinity" in printed
    assert "service/sticky created" in printed
