"""`headgate compile`: compile manifests, and print the mesh, the report or the Envoy resources."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any, Literal

import msgspec
import typer

from headgate.cli.arguments import Manifests
from headgate.cli.check import check_files
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.offline import compile_files
from headgate.cli.output import EXIT_FAILURE, Format, answer, note, usage_error, yaml_text
from headgate.compiler.report import Compiled, GatewayOutcome, ParentStatus, Report, SelectedPods, StatusCondition
from headgate.envoy.encode import Memo, encode
from headgate.envoy.resource_json import content
from headgate.envoy.view import Node, project, sidecar
from headgate.model.identities import Credential, PrivateText, gateway_id
from headgate.model.routing import Mesh, PortRef
from headgate.options import GivenOptions
from headgate.resources.inspect import Severity
from headgate.shared_map import SharedMap

GATEWAY = Node(id="gateway", proxy_address="127.0.0.1", proxy_port=15001, try_socket="/run/headgate/probe.sock")


class Stage(enum.StrEnum):
    """A stage of the compilation, from objects to the configuration of a proxy."""

    MESH = "mesh"
    REPORT = "report"
    XDS = "xds"


StageOption = Annotated[
    Stage,
    typer.Option("--stage", help="mesh: the routing model. report: the findings on objects. xds: Envoy's resources."),
]
NodeOption = Annotated[
    str,
    typer.Option(
        "--node", metavar="ID", help="With --stage xds: the node ID of the proxy: gateway, or sidecar/NAMESPACE/POD."
    ),
]
Dump = Annotated[Literal["yaml", "json"], typer.Option("-o", "--output", help="Output format.")]


@with_mesh_options("mtls", "access")
def compile_(
    paths: Manifests,
    *,
    stage: StageOption = Stage.MESH,
    node: NodeOption = GATEWAY.id,
    given: GivenOptions,
    output: Dump = "yaml",
) -> None:
    """Compile manifests and print a stage of the result: the mesh, the report, or Envoy's configuration.

    Addresses are assigned as on a fresh machine. A workload counts as one pod with its name and a sidecar. Errors are
    printed on stderr, with exit code 1; all valid objects are compiled nevertheless.
    """
    compiled_files = compile_files(paths, given.mesh.settings())
    _print(
        list(documents(compiled_files.compiled, stage, _node(compiled_files.compiled.mesh, node))),
        as_json=output == "json",
    )
    for warning in compiled_files.manifests.warnings:
        note(str(warning))
    errors = [row for row in check_files(compiled_files).findings if row.severity is Severity.ERROR]
    for row in errors:
        note(row.text())
    if errors:
        raise typer.Exit(EXIT_FAILURE)


def _node(mesh: Mesh, node_id: str) -> Node:
    """Return the node with an ID. Raises BadParameter for an unknown ID."""
    nodes = {GATEWAY.id: GATEWAY} | {node.id: node for node in map(sidecar, mesh.workloads)}
    if node_id not in nodes:
        raise usage_error(f"there is no proxy {node_id!r}; write one of: {', '.join(nodes)}", option="--node")
    return nodes[node_id]


def documents(compiled: Compiled, stage: Stage, node: Node = GATEWAY) -> Iterator[Any]:
    """Yield the documents of a stage: one for the mesh or the report, one for each Envoy resource."""
    if stage is Stage.MESH:
        yield _with_short_ports(msgspec.to_builtins(compiled.mesh, str_keys=True, enc_hook=_printable))
    elif stage is Stage.REPORT:
        yield _report(compiled.report)
    else:
        yield from _resources(compiled.mesh, node)


def _with_short_ports(value: Any) -> Any:
    """Return a printed mesh whose Service ports are pairs; only those of UDP have a third item, `udp`."""
    if isinstance(value, dict):
        return {name: _with_short_ports(part) for name, part in value.items()}
    if not isinstance(value, list | tuple):
        return value
    if len(value) == len(PortRef._fields) and isinstance(value[-1], bool):
        return [*value[:-1], *(["udp"] if value[-1] else [])]
    return [_with_short_ports(part) for part in value]


def _report(report: Report) -> Mapping[str, Any]:
    attached = {
        "parents": [_parent(parent) for parent in report.parents],
        "gateways": [_gateway(gateway) for gateway in report.gateways],
        "selected": [_selected(selected) for selected in report.selected],
    }
    return {
        "findings": [
            {
                "about": str(finding.about),
                "severity": finding.reason.severity.value,
                "reason": finding.reason.value,
                "field": finding.field,
                "message": finding.message,
                "related": [str(key) for key in finding.related],
            }
            for finding in report.findings
        ],
        "outcomes": [
            {
                "about": str(outcome.about),
                "port": str(outcome.ref),
                "shares": msgspec.to_builtins(outcome.shares, enc_hook=str),
                **({"root": str(outcome.root)} if outcome.root else {}),
                **({"failed": str(outcome.failed)} if outcome.failed else {}),
            }
            for outcome in report.outcomes
        ],
        **{name: entries for name, entries in attached.items() if entries},
    }


def _parent(status: ParentStatus) -> Mapping[str, Any]:
    fields = {"about": str(status.about), "parent": str(status.parent), "conditions": _conditions(status.conditions)}
    ports = [*map(str, status.ports), *status.gateway_ports]
    return fields | {"ports": ports} if ports else fields


def _gateway(outcome: GatewayOutcome) -> Mapping[str, Any]:
    return {
        "about": str(outcome.about),
        "ports": list(outcome.ports),
        **({"udpPorts": list(outcome.udp_ports)} if outcome.udp_ports else {}),
        **({"listenerSets": outcome.sets} if outcome.sets else {}),
        "conditions": _conditions(outcome.conditions),
        "listeners": [
            {
                "name": listener.name,
                "attached": listener.attached,
                "kinds": [kind for _, kind in listener.kinds],
                "conditions": _conditions(listener.conditions),
            }
            for listener in outcome.listeners
        ],
    }


def _selected(selected: SelectedPods) -> Mapping[str, Any]:
    fields = {"about": str(selected.about), "workloads": list(selected.workloads)}
    return fields | ({"without_sidecar": list(selected.without_sidecar)} if selected.without_sidecar else {})


def _conditions(conditions: Iterable[StatusCondition]) -> list[str]:
    return [f"{condition.type}={condition.status}, {condition.reason}: {condition.message}" for condition in conditions]


def _resources(mesh: Mesh, node: Node) -> Iterator[Mapping[str, Any]]:
    for type_url, resources in encode(project(mesh, node, _placeholder(mesh, node)), Memo()).items():
        for name, encoded in resources.items():
            metadata = {"type": type_url.rpartition(".")[2], "name": name, "version": encoded.digest}
            yield {**metadata, "resource": content(type_url, encoded)}


def _placeholder(mesh: Mesh, node: Node) -> Credential:
    """Return a placeholder for the certificate of a proxy; an offline compilation issues no certificates."""
    identities = (workload.identity for workload in mesh.workloads if workload.name == node.workload)
    identity = next(identities, gateway_id(mesh.trust_domain))
    return Credential(
        chain=f"the certificate of {identity}\n", key=PrivateText(), roots=f"the authorities of {mesh.trust_domain}\n"
    )


def _print(resources: list[Any], *, as_json: bool) -> None:
    if as_json:
        answer(resources if len(resources) != 1 else resources[0], Format.JSON)
    else:
        typer.echo("---\n".join(map(yaml_text, resources)), nl=False)


def _printable(value: object) -> object:
    """Return the values of a mapping in the order of their keys, or a private key as its text: `[redacted]`."""
    return [content for _, content in sorted(value.items())] if isinstance(value, SharedMap) else str(value)
