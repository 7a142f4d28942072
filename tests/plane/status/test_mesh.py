"""The status of a TLSConfig or TrafficTarget counts the sidecars of the pods that it selects (R74, R77)."""

import time
from pathlib import Path
from typing import Any

from tests.make.objects import authorization_policy
from tests.xds.client import XdsClient

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Compiled, Finding, Report, SelectedPods
from headgate.envoy.config import LISTENER, Encoded
from headgate.identity.embedded import EmbeddedIssuer
from headgate.identity.issuers import LIFETIME, CertificateSpec
from headgate.identity.keys import FileKeyStore
from headgate.kinds import MESH
from headgate.model.mutual_tls import TlsMode
from headgate.model.routing import Mesh, Workload
from headgate.plane.status.conditions import ObjectReport, StatusInputs
from headgate.plane.status.mesh import mesh_status, names_in
from headgate.plane.status.receipts import Receipts
from headgate.plane.status.work_queue import ReportIndex
from headgate.resources.gateway_api.gateway import CONTROLLER
from headgate.resources.meta import Key
from headgate.xds.fleet import Fleet

KEY = Key(MESH, "TLSConfig", "default", "strict")
OBJ = {"apiVersion": "headgate.dev/v1beta1", "kind": "TLSConfig", "metadata": {"name": "strict", "generation": 2}}
PODS = SelectedPods(about=KEY, workloads=("default/a", "default/b"))
INBOUND = "inbound/8080"


def fleet(**held: str) -> Fleet:
    """Return sidecars by name, each with the acknowledged version of its listener; version 2 is wanted."""
    found = Fleet()
    for name, version in held.items():
        proxy = found.expect(f"sidecar/default/{name}")
        proxy.config.set({LISTENER: {INBOUND: Encoded(b"", version)}})
        XdsClient(proxy).take()
        proxy.config.set({LISTENER: {INBOUND: Encoded(b"", "2")}})
    return found


def programmed(report: ObjectReport, proxies: Fleet, *blocking: str) -> tuple[str, str, str]:
    status = mesh_status(OBJ, report, StatusInputs(Receipts(proxies.connected()), "now", blocking))
    assert status is not None
    (found,) = [item for item in status["conditions"] if item["type"] == "Programmed"]
    return found["status"], found["reason"], found["message"]


def report(*findings: Finding, **fields: Any) -> ObjectReport:
    return ObjectReport(generation=2, findings=findings, **{"selected": PODS, **fields})


def finding(reason: Reason, message: str) -> Finding:
    return Finding(about=KEY, reason=reason, field="spec.selector", message=message)


def test_an_object_is_programmed_when_all_its_sidecars_have_acknowledged_their_inbound_configuration() -> None:
    assert programmed(report(), fleet(a="2", b="2")) == ("True", "Programmed", "strict on 2 of 2 pods")
    assert programmed(report(), fleet(a="2", b="1"))[1:] == (
        "Pending",
        "strict on 1 of 2 pods; waiting for sidecar/default/b",
    )
    assert programmed(report(), fleet(a="2"))[1:] == ("Pending", "strict on 1 of 2 pods; waiting for sidecar/default/b")


def test_the_condition_contains_envoys_message_about_a_rejection() -> None:
    proxies = fleet(a="2", b="1")
    XdsClient(proxies.proxies["sidecar/default/b"]).take(refuse={(LISTENER, INBOUND): "address in use"})
    assert programmed(report(), proxies)[1:] == (
        "EnvoyRejected",
        "strict on 1 of 2 pods; sidecar/default/b rejected the configuration: address in use",
    )


def test_the_condition_names_the_proxies_that_block_a_migration() -> None:
    """A step to the next TLS mode waits for every proxy, not only for the proxies of the selected pods."""
    status, reason, message = programmed(
        report(migrating=("default/b",)), fleet(a="2", b="2"), "sidecar/default/caller"
    )
    assert (status, reason) == ("False", "Pending")
    assert message.startswith("strict on 1 of 2 pods; not in the wanted TLS mode yet: pod default/b")
    assert message.endswith("waiting for sidecar/default/caller")


