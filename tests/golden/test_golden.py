"""Compare the output of `headgate compile` with golden files; each directory here is a case.

`notes.md` has the requirement of the case and the gateway's resources to show. Each sidecar has its own file
(`sidecars.py`). After an intended change, run `make golden` and review the diff.
"""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest
import yaml
from tests.golden import sidecars
from tests.golden.cases import CASES, HERE, compiled

from headgate.cli.compile import Stage, documents
from headgate.cli.output import yaml_text
from headgate.compiler.reasons import REASONS, Reason
from headgate.compiler.report import Compiled
from headgate.envoy import names
from headgate.envoy.view import sidecar
from headgate.model.check import check

REASONS_PAGE = HERE.parents[1] / "docs" / "reference" / "reasons.md"
TYPES = {
    "clusters": "Cluster",
    "endpoints": "ClusterLoadAssignment",
    "listeners": "Listener",
    "routes": "RouteConfiguration",
    "scopes": "ScopedRouteConfiguration",
}
FROM_PROXIES = (
    Reason.CERTIFICATE_EXPIRES,
    Reason.COPIES_DROPPED,
    Reason.ENVOY_REJECTED,
    Reason.GATEWAY_NOT_READY,
    Reason.IDENTITY_UNAVAILABLE,
    Reason.NODE_AGENT_MISSING,
    Reason.NODE_AGENT_FAILS,
    Reason.NO_RESOURCES,
    Reason.OBJECT_REJECTED,
    Reason.PODS_REFUSED,
    Reason.REVISION_NOT_FOUND,
)  # reported by the control plane, not by the compiler
SHOWN = re.compile(r"Shown: (?P<types>[a-z, ]+?)(?: of (?P<services>[a-z0-9/, -]+))?\.\n")


def owner(name: str) -> str:
    """Return the Service or the Gateway that a resource belongs to."""
    if gateway := names.parse_gateway(name):
        return gateway.gateway
    ref = names.parse(name)
    return ref.service if ref else ""


def topic(case: Path) -> tuple[set[str], set[str]]:
    """Return the resource types, and the Services and Gateways, that the notes of a case name; an empty set means all."""
    found = SHOWN.search((case / "notes.md").read_text())
    assert found, f"{case.name}/notes.md must end with a line such as 'Shown: endpoints, routes of default/website.'"
    return {TYPES[word] for word in found["types"].split(", ")}, set((found["services"] or "").split(", ")) - {""}


def shown(result: Compiled, types: set[str], services: set[str]) -> Iterator[object]:
    """Yield the gateway's resources that belong to the topic of the case."""
    for document in documents(result, Stage.XDS):
        if document["type"] in types and (not services or owner(document["name"]) in services):
            del document["version"]  # a digest of the content
            yield document


def printed(case: Path) -> Mapping[str, str]:
    result = compiled(case.name)
    assert check(result.mesh) == ()
    types, services = topic(case)
    stages = {
        "mesh.yaml": documents(result, Stage.MESH),
        "report.yaml": documents(result, Stage.REPORT),
        "xds/gateway.yaml": shown(result, types, services),
    }
    proxies = {f"xds/{node.id.replace('/', '.')}.yaml": node for node in map(sidecar, result.mesh.workloads)}
    return {name: "---\n".join(map(yaml_text, stage)) for name, stage in stages.items()} | {
        name: sidecars.printed(documents(result, Stage.XDS, node), services) for name, node in proxies.items()
    }


@pytest.mark.parametrize("name", CASES)
def test_the_output_of_a_case_equals_its_golden_files(name, pytestconfig):
    case = HERE / name
    texts = printed(case)
    stale = {path for path in case.glob("xds/*") if str(path.relative_to(case)) not in texts}
    if pytestconfig.getoption("--update-golden"):
        for file, text in texts.items():
            (case / file).parent.mkdir(exist_ok=True)
            (case / file).write_text(text)
        for path in stale:
            path.unlink()
        return
    assert not stale, "these proxies are no longer in the case; run make golden"
    for file, text in texts.items():
        path = case / file
        assert path.exists(), f"{path} is missing; run make golden"
        assert path.read_text() == text, f"{path} differs; if the change is intended, run make golden and read the diff"


@pytest.mark.parametrize("name", CASES)
def test_the_notes_of_a_case_name_a_requirement(name):
    assert re.search(r"\b[RD]\d+\b", (HERE / name / "notes.md").read_text())


@cache
def reported() -> frozenset[str]:
    """Return the reasons in the reports of all cases."""
    reports = [yaml.load(path.read_text(), yaml.CSafeLoader) for path in HERE.glob("*/report.yaml")]
    return frozenset(finding["reason"] for report in reports for finding in report["findings"])


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in FROM_PROXIES])
def test_every_reason_has_a_case(reason):
    assert reason.value in reported()


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_in_the_docs_with_its_meaning(reason):
    rows = [line for line in REASONS_PAGE.read_text().splitlines() if line.startswith(f"| `{reason.value}` ")]
    assert len(rows) == 1, (
        f"docs/reference/reasons.md needs one row for {reason.value}, with its meaning and what to do"
    )
    assert f"| {reason.condition.value} |" in rows[0]
    assert f"| {reason.severity.word} |" in rows[0]
    assert REASONS[reason].meaning in rows[0]
