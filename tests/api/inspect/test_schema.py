"""Clients learn every value of a closed set from the schema: of headgate's own kinds, and of the inspect API."""

import re
from collections.abc import Iterator, Mapping

from headgate.api.inspect.schema import definitions
from headgate.kinds import ACCESS, MESH, SPECS, SPLIT
from headgate.model.routing import Protocol
from headgate.resources.core.pod_metadata import SIDECARS
from headgate.resources.registry import KINDS
from headgate.resources.schema.builders import Schema

SCHEMAS: Mapping[str, Schema] = {name.rpartition(".")[2]: schema for name, schema in definitions().items()} | {
    kind.kind: kind.schema(kind.group, kind.versions[0])
    for kind in KINDS
    if kind.group in (ACCESS, MESH, SPECS, SPLIT) and kind.schema
}
OPEN = frozenset(
    [
        "address",
        "admin",
        "backends",
        "baseline",
        "by",
        "caller",
        "callers",
        "canary",
        "client",
        "command",
        "conflicts",
        "consumer",
        "damaged",
        "destination",
        "domain",
        "example",
        "exceptCallers",
        "field",
        "file",
        "gateway",
        "group",
        "headers",
        "host",
        "id",
        "identity",
        "key",
        "localhostPort",
        "location",
        "match",
        "matchLabels",
        "matches",
        "metadata",
        "method",
        "missingKinds",
        "name",
        "namespace",
        "node",
        "onCreation",
        "path",
        "pathRegex",
        "percent",
        "plaintextCaller",
        "pods",
        "probe",
        "promote",
        "request",
        "resource",
        "rollBack",
        "rule",
        "rules",
        "server",
        "serverName",
        "service",
        "revision",
        "serviceAccount",
        "sources",
        "subjectNames",
        "trustDomain",
        "url",
        "value",
        "values",
        "version",
        "weight",
        "workload",
        "workloads",
        "apiVersion",
        "apiGroup",
        "message",
        "messages",
    ]
)
"""Fields whose texts are names, addresses, sentences, numbers, or words of users. A field with a closed set of values has an enum."""
OPEN_PATHS = (
    r"(.*\.(object|caller|split|deleted\[\]|ignored\[\]|keptAudits\[\]|owner|nodes\[\]))?\.kind",  # kinds of any API
    r".*\.reason",  # versions of headgate add reasons, as those of Kubernetes do
    r"\.status\.conditions\[\]\.type",
    r"\.status\.mirrors\[\]\.verdict",  # the reason of a condition
)
LOWER = (
    ("WorkloadSidecars", r"\.pods\[\]\.sidecar", "the value of an annotation"),
    ("PodSidecar", r"\.sidecar", "the value of an annotation"),
    ("Plan", r"\.status\.differences\.gateways\[\]\.(before|after)", "the value of an annotation"),
    ("Explanation", r"\.status\.protocol", "the value of appProtocol"),
    ("MeshStatus", r"\.status\.settings\.(mtls|access|outbound)", "the value of an option"),
    ("Proxy", r"\.status\..*\.type", "a part of paths"),
    ("ProxyConfig", r"\.resources\[\]\.type", "a part of paths"),
    ("RevisionRestoration", r"\.steps\[\]\.verb", "a verb of Kubernetes"),
)
"""Enums whose values another API or an option has in small letters."""


def texts(schema: Schema, path: str = "") -> Iterator[tuple[str, Schema]]:
    """Yield the path and the schema of each text."""
    if schema.get("type") == "string":
        yield path, schema
    for name, field in schema.get("properties", {}).items():
        yield from texts(field, f"{path}.{name}")
    for name, inner in (("[]", schema.get("items")), ("{}", schema.get("additionalProperties"))):
        if isinstance(inner, Mapping):
            yield from texts(inner, f"{path}{name}")


ALL = [(name, path, schema) for name, whole in SCHEMAS.items() for path, schema in texts(whole)]


def test_a_text_has_an_enum_a_pattern_or_a_format_unless_its_values_are_open() -> None:
    closed = [
        f"{name}{path}"
        for name, path, schema in ALL
        if not schema.keys() & {"enum", "pattern", "format"}
        and path.rpartition(".")[2].removesuffix("[]").removesuffix("{}") not in OPEN
        and not re.search("Messages?$|Service$|Version$|Share$", path.rpartition(".")[2].removesuffix("[]"))
        and not any(re.fullmatch(pattern, path) for pattern in OPEN_PATHS)
    ]
    assert closed == []


def test_values_of_an_enum_are_in_camel_case_unless_they_are_those_of_another_api() -> None:
    small = {
        (name, path)
        for name, path, schema in ALL
        if not all(re.fullmatch("[A-Z][A-Za-z]*|[*]", value) for value in schema.get("enum", ()))
    }
    assert {
        pair for pair in small if not any(name == pair[0] and re.fullmatch(path, pair[1]) for name, path, _ in LOWER)
    } == set()
    assert all(any(name == pair[0] and re.fullmatch(path, pair[1]) for pair in small) for name, path, _ in LOWER)


def test_enums_of_words_from_elsewhere_have_all_of_them() -> None:
    (protocol,) = [schema for name, path, schema in ALL if (name, path) == ("Explanation", ".status.protocol")]
    assert set(protocol["enum"]) == {"", *(known.value for known in Protocol)}
    (mode,) = [schema for name, path, schema in ALL if (name, path) == ("PodSidecar", ".sidecar")]
    assert set(mode["enum"]) == {"", *SIDECARS}


def test_the_names_of_times_end_in_time() -> None:
    times = [path.rpartition(".")[2] for _, path, schema in ALL if schema.get("format") == "date-time"]
    assert times
    assert all(name.endswith("Time") for name in times)
