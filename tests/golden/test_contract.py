"""What a sidecar, the control plane and a revision understand alike changes only with `CONTRACT`, or with a reason why it need not.

`contract.json` has the digest of each part. `make golden` writes it, but only after one of both.
"""

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs
from tests.golden.cases import compiled
from tests.make.objects import container, pod

from headgate.admission.injection import PodNamespace
from headgate.admission.sidecar_containers import SidecarOptions, transparent_sidecars
from headgate.cli.compile import GATEWAY, Stage, documents
from headgate.envoy import names
from headgate.envoy.pod_bootstrap import STORED
from headgate.envoy.view import sidecar
from headgate.kinds import GATEWAY as GATEWAY_API
from headgate.model.routing import PortRef, Protocol
from headgate.plane.renderings import CONTRACT, ExplainRequest, RenderRequest, RenderResponse
from headgate.resources.explanations import ExplanationStatus
from headgate.resources.meta import Key

RECORD = Path(__file__).with_name("contract.json")
BOOTSTRAP = "the bootstrap of sidecars (envoy/bootstrap.py)"
CONTAINERS = "the containers of sidecars: commands, variables, mounts (admission/sidecar_containers.py)"
RESOURCE_NAMES = "the names of resources (envoy/names.py)"
METRICS = "the metrics that proxies report (envoy/traffic_stats.py)"
PROTOCOL = "the requests to a revision and its responses (plane/renderings.py)"
COMPATIBLE: tuple[tuple[str, str], ...] = (
    (
        BOOTSTRAP,
        "Bootstraps keep and rename a counter of UDP listeners, which sidecars do not have; other series are as before.",
    ),
    (PROTOCOL, "The requests for explanations and their answers joined the record; no message has changed."),
    (PROTOCOL, "Each message of a revision has the number, even the first one; no released version omits it."),
    (
        PROTOCOL,
        "A request for an explanation has a server name; a revision before ignores it, and routes of its Services read none.",
    ),
    (
        PROTOCOL,
        "Explanations have the objects of a remedy, empty by default; readers ignore fields that they do not know.",
    ),
    (
        PROTOCOL,
        "The objects of a remedy are left out where an access rule names the caller; readers accept explanations without them.",
    ),
    (
        METRICS,
        "A server's records of live requests end with two fields for audit mode; readers accept records without them.",
    ),
    (PROTOCOL, "Without a gateway an explanation has no caller and no arrivals; readers show what it has."),
    (
        PROTOCOL,
        "Explanations have the port's message, backends that are left out and what is not ready, empty by default; readers ignore them.",
    ),
    (
        PROTOCOL,
        "The objects of a remedy are for one method and path, those for all requests have a field of their own; readers create either.",
    ),
    (
        PROTOCOL,
        "The objects of a remedy are left out where a TrafficTarget would close open pods; readers accept explanations without them.",
    ),
    (
        PROTOCOL,
        "An explanation has the authorization server with its ready endpoints and arrivals, if there is one; readers ignore it.",
    ),
)
"""A part and a reason for each change since `CONTRACT` was raised that sidecars and revisions of the version before work with."""
SPLIT, ROUTE = (Key("split.smi-spec.io", "TrafficSplit", "a", "s"), Key(GATEWAY_API, "HTTPRoute", "a", "r"))
WEB, GATE = PortRef("a/web", 80), names.GatewayRef("a/gate", 443)
NAMES = (
    names.outbound(WEB),
    names.backend(WEB, "a/web-v1"),
    names.matched_requests(WEB, SPLIT),
    names.no_endpoints(WEB),
    names.host_scope(WEB, "web.a"),
    names.parent(GATE),
    names.rule(WEB, ROUTE, "0", [(SPLIT, 80)]),
    names.rule(GATE, ROUTE, "0"),
    names.mirror(WEB, SPLIT),
    names.mirror(WEB, by=SPLIT),
    names.backend_mirror(names.mirror(WEB), "a/web-v1"),
    names.pod(WEB, "10.0.0.1", 80),
    names.direct_cluster(WEB, "spiffe://cluster.local/ns/a/sa/web"),
    names.secret("a/tls"),
    names.inbound(names.InboundRef(80, Protocol.HTTP)),
    names.callers(names.InboundRef(80, Protocol.TCP)),
)


