"""Compare the tests with the Gateway API's conformance suite, and write the report into docs/tasks/gateway-api.md.

    python tools/conformance.py            # write the report
    python tools/conformance.py --check    # `make check`: fail if a test is missing or the report is out of date

A test has the marker `conformance` with the names of those tests of the suite that it stands for. `make test` runs them
with the real Envoy: on one machine, and again with real pods if `CLUSTER` imports their module. The report counts markers, and
does not know the results.
"""

import ast
import json
import re
import sys
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from headgate.resources.gateway_api.features import EXTENDED, SUPPORTED

ROOT = Path(__file__).parent.parent
DOCS, TESTS = ROOT / "docs/tasks/gateway-api.md", ROOT / "tests"
FEATURES = "src/headgate/resources/gateway_api/features.py"
GATEWAY_API, CLUSTER = TESTS / "e2e/gateway_api", TESTS / "pods/test_conformance.py"
REPORT = re.compile(
    r"(?<=<!-- report: `python tools/conformance.py` writes it -->\n).*?(?=<!-- end of it -->)", re.DOTALL
)
_NOT_RUN = re.compile(r"pytest\.mark\.(skip|xfail)\b")
LISTS = json.loads(Path(__file__).with_suffix(".json").read_bytes())
"""The release's profiles with their core features, all features, and all tests of the suite with the features that each needs."""
COMPARED = "2026-11-29"
"""The day on which the lists were compared with the suite."""
PROFILES: Mapping[str, tuple[str, ...]] = {
    "GATEWAY-HTTP": ("BackendTLSPolicy", "Gateway", "HTTPRoute", "ListenerSet"),
    "GATEWAY-GRPC": ("BackendTLSPolicy", "Gateway", "GRPCRoute", "ListenerSet"),
    "GATEWAY-TCP": ("Gateway", "TCPRoute"),
    "GATEWAY-TLS": ("Gateway", "TLSRoute"),
    "GATEWAY-UDP": ("Gateway", "UDPRoute"),
    "MESH-HTTP": ("Mesh",),
    "MESH-GRPC": ("GRPCRoute", "MeshClusterIPMatching", "MeshConsumerRoute"),
}
"""The profiles that headgate claims, and the beginnings of the names of their extended features."""


