"""What differs by kind stands in the room of the kind: no other module has a table that is keyed by kinds, or a list of kinds."""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from headgate.kinds import NAMES
from headgate.resources import registry
from headgate.resources.kind import Kind
from headgate.resources.registry import KINDS

SOURCE = Path("src/headgate")
KNOWN = {names.kind for names in NAMES}
VALUES = {kind.shape.__name__ for kind in KINDS if kind.shape} | {
    name for name, value in vars(registry).items() if isinstance(value, Kind)
}
"""The names of types and of constants for kinds."""
ABOVE = {
    "admission/immutable_fields.py": "what no update of a workload changes, which the embedded API needs",
    "admission/workloads.py": "the defaults of the embedded API, which need its limits",
    "cli/check.py": "what of an object depends on the files of other objects",
    "cli/restart_plan.py": "how the pods of each kind are replaced, which only the command needs",
    "cli/senders.py": "the name of a sidecar by the kind of the sender, which only the command needs",
    "cli/wait.py": "when the status of each kind of workload is reached, which only commands need",
    "compiler/explain_request.py": "the pods of each kind of sender",
    "compiler/gateway_api/backend_shares.py": "what a proxy answers by protocol",
    "compiler/gateway_api/server_tls.py": "the kinds that can have CA certificates",
    "envoy/descriptors.py": "messages of Envoy that have the names of kinds",
    "kubernetes/refused_pods.py": "how the status of each kind of workload shows missing pods, which only clusters need",
    "manifests/apply.py": "the order in which files are applied",
    "objects/lifecycle.py": "what API servers fill in at a creation",
    "plane/object_graphs.py": "the kinds between a kind and its pods in the cluster",
    "plane/status/writer.py": "the functions that write statuses, which need the plane",
    "resources/further/columns.py": "the columns of kinds that share one room, as nothing but names and columns differs",
    "rollout/controller.py": "the objects of each kind that the controller has read",
    "standalone/pods/environment.py": "the references in an envFrom",
    "standalone/pods/volume_files.py": "the sources of a projected volume",
    "standalone/setup.py": "what the host does at a write",
    "telemetry/answers/object_graph.py": "the objects of a pod by kind, which need the graph",
}
"""Tables of what a room can't have, with the reasons."""
LISTS = {
    "admission/chain.py": "the kinds with a root Service",
    "cli/placeholders.py": "what the first step of a Canary is computed from",
    "cli/wait.py": "the workloads whose statuses say nothing of proxies",
    "compiler/compile.py": "the inputs of stages: the types that a stage reads",
    "compiler/fail_closed.py": "the kinds that restrict access, each with the function that reads its restriction",
    "compiler/gateway_api/backend_tls.py": "the inputs of a stage, and the routes with requests",
    "compiler/gateway_api/backend_traffic.py": "the inputs of a stage",
    "compiler/gateway_api/conflicts.py": "the order of the kinds of routes at one port of a Service",
    "compiler/gateway_api/destinations.py": "the inputs of a stage",
    "compiler/gateway_api/external_backends.py": "the inputs of a stage",
    "compiler/gateway_api/listener_sets.py": "the inputs of a stage",
    "compiler/gateway_api/parents.py": "the inputs of a stage",
    "compiler/gateway_api/routes.py": "the kinds of routes: a type for mypy",
    "compiler/gateway_api/rules.py": "the kinds of routes with rules for requests: a type for mypy",
    "compiler/gateway_api/server_tls.py": "the kinds that can have CA certificates",
    "compiler/invalid_objects.py": "the kinds whose mistakes close pods",
    "kinds.py": "the kinds that an API or a command names",
    "kubernetes/gateways.py": "what a Gateway owns in a cluster, in the order of deletion",
    "kubernetes/install/installer.py": "the installed objects whose deletion takes time",
    "manifests/apply.py": "the kinds that are applied first",
    "objects/gateways.py": "the kinds that decide whether a Gateway is accepted",
    "plan/departures.py": "the kinds whose selectors select pods in the mesh",
    "plan/causes.py": "the kinds whose changes change the pods behind a Service",
    "plan/traffic.py": "the kinds at which requests arrive: a type for mypy",
    "plane/made_objects.py": "the kinds that a Canary owns",
    "plane/status/work_queue.py": "the kinds with numbers of attached routes",
    "plane/plans.py": "the kinds that the role of headgate may only list",
    "plane/write_warnings.py": "the kinds whose writes controllers follow before the warning is computed",
    "plane/traffic_graphs.py": "the kinds that a graph reads: pods, their owners, and what leads to them",
    "resources/gateway_api/features.py": "the core features of the conformance suite, of which some have the names of kinds",
    "resources/meta.py": "the kinds whose names are DNS labels (Kubernetes), below all rooms",
    "resources/pod_owners.py": "the controllers that name pods at random (Kubernetes)",
    "resources/registry.py": "the list of all kinds",
    "resources/request_spec.py": "the kinds that name the sender of a request: a type for mypy",
    "resources/smi/self_reference.py": "the kinds with a root Service: a type for mypy",
    "resources/smi/traffic_target.py": "the kinds that a rule may name (SMI)",
    "standalone/controllers/controllers.py": "what the controllers read besides workloads",
    "standalone/network/resolver.py": "the kinds that DNS answers are made from",
    "standalone/pods/runtime.py": "the kinds that volumes are made from",
    "standalone/pods/troubles.py": "the kinds whose events are about a pod's problems",
    "telemetry/answers/object_graph.py": "names of constants",
}
"""Lists of kinds outside of `headgate.kinds`, each with what its kinds have in common."""


