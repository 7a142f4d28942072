"""kubectl against the kinds of workloads besides Deployments that run on one machine; their pods have sidecars."""

import sys
from typing import Any

from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import Object, container, manifest, obj, pod_template, port, service
from tests.standalone.pods.machine import SERVER
from tests.waiting import until

LABELS = {"app": "web"}


def template(source: str, *ports: int, **spec: Any) -> Object:
    """Return the template of pods that run Python source."""
    app = container("app", *ports, command=[sys.executable, "-S", "-c", source])
    return pod_template(app, labels=LABELS, terminationGracePeriodSeconds=3, **spec)


def test_a_job_completes_for_kubectl_although_its_pods_have_a_sidecar(mesh: RunningMesh, namespace: str) -> None:
    spec = {"completions": 2, "template": template("print('summed')", restartPolicy="Never")}
    job = manifest(obj("Job", "sums", namespace="", version="batch/v1", spec=spec))
    for word in ("created", "unchanged"):
        assert word in mesh.kubectl("apply", "-f", "-", "-n", namespace, stdin=job)
    assert "condition met" in mesh.kubectl(
        "wait", "--for=condition=complete", "job/sums", "--timeout=120s", "-n", namespace
    )
    header, row = mesh.kubectl("get", "jobs", "-n", namespace).splitlines()
    assert header.split() == ["NAME", "STATUS", "COMPLETIONS", "DURATION", "AGE"]
    assert row.split()[:3] == ["sums", "Complete", "2/2"]
    assert mesh.kubectl("logs", "job/sums", "-c", "app", "-n", namespace).strip().endswith("summed")
    assert mesh.headgate("logs", "job/sums", "-n", namespace).stdout == "summed\n"
    described = mesh.kubectl("describe", "job", "sums", "-n", namespace)
    for part in ("2 Succeeded", "SuccessfulCreate", "Completed"):
        assert part in described
    mesh.kubectl("delete", "job", "sums", "--cascade=foreground", "-n", namespace)
    assert mesh.get("pods", namespace)["items"] == []


def test_a_stateful_set_rolls_out_in_order_and_its_pods_have_names(mesh: RunningMesh, namespace: str) -> None:
    spec = {
        "serviceName": "web",
        "replicas": 2,
        "selector": {"matchLabels": LABELS},
        "template": template(SERVER, 8080),
    }
    headless = service("web", port(8080, "http"), selector=LABELS, clusterIP="None", namespace="")
    mesh.apply(
        manifest(headless, obj("StatefulSet", "web", namespace="", version="apps/v1", spec=spec)), namespace=namespace
    )

    def kubectl(*words: str) -> str:
        return mesh.kubectl(*words, "-n", namespace)

    assert "complete" in kubectl("rollout", "status", "statefulset/web", "--timeout=120s")
    assert kubectl("get", "sts", "web", "--no-headers").split()[:2] == ["web", "2/2"]
    for name in ("web-0", "web-1"):
        until(
            lambda name=name: mesh.ask(mesh.request(f"{name}.web", 8080, namespace=namespace, via="proxy")).body == name
        )
    kubectl("rollout", "restart", "statefulset/web")
    kubectl("rollout", "status", "statefulset/web", "--timeout=120s")
    assert len(kubectl("rollout", "history", "statefulset/web").strip().splitlines()) == 4
    kubectl("rollout", "undo", "statefulset/web")
    kubectl("rollout", "status", "statefulset/web", "--timeout=120s")
    annotations = mesh.get("pods/web-0", namespace)["metadata"]["annotations"]
    assert "kubectl.kubernetes.io/restartedAt" not in annotations
    assert "SuccessfulCreate" in kubectl("describe", "statefulset", "web")
    kubectl("scale", "statefulset/web", "--replicas=1")
    kubectl("wait", "--for=delete", "pod/web-1", "--timeout=60s")


def test_a_daemon_set_runs_one_pod_and_rolls_out(mesh: RunningMesh, namespace: str) -> None:
    spec = {"selector": {"matchLabels": LABELS}, "template": template(SERVER, 8080)}
    mesh.apply(manifest(obj("DaemonSet", "agent", namespace="", version="apps/v1", spec=spec)), namespace=namespace)
    mesh.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s", "-n", namespace)
    row = mesh.kubectl("get", "ds", "--no-headers", "-n", namespace)
    assert row.split()[:6] == ["agent", "1", "1", "1", "1", "1"]
    mesh.kubectl("rollout", "restart", "daemonset/agent", "-n", namespace)
    mesh.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s", "-n", namespace)
    mesh.kubectl("rollout", "undo", "daemonset/agent", "-n", namespace)
    mesh.kubectl("rollout", "status", "daemonset/agent", "--timeout=60s", "-n", namespace)
    (pod,) = mesh.get("pods", namespace)["items"]
    assert "kubectl.kubernetes.io/restartedAt" not in pod["metadata"]["annotations"]