def words(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


CORE = {profile: words(features) for profile, features in LISTS["profiles"].items()}
CLAIMED = EXTENDED.union(*(CORE[profile] for profile in PROFILES))
NEEDS = {name: needs for name, features in LISTS["tests"].items() if (needs := words(features)) <= CLAIMED}
"""The tests of the suite for the claimed features, with the features that each needs."""
ONE_MACHINE = frozenset({"TCPRoute", "TLSRoute", "UDPRoute"})
"""Core features whose tests run on one machine only, except the shares of TCPRoutes: with pods they take three minutes, most of
it for changes of listeners."""
_ALL_CORE = frozenset().union(*CORE.values())


def modules() -> Mapping[Path, ast.Module]:
    """Return the files of tests that have the marker, and all those of GATEWAY_API, with their syntax trees."""
    marked_files = {path for path in TESTS.rglob("test_*.py") if "conformance(" in path.read_text()}
    files = sorted(marked_files.union(GATEWAY_API.glob("test_*.py")))
    return {path: ast.parse(path.read_text()) for path in files}


def marked(found: Mapping[Path, ast.Module]) -> Mapping[str, Path]:
    """Return the names in the markers of some files, each with a file that has it."""
    return {name: path for path, module in found.items() for name in _names_in_markers(module)}


def with_pods(found: Mapping[Path, ast.Module]) -> Mapping[Path, ast.Module]:
    """Return the files whose tests run with real pods: CLUSTER, and those from which it imports all tests."""
    everything = [
        node for node in found[CLUSTER].body if isinstance(node, ast.ImportFrom) and node.names[0].name == "*"
    ]
    return {
        path: found[path]
        for path in (CLUSTER, *(ROOT / f"{str(node.module).replace('.', '/')}.py" for node in everything))
    }


def _names_in_markers(module: ast.Module) -> Iterator[str]:
    """Yield the names in the markers of tests that run: neither those of other functions, nor of skipped tests."""
    for node in ast.walk(module):
        decorators = getattr(node, "decorator_list", ())
        is_test = str(getattr(node, "name", "")).startswith("test_")
        if not is_test or any(_NOT_RUN.match(ast.unparse(decorator)) for decorator in decorators):
            continue
        for decorator in decorators:
            if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.conformance":
                yield from (ast.literal_eval(argument) for argument in decorator.args)


def faults() -> Iterator[str]:
    """Yield a message for each test of the suite that no marker names, and for each name that is wrong."""
    found = modules()
    tests, on_cluster = marked(found), marked(with_pods(found))
    core = CLAIMED - EXTENDED
    for name in sorted(NEEDS.keys() - tests.keys()):
        yield f"no test has the marker conformance({name!r}); write one in tests/e2e/gateway_api"
    for name in sorted(tests.keys() - NEEDS.keys()):
        yield f"{tests[name].relative_to(ROOT)}: the marker names {name!r}, which needs a feature that {FEATURES} does not have, or is no test of the suite"
    for name in sorted(NEEDS.keys() - on_cluster.keys()):
        if NEEDS[name] <= core - ONE_MACHINE:
            yield f"no test that runs with real pods has the marker conformance({name!r}); see {CLUSTER.relative_to(ROOT)}"
    for name, number in sorted(Counter(_tests(with_pods(found))).items()):
        if number > 1:
            yield f"{CLUSTER.relative_to(ROOT)}: {number} imported tests have the name {name}, so only one runs; rename one"
    for feature in sorted(CLAIMED.symmetric_difference(SUPPORTED) | CLAIMED - {*LISTS["features"]}):
        yield f"{FEATURES}: {feature} is no feature of {LISTS['release']}, or not of the claimed profiles, or is missing"


def _tests(found: Mapping[Path, ast.Module]) -> Iterator[str]:
    """Yield the names of the tests in some files."""
    for module in found.values():
        yield from (
            node.name for node in module.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        )


def hosts() -> str:
    """Return a sentence about the hosts on which the tests run."""
    missing = sorted(NEEDS.keys() - marked(with_pods(modules())).keys())
    exceptions = f", but those for {', '.join(f'`{name}`' for name in missing)} on one machine only" if missing else ""
    return (
        f"The tests for all {len(NEEDS)} tests of the suite run on one machine, and with real pods on a Kubernetes "
        f"cluster{exceptions}."
    )


def report() -> Mapping[str, Any]:
    """Return the report in the form of the conformance suite (ConformanceReport)."""
    project = "https://github.com/headgate/headgate"
    return {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ConformanceReport",
        "date": COMPARED,
        "gatewayAPIChannel": "experimental",
        "gatewayAPIVersion": LISTS["release"],
        "implementation": {
            "organization": "headgate",
            "project": "headgate",
            "url": project,
            "version": "v0.1.0",
            "contact": [f"{project}/issues"],
        },
        "mode": "default",
        "profiles": [profile_report(name) for name in PROFILES],
    }


def profile_report(profile: str) -> Mapping[str, Any]:
    """Return the results of one profile: a test belongs to it if the profile has all features of the test."""
    core, beginnings = CORE[profile], PROFILES[profile]
    extended = sorted(name for name in LISTS["features"] if name.startswith(beginnings) and name not in _ALL_CORE)
    supported = [name for name in extended if name in EXTENDED]
    fitting = [needs for needs in NEEDS.values() if needs <= core.union(supported)]
    basic = sum(needs <= core for needs in fitting)
    return {
        "name": profile,
        "core": _success(basic),
        "extended": {
            **_success(len(fitting) - basic),
            "supportedFeatures": supported,
            "unsupportedFeatures": [name for name in extended if name not in EXTENDED],
        },
        "summary": "Core tests succeeded. Extended tests succeeded.",
    }


def _success(passed: int) -> dict[str, Any]:
    return {"result": "success", "statistics": {"Failed": 0, "Passed": passed, "Skipped": 0}}


def documentation() -> str:
    """Return docs/tasks/gateway-api.md with the current report."""
    text = yaml.safe_dump(report(), sort_keys=False)
    comment = "<!-- not run: a report is not an object of a cluster -->"
    found = f"{textwrap.fill(hosts(), 132)}\n\n{comment}\n```yaml\n{text}```\n"
    return REPORT.sub(lambda _: found, DOCS.read_text())


def main(arguments: Sequence[str]) -> int:
    """Write the report, or with `--check` compare it; return 1 if it is out of date or a test is missing."""
    found = list(faults())
    if "--check" not in arguments:
        DOCS.write_text(documentation())
    elif DOCS.read_text() != documentation():
        found.append(f"{DOCS.relative_to(ROOT)} is out of date; run `python tools/conformance.py`")
    print("\n".join(found) or "conformance: fine")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