def kind_in(node: ast.expr | None) -> str:
    """Return the kind that an expression is: its name, also after a group or a version, its `Kind`, or its type; else nothing."""
    match node:
        case ast.Tuple(elts=[*_, last]):
            return kind_in(last)
        case ast.Constant(value=str(text)):
            name = text.rpartition("/")[2]
            return name if name in KNOWN else ""
        case ast.Attribute(value=ast.Name(id=room), attr="KIND"):
            return room
        case ast.Attribute(value=value, attr="kind" | "names" | "shape"):
            return kind_in(value)
        case ast.Name(id=name):
            return name if name in VALUES else ""
    return ""


def several(nodes: Iterable[ast.expr | None]) -> bool:
    """Return whether expressions are several kinds."""
    return len({kind_in(node) for node in nodes} - {""}) > 1


def patterns(pattern: ast.pattern) -> Iterator[ast.expr]:
    """Yield the values and the types in a pattern."""
    for node in ast.walk(pattern):
        if isinstance(node, ast.MatchValue):
            yield node.value
        elif isinstance(node, ast.MatchClass):
            yield node.cls


def branches(test: ast.If | ast.IfExp) -> Iterator[ast.expr]:
    """Yield the conditions of an `if` with its `elif`s, or of a conditional expression."""
    yield test.test
    match test.orelse:
        case ast.IfExp() as following:
            yield from branches(following)
        case [ast.If() as following]:
            yield from branches(following)


def compared(test: ast.expr) -> Iterator[ast.expr]:
    """Yield what a condition compares for equality, or as a type, where the result depends on the kind."""
    for node in ast.walk(test):
        match node:
            case ast.Compare(left=left, comparators=[right], ops=[ast.Eq() | ast.NotEq() | ast.Is() | ast.IsNot()]):
                yield from (left, right)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, shape]):
                yield shape