def parts() -> Mapping[str, Any]:
    """Return the content of each part, by a sentence that says what it is."""
    options = SidecarOptions(image="headgate", xds="headgate:15010", revision="next", collector="collector:4317")
    probed = {**container("app"), "readinessProbe": {"httpGet": {"path": "/ready", "port": 8080}}}
    around = PodNamespace({"headgate.dev/inject": "true"}, ())
    injected = [
        transparent_sidecars("labelled", each).create(pod("web", containers=[probed]), around, True)
        for each in (options, structs.replace(options, native=True))
    ]
    return {
        BOOTSTRAP: json.loads(STORED.read_text()),
        CONTAINERS: [_without_resources(obj) for obj in injected],
        RESOURCE_NAMES: NAMES,
        METRICS: sorted(set(_access_logs())),
        PROTOCOL: [
            msgspec.json.schema(message)
            for message in (RenderRequest, RenderResponse, ExplainRequest, ExplanationStatus)
        ],
    }


def _without_resources(value: Any) -> Any:
    """Return a pod without the requests and limits of its containers, which only the kubelet reads."""
    if isinstance(value, dict):
        return {name: _without_resources(inner) for name, inner in value.items() if name != "resources"}
    return [_without_resources(inner) for inner in value] if isinstance(value, list) else value


def _access_logs() -> Iterator[str]:
    """Yield the access loggers of the proxies of two cases, as JSON: they count requests."""
    for case in ("split-mirror", "sidecar-transparent"):
        result = compiled(case)
        for node in (GATEWAY, *map(sidecar, result.mesh.workloads)):
            yield from _loggers_in(list(documents(result, Stage.XDS, node)))


def _loggers_in(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        yield from (json.dumps(value["access_log"], sort_keys=True),) if "access_log" in value else ()
        value = list(value.values())
    for inner in value if isinstance(value, list) else ():
        yield from _loggers_in(inner)


def changed(record: Mapping[str, Any], current: Mapping[str, Any]) -> str:
    """Return the parts that differ from a record without a new reason, with what to do; empty if `CONTRACT` differs or none does."""
    if current["contract"] != record["contract"]:
        return ""
    excused = {part for part, reason in current["compatible"] if [part, reason] not in record["compatible"]}
    differing = [
        name for name, digest in current["parts"].items() if record["parts"].get(name) != digest and name not in excused
    ]
    return (
        f"{'; '.join(differing)} changed, and CONTRACT is still {record['contract']}. If sidecars or revisions of the version"
        " before can't work with it, raise CONTRACT in src/headgate/plane/renderings.py. If they can, write the part and why into"
        " COMPATIBLE in tests/golden/test_contract.py. Then run `make golden`."
        if differing
        else ""
    )


def test_the_golden_contract_with_sidecars_and_revisions_changes_only_with_its_number_or_a_reason(
    pytestconfig: pytest.Config,
) -> None:
    digests = {
        name: sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16] for name, content in parts().items()
    }
    current = {"contract": CONTRACT, "compatible": [list(pair) for pair in COMPATIBLE], "parts": digests}
    record = json.loads(RECORD.read_text())
    message = changed(record, current)
    if pytestconfig.getoption("--update-golden") and not message:
        RECORD.write_text(json.dumps(current, indent=1) + "\n")
        return
    assert not message, message
    assert record == current, "CONTRACT or COMPATIBLE changed; run `make golden`"


@pytest.mark.parametrize("part", json.loads(RECORD.read_text())["parts"])
def test_a_changed_part_of_the_contract_is_named_with_what_to_do(part: str) -> None:
    """Each part of the record counts, whatever reason another part has. Nothing is reported without a change."""
    record = json.loads(RECORD.read_text())
    reasons = [[name, "another reason"] for name in record["parts"] if name != part]
    other = {
        **record,
        "compatible": [*record["compatible"], *reasons],
        "parts": dict.fromkeys(record["parts"], "0"),
    }
    message = changed(record, other)
    assert message.startswith(f"{part} changed, and CONTRACT is still {record['contract']}.")
    assert "raise CONTRACT in src/headgate/plane/renderings.py" in message
    assert changed(record, record) == ""


def test_a_changed_part_of_the_contract_needs_a_new_reason_of_its_own_or_another_number() -> None:
    record = {"contract": 1, "compatible": [["a", "before"]], "parts": {"a": "1"}}
    other = {**record, "parts": {"a": "2"}}
    assert changed(record, other).startswith("a changed")  # the reason is for an earlier change
    assert not changed(record, {**other, "compatible": [["a", "before"], ["a", "now"]]})
    assert not changed(record, {**other, "contract": 2})
    assert set(parts()) >= {part for part, _ in COMPATIBLE}
