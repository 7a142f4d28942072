"""What `kubectl get` shows of further kinds, as an API server prints it."""

from typing import Any

import pytest

from headgate.resources.registry import BUILT_IN

INGRESS = {
    "spec": {"ingressClassName": "nginx", "rules": [{"host": "a.example"}, {}], "tls": [{}]},
    "status": {"loadBalancer": {"ingress": [{"ip": "10.0.0.1"}, {"hostname": "lb.example"}]}},
}
SCALED = {
    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
    "maxReplicas": 5,
    "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 70}}},
        {"type": "Pods", "pods": {"target": {"averageValue": "10"}}},
        {"type": "Object", "object": {"target": {"value": "1k"}}},
    ],
}
MEASURED = {
    "currentReplicas": 3,
    "currentMetrics": [
        {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 12, "averageValue": "12m"}}},
        {"type": "Pods", "pods": {"metric": {"name": "rps"}, "current": {"averageValue": "1500m"}}},
        {"type": ""},
    ],
}
SHARED = {
    "scaleTargetRef": {"kind": "Deployment", "name": "web"},
    "maxReplicas": 2,
    "metrics": [{"type": "Object", "object": {"target": {"averageValue": "3"}}}],
}


@pytest.mark.parametrize(
    ("group", "kind", "obj", "cells"),
    [
        ("networking.k8s.io", "Ingress", INGRESS, ["nginx", "a.example", "10.0.0.1,lb.example", "80, 443"]),
        ("networking.k8s.io", "Ingress", {"spec": {}}, ["<none>", "*", "", "80"]),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            {"spec": SCALED},
            ["Deployment/web", "cpu: <unknown>/70%, <unknown>/10 + 1 more...", 1, 5, 0],
        ),
        (
            "autoscaling",
            "HorizontalPodAutoscaler",
            {"spec": {**SCALED, "minReplicas": 2}, "status": MEASURED},
            ["Deployment/web", "cpu: 12%/70%, 1500m/10 + 1 more...", 2, 5, 3],
        ),
        ("autoscaling", "HorizontalPodAutoscaler", {"spec": SHARED}, ["Deployment/web", "<unknown>/3 (avg)", 1, 2, 0]),
        ("policy", "PodDisruptionBudget", {"spec": {"minAvailable": 1}}, [1, "N/A", 0]),
        (
            "",
            "PersistentVolumeClaim",
            {"status": {"accessModes": ["ReadWriteOnce"]}},
            ["Pending", "", "", "RWO", "", "<unset>"],
        ),
        ("networking.k8s.io", "NetworkPolicy", {"spec": {"podSelector": {"matchLabels": {"a": "b"}}}}, ["a=b"]),
        ("networking.k8s.io", "NetworkPolicy", {"spec": {"podSelector": {}}}, ["<none>"]),
        ("networking.k8s.io", "IngressClass", {"spec": {"controller": "x/y"}}, ["x/y", "<none>"]),
        ("rbac.authorization.k8s.io", "RoleBinding", {"roleRef": {"kind": "Role", "name": "r"}}, ["Role/r"]),
        ("storage.k8s.io", "StorageClass", {"provisioner": "x"}, ["x", "Delete", "Immediate", "false"]),
        ("batch", "CronJob", {"spec": {"schedule": "* * * * *"}}, ["* * * * *", "<none>", "False", 0, "<none>"]),
        (
            "batch",
            "Job",
            {"spec": {}, "status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            ["Complete", "0/1", ""],
        ),
        ("batch", "Job", {"spec": {"suspend": True}}, ["Suspended", "0/1", ""]),
        ("apps", "StatefulSet", {"spec": {"replicas": 3}, "status": {"readyReplicas": 2}}, ["2/3"]),
        (
            "",
            "Endpoints",
            {"subsets": [{"addresses": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}], "ports": [{"port": 80}]}]},
            ["10.0.0.1:80,10.0.0.2:80"],
        ),
        ("", "ResourceQuota", {"spec": {"hard": {"pods": "4"}}, "status": {"used": {"pods": "1"}}}, ["pods: 1/4"]),
    ],
)
def test_the_columns_of_a_further_kind(group: str, kind: str, obj: dict[str, Any], cells: list[object]) -> None:
    stored = BUILT_IN.find(group, kind)
    assert stored
    shown = [column.shown(obj) for column in stored.columns if column.name not in ("Name", "Age") and not column.wide]
    assert shown[: len(cells)] == cells