def keys(node: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the keys of a table: a dict, written as such, as pairs or with `dict`, or cases that depend on the kind."""
    match node:
        case ast.Dict():
            yield from node.keys
        case ast.Match():
            for case in node.cases:
                yield from patterns(case.pattern)
        case ast.If() | ast.IfExp():
            for condition in branches(node):
                yield from compared(condition)
        case ast.Call(func=ast.Name(id="dict")):
            yield from (ast.Constant(keyword.arg) for keyword in node.keywords)
        case ast.Call(func=ast.Attribute(attr="fromkeys"), args=[ast.Tuple() | ast.List() | ast.Set() as listed, *_]):
            yield from listed.elts
        case ast.Tuple() | ast.List() | ast.Set():
            pairs = [row for row in node.elts if isinstance(row, ast.Tuple) and len(row.elts) == 2]
            yield from (row.elts[0] for row in pairs if not kind_in(row.elts[1]))


def tables(source: str) -> Iterator[int]:
    """Yield the lines of the tables that are keyed by several kinds."""
    nodes = list(ast.walk(ast.parse(source)))
    inner = {node.orelse[0] for node in nodes if isinstance(node, ast.If) and len(node.orelse) == 1}  # an `elif`
    for node in nodes:
        if node not in inner and several(keys(node)):
            yield node.lineno


def members(node: ast.AST) -> Iterator[ast.expr | None]:
    """Yield the entries of a list: a tuple, set or list, alternatives of types, a condition, arguments, a text with names."""
    match node:
        case ast.Tuple(elts=entries) | ast.List(elts=entries) | ast.Set(elts=entries):
            yield from entries
        case ast.MatchOr():
            yield from patterns(node)
        case ast.BinOp(op=ast.BitOr()):
            yield from (entry for entry in ast.walk(node) if isinstance(entry, ast.Name))
        case ast.BoolOp(values=values):
            for value in values:
                yield from compared(value)
        case ast.Call(args=arguments):
            yield from arguments
        case ast.Constant(value=str(text)) if text.count(" ") < len(KNOWN):
            words = re.split(r"[, |]+", text)
            yield from (ast.Constant(word) for word in words if set(words) <= KNOWN)


def lists(source: str) -> Iterator[int]:
    """Yield the lines of lists of several kinds."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.expr | ast.pattern) and several(members(node)):
            yield node.lineno


def names_kinds(source: str) -> bool:
    """Return whether a text can name several kinds. Parsing all modules would take seconds."""
    return ".KIND" in source or len({*re.findall(r"\w+", source)} & (KNOWN | VALUES)) > 1


def places(search: Callable[[str], Iterator[int]]) -> set[str]:
    """Return the modules in which a search yields a line."""
    texts = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    return {path for path, text in texts.items() if names_kinds(text) and any(search(text))}


def test_no_module_outside_the_rooms_has_a_table_keyed_by_kinds() -> None:
    assert places(tables) == ABOVE.keys()


def test_each_list_of_kinds_has_a_reason() -> None:
    assert places(lists) == LISTS.keys()


@pytest.mark.parametrize(
    "table",
    [
        '{"Pod": 1, "Service": 2}',
        '{("", "Pod"): 1, ("apps", "Deployment"): 2}',
        '{"v1/Pod": 1, "apps/v1/Deployment": 2}',
        '{("specs.smi-spec.io", "v1alpha4", "TCPRoute"): 1, ("", "v1", "Pod"): 2}',
        "{POD: 1, SERVICE: 2}",
        "{POD.kind: 1, service.KIND: 2}",
        "{Service: 1, TrafficSplit: 2}",
        "dict(Pod=1, Service=2)",
        'dict([("Pod", 1), ("Service", 2)])',
        '(("Pod", "a pod"), ("Service", "a service"))',
        'dict.fromkeys((("v1", "Pod"), ("apps/v1", "Deployment")), 1)',
        'match kind:\n    case "Pod":\n        ...\n    case "Service":\n        ...',
        "match resource:\n    case Service():\n        ...\n    case TrafficSplit():\n        ...",
        'if kind == "Pod":\n    ...\nelif kind == "Service":\n    ...',
        "if isinstance(resource, Service):\n    ...\nelif isinstance(resource, TrafficSplit):\n    ...",
        '1 if kind == "Pod" else 2 if key.kind == SERVICE.kind else 3',
    ],
)
def test_a_table_is_seen_in_every_form(table: str) -> None:
    assert list(tables(table)) == [1]


@pytest.mark.parametrize(
    "text",
    [
        '("Pod", "Service")',
        '["Pod", "Service"]',
        'frozenset({"Pod", "Service"})',
        '(("", "Pod"), ("apps", "Deployment"))',
        '(*more, "Pod", "Service")',
        "(POD, SERVICE)",
        "{POD.kind, service.KIND}",
        "(Service, TrafficSplit)",
        'Literal["Pod", "Service"]',
        '"Pod Service".split()',
        '"Pod, Service"',
        "Service | TrafficSplit",
        "isinstance(resource, Service | TrafficSplit)",
        'kind == "Pod" or kind == "Service"',
        "kind != POD.kind and kind != SERVICE.kind",
        "isinstance(resource, Service) or isinstance(resource, TrafficSplit)",
        "part(snapshot, Service, TrafficSplit)",
        'all_of("Pod", "Service")',
    ],
)
def test_a_list_is_seen_in_every_form(text: str) -> None:
    assert set(lists(text)) == {1}


@pytest.mark.parametrize(
    "single",
    [
        '("Pod", "other")',
        "(POD.group, POD.kind)",
        "(kind.group, kind.kind) == (POD.group, POD.kind)",
        'kind == "Pod" or name == "other"',
        "Service | None",
        '"a Pod of a Service"',
        'key("", "Service", namespace)',
    ],
)
def test_one_kind_is_no_list(single: str) -> None:
    assert not list(lists(single))
    assert not list(tables(single))


@pytest.mark.parametrize("alternatives", ['"Pod" | "Service"', "Service() | TrafficSplit()"])
def test_alternatives_of_a_match_are_a_list(alternatives: str) -> None:
    assert list(lists(f"match kind:\n    case {alternatives}:\n        ...")) == [2]


@pytest.mark.parametrize(
    "other", ['{"Pod": 1, "other": 2}', '("Pod", "Service")', '[("", "Pod"), ("apps", "Deployment")]']
)
def test_a_list_of_kinds_is_no_table(other: str) -> None:
    assert not list(tables(other))


def test_each_kind_is_the_only_one_of_its_name_in_its_group() -> None:
    names = [(kind.group, kind.kind) for kind in KINDS]
    assert len(names) == len(set(names))
