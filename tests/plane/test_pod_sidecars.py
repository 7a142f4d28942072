"""Why a pod has a sidecar or none: the setting, the state of the proxy, the Sidecars, and what to do."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from tests.make.objects import pod, sidecar

from headgate.admission.injection import InjectionDecision, PodNamespace
from headgate.admission.sidecar_containers import SidecarOptions, decide_transparent, with_transparent_sidecar
from headgate.options import InjectionMode
from headgate.plane.pod_sidecars import PodFacts, explain_pod
from headgate.resources.inspect import PodSidecar, ProxyState, ProxyStatus
from headgate.resources.meta import Object

INJECT = "headgate.dev/inject"
LABEL = "label headgate.dev/inject of the pod template"
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-5d4f", "uid": "1", "controller": True}


def web_pod(*, sidecar: bool = False, labels: Mapping[str, str] = {}, **more: Any) -> Object:
    """Return a pod of the Deployment `web`. With `sidecar`, it was injected."""
    of_web = {"app": "web", "pod-template-hash": "5d4f", **labels}
    metadata = {"ownerReferences": [OWNER]}
    plain = pod("web-5d4f-x7x7x", labels=of_web, metadata=metadata, **{"namespace": "shop", **more})
    return with_transparent_sidecar(plain, SidecarOptions(image="i", xds="x:1")) if sidecar else plain


def sidecar_of_generation(name: str, generation: int) -> Object:
    env = [{"name": "A", "value": "b"}]
    return sidecar(name, {"app": "web"}, namespace="shop", metadata={"generation": generation}, env=env)


def config(name: str) -> Object:
    return {"metadata": {"name": name, "namespace": "shop"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}


def explained(
    one: Object,
    *,
    mode: InjectionMode = "labelled",
    around: Mapping[str, str] = {},
    configs: Sequence[Object] = (),
    sidecars: Sequence[Object] = (),
    state: ProxyState | None = None,
) -> PodSidecar:
    decision = decide_transparent(one, mode, PodNamespace(labels=around, configs=configs))
    proxy = ProxyStatus(state=state, message="" if state == "InSync" else "it is late") if state else None
    return explain_pod(PodFacts(one, decision, sidecars, proxy))


@pytest.mark.parametrize(
    ("one", "around", "message", "advice"),
    [
        (
            web_pod(),
            {},
            "no label, annotation or TLSConfig requests one",
            f'to add a sidecar, set the {LABEL} to "true"',
        ),
        (
            web_pod(labels={INJECT: "disabled"}),
            {INJECT: "true"},
            'the pod\'s label headgate.dev/inject is "disabled"',
            "add",
        ),
        (web_pod(annotations={INJECT: "false"}), {}, "the pod's annotation headgate.dev/inject is", "add"),
        (web_pod(), {INJECT: "false"}, 'the label headgate.dev/inject of the namespace shop is "false"', "add"),
        (web_pod(hostNetwork=True), {INJECT: "true"}, "the network of its node", "remove spec.hostNetwork"),
        (web_pod(namespace="kube-system"), {INJECT: "true"}, "kube-system never get a sidecar", "in another namespace"),
    ],
)
def test_the_explanation_names_the_setting_that_decides_and_what_to_change(
    one: Object, around: Mapping[str, str], message: str, advice: str
) -> None:
    """R77."""
    found = explained(one, around=around)
    assert found.sidecar == ""
    assert not found.decision.injected
    assert message in found.decision.message
    (only,) = found.advice_messages
    assert advice in only


def test_the_option_none_overrides_all_labels() -> None:
    found = explained(web_pod(labels={INJECT: "true"}), mode="none")
    assert found.decision.message == "headgate runs with --sidecars none"
    assert found.advice_messages == ("to add sidecars, run headgate with --sidecars labelled",)


@pytest.mark.parametrize(
    ("labels", "around", "configs", "message"),
    [
        ({INJECT: "true"}, {}, [], 'the pod\'s label headgate.dev/inject is "true"'),
        ({}, {INJECT: "enabled"}, [], 'the label headgate.dev/inject of the namespace shop is "enabled"'),
        ({}, {}, [config("strict")], "the TLSConfig strict selects the pod"),
    ],
)
def test_the_explanation_of_a_sidecar_in_sync_says_how_to_remove_it(
    labels: Mapping[str, str], around: Mapping[str, str], configs: Sequence[Object], message: str
) -> None:
    found = explained(web_pod(labels=labels, sidecar=True), around=around, configs=configs, state="InSync")
    assert (found.sidecar, found.decision.message) == ("transparent", message)
    assert found.proxy
    assert found.proxy.state == "InSync"
    assert found.advice_messages == (f'to remove the sidecar, set the {LABEL} to "false"',)


def test_a_pod_that_is_older_than_its_setting_must_be_replaced() -> None:
    found = explained(web_pod(), configs=[config("strict")])
    restart = "kubectl -n shop rollout restart deployment/web"
    assert found.advice_messages[0] == f"a new pod with the same labels gets a sidecar; replace the pod: {restart}"
    found = explained(web_pod(sidecar=True), state="InSync")
    assert found.advice_messages[0] == f"a new pod with the same labels gets no sidecar; replace the pod: {restart}"
    assert "`headgate inject`" in found.advice_messages[1]


def test_the_explanation_names_probes_that_the_sidecar_does_not_serve() -> None:
    """Pods of older versions have them. To a TCP probe, the sidecar answers before the application listens."""
    app = {"name": "app", "readinessProbe": {"tcpSocket": {"port": 80}}}
    new = web_pod(sidecar=True, containers=[app])
    assert not any("does not serve" in line for line in explained(new, state="InSync").advice_messages)
    old = web_pod(sidecar=True)
    old["spec"]["containers"][1] = app
    (advice,) = [line for line in explained(old, state="InSync").advice_messages if "does not serve" in line]
    assert "its sidecar does not serve app.readinessProbe.tcpSocket; replace the pod" in advice


def test_the_explanation_names_hooks_that_a_strict_workload_rejects() -> None:
    hooks = {"postStart": {"exec": {"command": ["true"]}}, "preStop": {"httpGet": {"port": 80, "path": "/stop"}}}
    one = web_pod(sidecar=True, containers=[{"name": "app", "lifecycle": hooks}, {"name": "plain"}])
    (note,) = [note for note in explained(one, state="InSync").messages if "hook" in note]
    assert note.startswith("the kubelet sends the hook app.lifecycle.preStop.httpGet in plaintext")


def test_the_explanation_of_a_disconnected_proxy_has_commands_that_show_why() -> None:
    found = explained(web_pod(sidecar=True), around={INJECT: "true"}, state="Disconnected")
    assert found.proxy
    assert (found.proxy.state, found.proxy.message) == ("Disconnected", "it is late")
    assert "kubectl -n shop logs web-5d4f-x7x7x -c headgate-sidecar" in found.advice_messages[0]


def test_the_explanation_has_the_generation_and_conflicts_of_each_sidecar_object() -> None:
    """R79, D18."""
    annotations = {
        "headgate.dev/sidecar-generations": "current@2,deleted@1,old@1",
        "headgate.dev/sidecar-conflicts": "old/env/app/A",
    }
    one = web_pod(sidecar=True, annotations=annotations)
    sidecars = [sidecar_of_generation("current", 2), sidecar_of_generation("old", 4), sidecar_of_generation("new", 1)]
    found = explained(one, around={INJECT: "true"}, sidecars=sidecars, state="InSync")
    states = [(item.name, item.generation, item.newest) for item in found.sidecars]
    assert states == [("current", 2, 2), ("deleted", 1, 0), ("new", 0, 1), ("old", 1, 4)]
    assert found.sidecars[3].conflicts == ("env/app/A",)
    assert "the newest generation of the Sidecars deleted, new, old; replace the pod" in found.advice_messages[0]
    assert "Sidecar old: choose other names for env/app/A" in found.advice_messages[1]


def test_sidecar_objects_add_nothing_to_a_pod_without_headgates_sidecar() -> None:
    assert any(
        "add nothing" in note for note in explained(web_pod(), sidecars=[sidecar_of_generation("agent", 1)]).messages
    )


def test_notes_explain_jobs_excluded_ports_and_pods_without_a_proxy() -> None:
    one = web_pod(sidecar=True, annotations={"headgate.dev/excluded-inbound-ports": "9102"}, restartPolicy="OnFailure")
    notes = explained(one, around={INJECT: "true"}).messages
    assert notes[0] == "headgate expects no proxy, because the pod has no address yet"
    assert "these ports bypass the sidecar: 9102" in notes[1]
    assert "the pod ends by itself (restartPolicy OnFailure)" in notes[2]
    ended = {**one, "status": {"phase": "Succeeded"}}
    assert explained(ended, around={INJECT: "true"}).messages[0] == "the pod has ended (phase Succeeded)"


def test_a_namespace_that_the_webhooks_do_not_select_is_named_with_the_remedy() -> None:
    found = explain_pod(
        PodFacts(web_pod(), InjectionDecision("NamespaceName", "kubernetes.io/metadata.name"), (), None)
    )
    assert not found.decision.injected
    assert "the namespace shop has no label kubernetes.io/metadata.name" in found.decision.message
    label = "kubectl label namespace shop kubernetes.io/metadata.name=shop"
    assert found.advice_messages == (f"to add a sidecar, run: {label}",)


def test_the_explanation_of_a_pod_that_is_not_ready_names_its_probe() -> None:
    decision = InjectionDecision("NamespaceName", "kubernetes.io/metadata.name")
    failed = "pod web: the readiness probe of container app (GET :80/) failed: HTTP status 404"
    pod = explain_pod(PodFacts(web_pod(), decision, (), None, failed))
    assert pod.messages == (
        "it is not ready, and gets no requests of Services: the readiness probe of container app (GET :80/) failed: HTTP status 404",
    )
    assert pod.advice_messages[0] == "correct the probe in the pod template, or the program, so that the probe succeeds"
