"""The stages that a compiler keeps between runs, and the caches besides."""

import ast
from pathlib import Path

from headgate.memo import Indexes, Stages

NONE: tuple[int, ...] = ()


def appended(last: tuple[int, ...], number: int) -> tuple[int, ...]:
    return (*last, number)


def test_a_series_continues_its_last_result_and_keeps_it_while_the_input_is_equal() -> None:
    stages = Stages()
    first = stages.following(appended, NONE, 1)
    assert first == (1,)
    assert stages.following(appended, NONE, 1) is first
    assert stages.following(appended, NONE, 2) == (1, 2)


def test_parts_of_a_stage_are_series_of_their_own() -> None:
    stages = Stages()
    assert stages.following(appended, NONE, 1, part="one") == (1,)
    assert stages.following(appended, NONE, 2, part="other") == (2,)
    assert stages.following(appended, NONE, 3, part="one") == (1, 3)


def test_a_fork_continues_the_series_without_a_change_to_the_original() -> None:
    stages = Stages()
    stages.following(appended, NONE, 1)
    assert stages.fork().following(appended, NONE, 2) == (1, 2)
    assert stages.following(appended, NONE, 3) == (1, 3)


def test_an_index_is_computed_again_only_when_one_of_its_parts_has_changed() -> None:
    indexes, calls = Indexes(), list[str]()

    def names() -> str:
        calls.append("computed")
        return "names"

    parts = frozenset({"pods", "services"})
    assert indexes.get("names", parts, names) == indexes.get("names", parts, names) == "names"
    assert len(calls) == 1
    indexes.unchanged({"pods", "services", "slices"}).get("names", parts, names)
    assert len(calls) == 1
    indexes.unchanged({"pods"}).get("names", parts, names)
    assert len(calls) == 2


CACHES = {
    "parsed texts and certificates": """
        api/metrics/groups.py compiler/gateway_api/certificates.py compiler/gateway_api/parameters.py matching/patterns.py
        plane/access_calls.py plane/proxy_certificates.py plane/status/certificate_expiry.py plane/status/mesh.py quantity.py
        cli/table_layout.py model/requests.py resources/regexes.py telemetry/mirror_increments.py telemetry/prometheus/labels.py
        telemetry/counters/blocks.py telemetry/reports/series.py
    """,
    "encoded messages and what they consist of": """
        envoy/cors.py envoy/encode.py envoy/external_auth.py envoy/http_connections.py envoy/sessions.py envoy/tap.py model/hash_slots.py plane/metrics.py telemetry/prometheus/text.py
        xds/messages.py xds/versions.py
    """,
    "documents and classes that a process makes once": """
        cli/open_values.py envoy/descriptors.py kubernetes/credentials.py resources/further/kinds.py resources/schema/catalog.py
        resources/schema/declared.py resources/schema/defaults.py resources/schema/published.py
        standalone/apiserver/openapi.py standalone/apiserver/protobuf.py telemetry/reports/otlp_messages.py
    """,
    "versions of an object during one write": "merge/managed_fields.py",
    "the peers of an identity during one comparison": "plan/access.py",
}
"""The modules with a cache of functools, by what it has; all other modules use `headgate.memo`."""


def has_cache(source: str) -> bool:
    """Return whether a module uses a cache of functools."""
    if "functools" not in source:  # parsing all modules would take seconds
        return False
    nodes = list(ast.walk(ast.parse(source)))
    imported = {
        alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if node.module == "functools"
    }
    used = {node.attr for node in nodes if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "functools"}
    return not {"cache", "lru_cache"}.isdisjoint(imported | used)


def test_each_cache_of_functools_has_a_reason() -> None:
    source = Path("src/headgate")
    modules = {path.relative_to(source).as_posix() for path in source.rglob("*.py") if has_cache(path.read_text())}
    assert modules == {module for names in CACHES.values() for module in names.split()}
