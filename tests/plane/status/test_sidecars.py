"""The status of a Sidecar says which pods have its containers (R79, D18)."""

from typing import Any

from tests.make.objects import headgate_keys, pod

from headgate.compiler.compile import compile_mesh
from headgate.plane.feed import snapshot_of
from headgate.plane.status.conditions import StatusInputs
from headgate.plane.status.receipts import Receipts
from headgate.plane.status.sidecars import sidecar_status
from headgate.plane.status.work_queue import ReportIndex
from headgate.resources.meta import Object
from headgate.resources.registry import key_of
from headgate.settings import DEFAULTS

SIDECAR: dict[str, Any] = {
    "apiVersion": "headgate.dev/v1beta1",
    "kind": "Sidecar",
    "metadata": {"name": "monitoring", "namespace": "shop", "generation": 3},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "containers": [{"name": "agent"}]},
}


def pod_with(name: str, added: str = "", conflicts: str = "", *, proxy: bool = True, app: str = "web") -> Object:
    mode = "transparent" if proxy else ""
    annotations = headgate_keys(sidecar_mode=mode, sidecar_generations=added, sidecar_conflicts=conflicts)
    written = {key: text for key, text in annotations.items() if text}
    return pod(name, "10.0.0.1", namespace="shop", labels={"app": app}, annotations=written)


def status(*pods: Object, sidecar: Object = SIDECAR) -> Any:
    compiled = compile_mesh(snapshot_of({key_of(obj): obj for obj in (sidecar, *pods)}), DEFAULTS)
    return sidecar_status(sidecar, ReportIndex(compiled).report(key_of(sidecar)), StatusInputs(Receipts(()), "now"))


def condition(found: Any, name: str = "Programmed") -> tuple[str, str, str]:
    (item,) = [item for item in found["conditions"] if item["type"] == name]
    return item["status"], item["reason"], item["message"]


def test_the_object_is_programmed_when_all_pods_have_its_generation() -> None:
    found = status(
        pod_with("a", "first@1,monitoring@3"),
        pod_with("b", "monitoring@3"),
        pod_with("c", app="other"),
    )
    assert found["pods"] == {"total": 2, "injected": 2, "restartNeeded": 0, "conflicts": 0}
    assert condition(found) == ("True", "Programmed", "2 of 2 pods have the current generation")
    assert condition(found, "Accepted")[0] == "True"


def test_pods_without_the_sidecar_or_with_an_older_generation_need_a_restart() -> None:
    found = status(pod_with("a", "monitoring@2"), pod_with("b"), pod_with("c", "monitoring@3"))
    assert found["pods"] == {"total": 3, "injected": 1, "restartNeeded": 2, "conflicts": 0}
    reached, reason, message = condition(found)
    assert (reached, reason) == ("False", "RestartNeeded")
    assert message.startswith("1 of 3 pods have the current generation; pods shop/a, shop/b started without")


def test_the_message_names_the_pod_and_the_item_of_a_conflict() -> None:
    found = status(pod_with("a", "monitoring@3,other@1", "monitoring/containers/agent,other/volumes/spool"))
    assert found["pods"]["conflicts"] == 1
    reached, reason, message = condition(found)
    assert (reached, reason) == ("False", "NameConflict")
    assert "pod shop/a has its own containers/agent" in message
    assert "spool" not in message


def test_the_message_names_a_pod_without_a_proxy() -> None:
    found = status(pod_with("a", proxy=False))
    assert found["pods"] == {"total": 1, "injected": 0, "restartNeeded": 0, "conflicts": 0}
    assert condition(found)[1] == "NotInjected"
    assert "nothing is added to pod shop/a" in condition(found)[2]


def test_a_sidecar_object_that_selects_no_pod_is_programmed() -> None:
    assert condition(status()) == ("True", "Programmed", "the object selects no pod")


def test_the_status_waits_until_the_newest_generation_is_compiled() -> None:
    compiled = compile_mesh(snapshot_of({key_of(SIDECAR): SIDECAR}), DEFAULTS)
    newer = {**SIDECAR, "metadata": {**SIDECAR["metadata"], "generation": 4}}
    report = ReportIndex(compiled).report(key_of(SIDECAR))
    assert sidecar_status(newer, report, StatusInputs(Receipts(()), "now")) is None