def test_a_sidecar_without_configuration_counts_as_lagging() -> None:
    proxies = fleet(a="2", b="2")
    proxies.proxies["sidecar/default/b"].config.set(None)  # the sidecar has no certificate yet
    assert programmed(report(), proxies)[1:] == ("Pending", "strict on 1 of 2 pods; waiting for sidecar/default/b")


def test_a_traffic_target_counts_the_proxies_of_the_called_pods() -> None:
    """R70. The called pods' proxies enforce the TrafficTarget."""
    target = {**OBJ, "kind": "TrafficTarget"}
    status = mesh_status(target, report(), StatusInputs(Receipts(fleet(a="2", b="1").connected()), "now"))
    assert status is not None
    assert status["proxies"] == {"programmed": 1, "total": 2}
    assert status["conditions"][-1]["message"] == "1 of 2 proxies have the configuration; waiting for sidecar/default/b"


def test_a_policy_keeps_the_ancestors_of_other_controllers() -> None:
    foreign = {"controllerName": "other.example/mesh", "ancestorRef": {"kind": "Namespace", "name": "default"}}
    policy = {**authorization_policy("web", {"app": "web"}), "metadata": {"name": "web", "namespace": "default"}}
    policy = {**policy, "status": {"ancestors": [foreign]}}
    for _ in range(2):
        status = mesh_status(policy, ObjectReport(generation=0), StatusInputs(Receipts([]), "now"))
        assert status is not None
        kept, own = status["ancestors"]
        assert (kept, own["controllerName"]) == (foreign, CONTROLLER)
        policy = {**policy, "status": status}


def test_an_object_is_pending_while_a_certificate_lacks_dns_names() -> None:
    """R75."""
    found = programmed(report(incomplete_certificates=("default/a",)), fleet(a="2", b="2"))
    assert found[1:] == (
        "Pending",
        "strict on 1 of 2 pods; waiting for certificates with all DNS names: pod default/a",
    )


async def test_names_in_returns_the_dns_names_of_a_certificate(tmp_path: Path) -> None:
    """R75. The certificates come from the embedded authority."""
    issuer = EmbeddedIssuer(FileKeyStore(tmp_path), "cluster.local", clock=time.time)
    identity = "spiffe://cluster.local/ns/default/sa/web"
    for subjects in ((), ("foo", "bar")):
        credential = await issuer.issue(CertificateSpec(identity=identity, subjects=subjects), LIFETIME)
        assert names_in(credential.chain) == set(subjects)


def test_an_object_is_not_programmed_if_a_pod_has_no_sidecar() -> None:
    message = "no sidecar enforces this object at pod default/c"
    selected = SelectedPods(about=KEY, workloads=("default/a",), without_sidecar=("default/c",))
    found = report(finding(Reason.NOT_ENFORCED, message), selected=selected)
    assert programmed(found, fleet(a="2")) == ("False", "NotEnforced", message)
    status = mesh_status(OBJ, found, StatusInputs(Receipts(fleet(a="2").connected()), "now"))
    assert status is not None
    assert status["pods"] == {"total": 2, "sidecars": 1}


def test_an_invalid_object_of_any_generation_is_not_programmed() -> None:
    found = ObjectReport(generation=0, findings=(finding(Reason.INVALID, "spec.selector: must be a map"),))
    assert programmed(found, fleet())[:2] == ("False", "Invalid")


def test_there_is_no_status_while_only_an_older_generation_is_compiled() -> None:
    assert mesh_status(OBJ, ObjectReport(generation=1, selected=PODS), StatusInputs(Receipts([]), "now")) is None


def test_workloads_between_two_tls_modes_are_migrating() -> None:
    identity = "spiffe://cluster.local/ns/default/sa/web"
    workloads = [
        Workload(name=name, address="127.0.0.9", identity=identity, tls_mode=tls_mode, target_tls_mode=TlsMode.STRICT)
        for name, tls_mode in (("default/a", TlsMode.STRICT), ("default/b", TlsMode.PERMISSIVE))
    ]
    mesh = Mesh(domain="cluster.local", workloads=tuple(workloads))
    compiled = Compiled(revision=1, mesh=mesh, report=Report(seen={KEY: 2}, selected=(PODS,)))
    assert ReportIndex(compiled).report(KEY).migrating == ("default/b",)
