"""Which sidecars differ from those that injection would add now, and in what."""

from collections.abc import Mapping
from typing import Any

import pytest
from tests.make.objects import container, pod, sidecar

from headgate.admission.injection import PodNamespace, Sidecars, explicit_sidecars
from headgate.admission.outdated_sidecars import outdated_messages
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars, with_transparent_sidecar
from headgate.resources.core.pod_metadata import ADDED, PROCESS, SIDECAR
from headgate.resources.core.proxy_annotations import CPU, MEMORY_LIMIT
from headgate.resources.meta import Object

LABELED = PodNamespace(labels={"headgate.dev/inject": "true"}, configs=())
OPTIONS: Mapping[str, Any] = {"image": "headgate:2", "xds": "headgate:15010"}
WEB = pod("web-1", namespace="shop", containers=[container("web", 8080)])


def sidecars(**options: Any) -> Sidecars:
    return transparent_sidecars("labelled", SidecarOptions(**{**OPTIONS, **options}))


def injected(pod: Object = WEB, *, user: int = 1340, **options: Any) -> Object:
    return with_transparent_sidecar(pod, SidecarOptions(**{**OPTIONS, **options}), user)


def stored(pod: Object) -> Object:
    """Return a pod with the default values of an API server, and with what other webhooks add to each container."""
    token = {"name": "kube-api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": True}

    def completed(container: Object) -> Object:
        probes = {
            field: {"successThreshold": 1, **probe, "httpGet": {"scheme": "HTTP", **probe["httpGet"]}}
            for field, probe in container.items()
            if field.endswith("Probe")
        }
        env = [
            {**entry, "valueFrom": {"fieldRef": {"apiVersion": "v1", **entry["valueFrom"]["fieldRef"]}}}
            if "valueFrom" in entry
            else entry
            for entry in container.get("env") or ()
        ]
        mounts = [*(container.get("volumeMounts") or ()), token]
        more = {"terminationMessagePath": "/dev/termination-log", "imagePullPolicy": "Always"}
        return {
            **container,
            **more,
            **probes,
            "env": [*env, {"name": "AWS_REGION", "value": "x"}],
            "volumeMounts": mounts,
        }

    spec = pod["spec"]
    lists = {field: [completed(entry) for entry in spec.get(field) or ()] for field in ("containers", "initContainers")}
    volumes = [
        {**volume, "projected": {"defaultMode": 420, **volume["projected"]}} if "projected" in volume else volume
        for volume in spec["volumes"]
    ]
    return {**pod, "spec": {**spec, **lists, "volumes": volumes}}


@pytest.mark.parametrize("native", [False, True])
@pytest.mark.parametrize("restart_policy", ["Always", "Never"])
def test_an_injected_pod_is_up_to_date_whatever_its_user_and_the_defaults_of_the_api_server(
    native: bool, restart_policy: str
) -> None:
    plain = pod("web-1", namespace="shop", containers=[container("web", 8080)], restartPolicy=restart_policy)
    assert outdated_messages(stored(injected(plain, native=native)), sidecars(native=native), LABELED) == ()


@pytest.mark.parametrize(
    ("before", "message"),
    [
        ({"image": "headgate:1"}, "image headgate:1, now headgate:2"),
        ({"xds": "other:1"}, "HEADGATE_XDS other:1, now headgate:15010"),
        ({"collector": "otel:4317"}, "HEADGATE_OTLP_COLLECTOR otel:4317, now none"),
        ({"proxy": {CPU: "1"}}, "cpu request 1, now 20m"),
        ({"user": 1337}, "user 1337, now one of 1338 to 1369"),
    ],
)
def test_a_pod_of_another_image_or_option_is_outdated(before: Mapping[str, Any], message: str) -> None:
    assert outdated_messages(stored(injected(**before)), sidecars(), LABELED) == (message,)


def test_a_sidecar_that_is_not_native_is_outdated_where_a_new_one_is_native() -> None:
    (first, *_) = outdated_messages(stored(injected()), sidecars(native=True), LABELED)
    assert first.startswith("other settings of the container headgate-sidecar")
    assert "listed in initContainers" in first


def test_annotations_of_the_namespace_make_a_sidecar_outdated_until_they_are_equal_quantities() -> None:
    around = LABELED._replace(annotations={MEMORY_LIMIT: "2Gi"})
    assert outdated_messages(injected(), sidecars(), around) == ("memory limit 1Gi, now 2Gi",)
    assert outdated_messages(injected(), sidecars(), LABELED._replace(annotations={MEMORY_LIMIT: "1024Mi"})) == ()


def test_resources_that_a_vertical_pod_autoscaler_has_set_do_not_count() -> None:
    scaled = injected(
        pod("web-1", namespace="shop", annotations={"vpaUpdates": "Pod resources updated by web"}), proxy={CPU: "1"}
    )
    assert outdated_messages(scaled, sidecars(), LABELED) == ()


def test_a_pod_that_a_new_label_injects_is_outdated_and_so_is_one_with_a_sidecar_in_a_namespace_without_it() -> None:
    around = PodNamespace(labels={}, configs=())
    assert outdated_messages(WEB, sidecars(), around) == ()
    (message,) = outdated_messages(WEB, sidecars(), LABELED)
    assert (
        message
        == 'has no sidecar, and a new pod gets one: the label headgate.dev/inject of the namespace shop is "true"'
    )
    (message,) = outdated_messages(injected(), sidecars(), around)
    assert message.startswith("has a sidecar, and a new pod gets none: no label")


def test_a_user_beyond_the_range_is_up_to_date_if_the_application_has_the_last_one() -> None:
    own = pod("web-1", namespace="shop", containers=[container("web", securityContext={"runAsUser": 1369})])
    assert outdated_messages(injected(own, user=1369), sidecars(), LABELED) == ()


def test_a_pod_with_an_old_generation_of_a_sidecar_object_is_outdated() -> None:
    logging = sidecar(
        "logging", {"app": "web"}, namespace="shop", metadata={"generation": 2}, env=[{"name": "A", "value": "b"}]
    )
    around = LABELED._replace(sidecars=(logging,))
    old = pod("web-1", namespace="shop", labels={"app": "web"}, annotations={ADDED: "logging@1", SIDECAR: "explicit"})
    assert outdated_messages(old, explicit_sidecars("labelled"), around) == ("Sidecar logging of generation 1, now 2",)
    new = pod("web-1", namespace="shop", labels={"app": "web"}, annotations={ADDED: "logging@2", SIDECAR: "explicit"})
    assert outdated_messages(new, explicit_sidecars("labelled"), around) == ()


def test_a_pod_of_headgate_run_is_never_outdated() -> None:
    own = pod("web-1", namespace="shop", annotations={PROCESS: "external"})
    assert outdated_messages(own, explicit_sidecars("labelled"), LABELED) == ()


def test_resources_that_a_limit_range_adds_and_injection_does_not_write_do_not_count() -> None:
    """A new pod gets the same default of a LimitRange from the API server, so a restart could never end it."""
    pod = injected()
    for entry in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
        for quantities in entry.setdefault("resources", {}).values():
            quantities["ephemeral-storage"] = "1Gi"
    assert "ephemeral-storage" in str(pod)
    assert outdated_messages(pod, sidecars(), LABELED) == ()
