from typing import Any

import pytest

from headgate.resources.core.ignored_pod_fields import ignored_fields


def ignored(is_root: bool = True, own_networks: bool = False, **spec: Any) -> list[str]:
    return list(ignored_fields(spec, is_root=is_root, own_networks=own_networks))


def test_fields_that_work_are_not_reported():
    probe = {"grpc": {"port": 1}, "terminationGracePeriodSeconds": 3}
    app = {
        "name": "app",
        "image": "app:1",
        "imagePullPolicy": "Always",
        "command": ["app"],
        "stdin": True,
        "livenessProbe": probe,
        "lifecycle": {"preStop": {"sleep": {"seconds": 5}}},
        "ports": [{"name": "http", "containerPort": 80, "protocol": "TCP"}],
        "volumeMounts": [{"name": "v", "mountPath": "/v", "subPath": "x", "readOnly": True}],
        "securityContext": {"runAsUser": 5, "runAsNonRoot": True},
    }
    volumes = [{"name": "v", "emptyDir": {}}, {"name": "p", "projected": {"sources": [{"secret": {"name": "s"}}]}}]
    context = {"fsGroup": 5, "supplementalGroups": [6]}
    assert ignored(containers=[app], volumes=volumes, securityContext=context, activeDeadlineSeconds=5) == []
    assert (
        ignored(containers=[app], enableServiceLinks=False) == ignored(containers=[app], enableServiceLinks=True) == []
    )


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, ["nodeSelector"]),
        ({"nodeSelector": {}, "tolerations": [], "hostPID": False, "affinity": None}, []),
        ({"dnsPolicy": "ClusterFirst", "schedulerName": "default-scheduler", "priority": 0}, []),
        ({"dnsPolicy": "None"}, ["dnsPolicy"]),
        ({"affinity": {"podAffinity": None, "nodeAffinity": {}}}, []),
        (
            {"containers": [{"resources": {"limits": {"cpu": 1}}, "tty": True}]},
            ["containers[0].tty", "containers[0].resources.limits"],
        ),
        ({"containers": [{"restartPolicy": "Always"}]}, ["containers[0].restartPolicy"]),
        ({"initContainers": [{"restartPolicy": "Always"}]}, []),
        ({"containers": [{"resources": {"requests": {"cpu": 1}}}]}, []),
        ({"containers": [{"ports": [{"containerPort": 1, "hostPort": 2}]}]}, ["containers[0].ports[0].hostPort"]),
        ({"containers": [{"securityContext": {"privileged": True}}]}, ["containers[0].securityContext.privileged"]),
        (
            {"containers": [{"lifecycle": {"stopSignal": "SIGINT", "preStop": {"tcpSocket": {"port": 1}}}}]},
            ["containers[0].lifecycle.stopSignal", "containers[0].lifecycle.preStop.tcpSocket"],
        ),
        ({"volumes": [{"emptyDir": {"medium": "Memory"}}]}, ["volumes[0].emptyDir.medium"]),
        (
            {"volumes": [{"projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
            ["volumes[0].projected.sources[0].serviceAccountToken"],
        ),
    ],
)
def test_a_field_without_effect_is_reported_unless_its_value_is_what_happens_anyway(spec, fields):
    assert ignored(**spec) == fields


def test_users_have_no_effect_without_root():
    spec = {"securityContext": {"fsGroup": 5}, "containers": [{"securityContext": {"runAsUser": 5}}]}
    assert ignored(is_root=False, **spec) == ["securityContext.fsGroup", "containers[0].securityContext.runAsUser"]


def test_fields_about_names_work_in_networks_of_pods():
    names = {"hostAliases": [{"ip": "192.0.2.1"}], "dnsPolicy": "Default", "dnsConfig": {"searches": ["example"]}}
    assert ignored(**names) == [*names]
    assert ignored(own_networks=True, **names) == []
    assert ignored(own_networks=True, hostNetwork=True, **names) == [*names]
