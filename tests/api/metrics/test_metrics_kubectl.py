"""The metrics API with the real kubectl, current and older; short names such as `pods` keep their meaning."""

import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.api.metrics.metrics_world import FLOWS, FakeSource, stored
from tests.embedded_api import TOKEN, EmbeddedApi, KubectlPort, kubectl_port, kubectls

from headgate.api.certificate import CertificateFiles
from headgate.standalone.apiserver.app import ComputedGroups, create_app

READ = [  # commands with regular expressions that their output matches
    ("get pods.v1beta1.traffic.metrics.k8s.io", r"NAME +SUCCESS +RPS +LATENCY_P50 +LATENCY_P90 +LATENCY_P99\nshop-5d-b2b2b +- +- "),
    ("get pods.traffic.metrics.k8s.io", r"web-5d-c4c4c +90.48% +3.5rps +10.5ms +10.5ms +10.5ms\n"),
    ("get pods.v1beta1.mesh.metrics.k8s.io web-5d-c4c4c", r"web-5d-c4c4c +90.48%"),
    ("get deployments.v1alpha1.metrics.smi-spec.io -o wide", r"REQUESTS +FAILURES +CONNECTIONS +CONN_FAILURES +DENIED +CONN_DENIED +MESHED\nshop .*\nweb +91.23% .* 114 +10 +0 +0 +0 +0 +0/2\n"),
    ("get deployments.traffic.metrics.k8s.io -A", r"NAMESPACE +NAME .*\ndefault +shop "),
    ("get namespaces.traffic.metrics.k8s.io", r"default +91.23%"),
    ("get nodes.traffic.metrics.k8s.io", r"node-1 +91.23%"),
    ("get deployment.traffic.metrics.k8s.io web", r"web +91.23%"),
    ("get trafficsplit.metrics.smi-spec.io canary -o name", "canary"),
    ("get trafficsplits.metrics.smi-spec.io canary", r"NAME +BACKEND +WEIGHT .*\ncanary +web-v1 +90 +90.00%.*\ncanary +web-v2 +10 "),
    ("get pods.traffic.metrics.k8s.io -l app=web -o name", r"^trafficmetrics.traffic.metrics.k8s.io/web-5d-c4c4c\n.*-d5d5d\n$"),
    ("get pods.traffic.metrics.k8s.io web-5d-c4c4c -o jsonpath={.metrics[3].value}", "^95$"),
    ("get pods.traffic.metrics.k8s.io --sort-by=.metadata.name -o yaml", r"kind: TrafficMetrics\n"),
    ("get --raw /apis/traffic.metrics.k8s.io/v1beta1/namespaces/default/pods/shop-5d-b2b2b/edges", '"direction":"to"'),
    ("get --raw /apis/traffic.metrics.k8s.io/v1beta1/pods?t=1m", '"window":"1m0s"'),
    ("get --raw /apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/requests_per_second", '"value":"3500m"'),
    ("get --raw /apis/custom.metrics.k8s.io/v1beta2", '"name":"deployments.apps/success_rate"'),
    ("get deployments.traffic.metrics.k8s.io -o name", r"^trafficmetrics.traffic.metrics.k8s.io/shop\n.*/web\n$"),
    ("describe pods.traffic.metrics.k8s.io web-5d-c4c4c", r"(?s)Kind: +TrafficMetrics.*Metrics:"),
    ("api-resources --api-group=traffic.metrics.k8s.io", r"nodes +traffic.metrics.k8s.io/v1beta1 +false +NodeTrafficMetrics"),
    ("explain pods.metrics --api-version=traffic.metrics.k8s.io/v1beta1", "a quantity"),
    # names of core resources keep their meaning
    ("get pods", r"NAME +READY +STATUS .*\nshop-5d-b2b2b "),
    ("get pod web-5d-c4c4c -o jsonpath={.kind}", "^Pod$"),
    ("get deployments", r"NAME +READY +UP-TO-DATE"),
    ("get deploy,svc,rs,po -o name", r"(?s)^deployment.apps/shop\n.*service/web\n.*replicaset.apps/shop-5d\n.*pod/shop"),
    ("get svc", r"NAME +TYPE +CLUSTER-IP"),
    ("get namespaces", r"default +Active"),
    ("get trafficsplits", r"NAME +SERVICE +BACKENDS"),
    ("get trafficsplit canary -o jsonpath={.kind}", "^TrafficSplit$"),
    ("get all -o name", r"(?s)^(?!.*metrics).*pod/shop"),
    ("explain pods.spec", "containers"),
]  # fmt: skip
ERRORS = [
    ("get pods.traffic.metrics.k8s.io -w", "MethodNotAllowed"),
    ("get pods.traffic.metrics.k8s.io none", r'\(NotFound\): pods.traffic.metrics.k8s.io "none" not found'),
    ("delete pods.traffic.metrics.k8s.io web-5d-c4c4c", r"MethodNotAllowed|not allow"),
    ("top pods", "this server runs no pods"),  # `kubectl top` reads metrics.k8s.io, which has CPU and memory
]


@pytest.fixture(scope="module", params=kubectls())
def metrics_port(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, certificate: CertificateFiles
) -> Iterator[KubectlPort]:
    with kubectl_port(request.param, tmp_path_factory.mktemp("kubectl"), certificate) as port:
        yield port


@pytest.fixture
async def api(metrics_port: KubectlPort) -> AsyncIterator[EmbeddedApi]:
    store = await stored()
    app = create_app(store, token=TOKEN, computed=ComputedGroups(traffic=FakeSource(FLOWS)))
    async with metrics_port.serving(store, app) as served:
        yield served


async def test_kubectl_reads_objects(api: EmbeddedApi) -> None:
    for command, expected in READ:
        ran = await api.kubectl(*command.split(" "))
        assert re.search(expected, re.sub(r"\x1b\[[\d;]*m", "", ran.out)), (command, ran)
        assert ran.code == 0, (command, ran)


async def test_kubectl_shows_api_errors(api: EmbeddedApi) -> None:
    for command, expected in ERRORS:
        ran = await api.kubectl(*command.split(" "))
        assert re.search(expected, ran.err), (command, ran)
        assert ran.code == 1, (command, ran)


async def test_the_items_of_a_list_are_objects_for_kubectl(api: EmbeddedApi) -> None:
    listed = json.loads(await api.ok("get", "pods.v1beta1.traffic.metrics.k8s.io", "-o", "json"))
    assert {one["kind"] for one in listed["items"]} == {"TrafficMetrics"}
    assert len(listed["items"]) == 3