def test_a_replication_controller_is_scaled_and_deleted_with_its_pods(mesh: RunningMesh, namespace: str) -> None:
    spec = {"replicas": 1, "template": template(SERVER, 8080)}
    mesh.apply(
        manifest(obj("ReplicationController", "web", namespace="", version="v1", spec=spec)), namespace=namespace
    )
    mesh.kubectl("scale", "rc/web", "--replicas=2", "-n", namespace)
    mesh.kubectl("wait", "--for=jsonpath={.status.readyReplicas}=2", "rc/web", "--timeout=60s", "-n", namespace)
    assert mesh.kubectl("get", "rc", "--no-headers", "-n", namespace).split()[:4] == ["web", "2", "2", "2"]
    mesh.kubectl("delete", "rc", "web", "-n", namespace)
    until(lambda: mesh.get("pods", namespace)["items"] == [], "no pods")


def test_a_cron_job_creates_jobs_and_is_the_template_of_manual_ones(mesh: RunningMesh, namespace: str) -> None:
    job = {"spec": {"template": template("print('summed')", restartPolicy="Never")}}
    spec = {"schedule": "@every 1s", "concurrencyPolicy": "Forbid", "jobTemplate": job}
    mesh.apply(manifest(obj("CronJob", "sums", namespace="", version="batch/v1", spec=spec)), namespace=namespace)
    mesh.kubectl("wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cj/sums", "--timeout=60s", "-n", namespace)
    assert mesh.kubectl("get", "cj", "--no-headers", "-n", namespace).split()[:4] == ["sums", "@every", "1s", "<none>"]
    mesh.kubectl("patch", "cj", "sums", "--type=merge", "-p", '{"spec":{"suspend":true}}', "-n", namespace)
    mesh.kubectl("create", "job", "--from=cronjob/sums", "manual", "-n", namespace)
    mesh.kubectl("wait", "--for=condition=complete", "job/manual", "--timeout=60s", "-n", namespace)
    assert "SawCompletedJob" in mesh.kubectl("describe", "cj", "sums", "-n", namespace)
    mesh.kubectl("delete", "cj", "sums", "-n", namespace)
    until(lambda: mesh.get("pods", namespace)["items"] == [], "no pods")


def test_up_and_status_report_a_failed_job_and_not_its_retries(mesh: RunningMesh, namespace: str) -> None:
    fails = template("print('last words'); raise SystemExit(3)", restartPolicy="OnFailure")
    mark = len(mesh.lines)
    spec = {"backoffLimit": 2, "template": fails}
    mesh.apply(manifest(obj("Job", "sums", namespace="", version="batch/v1", spec=spec)), namespace=namespace)
    reported = mesh.line(lambda line: line.get("pod", {}).get("namespace") == namespace, mark)["pod"]
    assert reported["reason"] == "BackoffLimitExceeded"
    assert "the Job sums has failed" in reported["message"]
    until(lambda: f"Job {namespace}/sums: the Job has failed" in mesh.headgate("check").stdout)
    mesh.kubectl("delete", "job", "sums", "-n", namespace)


def test_the_metrics_api_has_the_traffic_of_the_pods_of_a_job(mesh: RunningMesh, namespace: str) -> None:
    source = (
        "import os, urllib.request as r; [r.urlopen(f'http://target.{os.environ[\"NS\"]}:8080/') for _ in range(3)]"
    )
    job = template(source, restartPolicy="Never")
    job["spec"]["containers"][0]["env"] = [
        {"name": "NS", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}
    ]
    mesh.apply(external("target", mesh.backend("target")), namespace=namespace)
    mesh.apply(
        manifest(obj("Job", "calls", namespace="", version="batch/v1", spec={"template": job})), namespace=namespace
    )
    mesh.kubectl("wait", "--for=condition=complete", "job/calls", "--timeout=120s", "-n", namespace)
    path = f"/apis/traffic.metrics.k8s.io/v1beta1/namespaces/{namespace}/jobs/calls/edges"
    until(lambda: '"target"' in mesh.kubectl("get", "--raw", path), "traffic of the Job")
