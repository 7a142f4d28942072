"""`headgate explain`: where a request would go, and why; from files, or from what a running headgate has."""

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, NamedTuple
from urllib.parse import urlsplit

import typer
from rich.table import Table

from headgate.cli.arguments import Kubeconfig, Namespace, Output, State, existing
from headgate.cli.client import Client
from headgate.cli.kubeconfig import find_access
from headgate.cli.offline import completed
from headgate.cli.output import NO, Format, print_document, stdout, usage_error
from headgate.cli.trial import read_headers, read_method
from headgate.compiler.compile import compile_mesh
from headgate.compiler.explain import Backend, Explanation, Tried, explain
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import Snapshot
from headgate.control.feed import COMPILED, snapshot_of
from headgate.errors import HeadgateError, NotFound
from headgate.model.evaluate import Request
from headgate.model.routing import GatewayPort
from headgate.resources.meta import Key, Object
from headgate.resources.registry import KINDS, key_of
from headgate.settings import Settings
from headgate.store.files import read

PORTS = {"http": 80, "https": 443}
ERROR_STATUSES = 400
_POD = next(kind for kind in KINDS if kind.kind == "Pod")

Method = Annotated[str, typer.Argument(metavar="METHOD", help="GET, POST, ...", show_default=False)]
Url = Annotated[
    str, typer.Argument(metavar="URL", help="What to call: http://website:8080/path?query.", show_default=False)
]
Headers = Annotated[list[str] | None, typer.Option("-H", "--header", metavar="'NAME: VALUE'", help="A header to send.")]
Files = Annotated[
    list[Path] | None,
    typer.Option("-f", "--filename", metavar="DIR|FILE", help="Explain these manifests; else what a headgate runs."),
]
Via = Annotated[str, typer.Option("--via", metavar="gateway/NAME", help="Enter through a Gateway.", show_default=False)]
From = Annotated[
    str, typer.Option("--from", metavar="pod/NAME", help="The client: a pod, whose proxy decides.", show_default=False)
]


class World(NamedTuple):
    """Objects, and what they compile to."""

    objects: frozenset[Key]
    snapshot: Snapshot
    compiled: Compiled


def explain_(
    method: Method,
    url: Url,
    *,
    header: Headers = None,
    via: Via = "",
    from_: From = "",
    namespace: Namespace = "default",
    filename: Files = None,
    output: Output = Format.TABLE,
    state: State = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Say where a request would go, and why not elsewhere. Nothing is sent.

    Shares are exact. With -f the files decide, and a Service with a selector counts as served by one pod. Exit code 1
    means that the proxy itself would answer with an error.
    """
    parts = urlsplit(url if "://" in url else f"http://{url}")
    if parts.scheme not in PORTS or not parts.hostname:
        raise usage_error(f"{url!r} is not a URL to call; write for example http://website:8080/", option="URL")
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = read_headers(header or ())
    request = Request(authority=parts.netloc, method=read_method(method), target=target, headers=headers)
    world = offline(filename) if filename else asyncio.run(_live(Client(find_access(kubeconfig, state, os.environ))))
    _check_client(world, from_, namespace)
    port = parts.port or PORTS[parts.scheme]
    where = _gateway(world, via, namespace, port=port) if via else parts.netloc
    found = explain(world.compiled, world.snapshot, where, request=request, url=parts.geturl())
    if output is Format.TABLE:
        show(found)
    else:
        print_document(found, output)
    if all(backend.status >= ERROR_STATUSES for backend in found.backends):
        raise typer.Exit(NO)


def offline(paths: list[Path]) -> World:
    """Compile files. Raises HeadgateError that names the first mistake which keeps a file from being read."""
    manifests = read(existing(paths))
    if not manifests.objects:
        first = "; ".join(f"{item.file}:{item.line}: {item.message}" for item in manifests.problems[:1])
        raise HeadgateError(first or f"there are no objects in {', '.join(map(str, paths))}")
    return _world(completed({manifest.key: manifest.object for manifest in manifests.objects}))


async def _live(client: Client) -> World:
    found: dict[Key, Object] = {}
    for kind in (*COMPILED, _POD):
        try:
            items, _ = await client.items(kind)
        except NotFound:  # another cluster need not have every kind
            continue
        found |= {key_of(obj): obj for obj in items}
    return _world(found)


def _world(objects: Mapping[Key, Object]) -> World:
    snapshot = snapshot_of(objects)
    return World(frozenset(objects), snapshot, compile_mesh(snapshot, Settings()))


def _check_client(world: World, text: str, namespace: str) -> None:
    """Find the client. On one machine one proxy serves every pod, so it decides nothing but that it must exist."""
    kind, _, name = text.partition("/")
    if text and (kind.lower() not in {"pod", "pods", "po"} or not name):
        raise usage_error(f"{text!r} is no client; write pod/NAME", option="--from")
    if text and _POD.key(namespace, name) not in world.objects:
        raise NotFound(f"there is no Pod {namespace}/{name}; name its namespace with -n")


def _gateway(world: World, text: str, namespace: str, *, port: int) -> GatewayPort:
    kind, _, name = text.partition("/")
    if kind.lower() not in {"gateway", "gateways", "gtw"} or not name:
        raise usage_error(f"{text!r} is no Gateway; write gateway/NAME", option="--via")
    served = [item for item in world.compiled.mesh.gateways if item.gateway == f"{namespace}/{name}"]
    for item in served:
        if item.port == port:
            return item
    if served:
        ports = ", ".join(str(item.port) for item in served)
        raise NotFound(f"the Gateway {namespace}/{name} serves nothing on port {port}; it serves {ports}")
    raise NotFound(f"no Gateway {namespace}/{name} serves anything; `headgate check` says why, -n names its namespace")


def show(found: Explanation) -> None:
    """Print an explanation for people; nothing in it is cut."""
    console = stdout()
    console.print(f"{found.method} {found.url}\n", style="bold", soft_wrap=True)
    for title, text in _facts(found):
        console.print(f"{title:<11}{text}", soft_wrap=True)
    console.print()
    console.print(backends_table(found.backends))
    for title, lines in _lists(found):
        console.print(f"\n{title}", style="bold")
        for line in lines:
            console.print(f"  {line}", soft_wrap=True)


def _facts(found: Explanation) -> Iterator[tuple[str, str]]:
    """Yield what there is one of."""
    if found.gateway:
        yield "Gateway", f"{found.gateway}, port {found.port}" + (f", host {found.host}" if found.host else "")
    elif found.service:
        yield "Service", f"{found.service}, port {found.port}"
    else:
        yield "Service", "none answers to this host; write name.namespace:port, or for the namespace default the name"
        return
    yield "Protocol", f"{found.protocol}, {found.protocol_reason}"
    yield "Route", f"{found.object}{_named(found.route)}" if found.object else "none matches: the proxy answers 404"
    if found.sticky:
        yield "Users", found.sticky
    if found.user:
        yield "This user", found.user


def _named(route: str) -> str:
    return f", {'match' if '/' in route else 'rule'} {route}" if route else ""


def _lists(found: Explanation) -> Iterator[tuple[str, list[str]]]:
    """Yield what there may be many of."""
    edits = [*found.filters, *(f"{item.service}: {text}" for item in found.backends for text in item.filters)]
    mirrors = [f"{item.service}:{item.port} gets copies of {item.percent:g} % ({item.share})" for item in found.mirrors]
    remarks = [f"{item.reason} {item.object}: {item.field}: {item.message}" for item in found.remarks]
    sections = (
        ("Filters", edits),
        ("Mirrors", mirrors),
        ("When nothing is left", found.nothing_left.split("; ") if found.nothing_left else []),
        ("Routes, in their order", [line for item in found.candidates for line in _candidate(item)]),
        ("Remarks", remarks),
    )
    yield from (section for section in sections if section[1])


def _candidate(item: Tried) -> Iterator[str]:
    yield f"{item.result:<10} {item.object}{_named(item.name)}"
    if item.condition:
        yield f"{'':<10} {item.condition}"


def backends_table(backends: Iterable[Backend]) -> Table:
    """Return who answers which share."""
    found = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("BACKEND", "SHARE", "PERCENT", "READY ENDPOINTS"):
        found.add_column(title, justify="left" if title == "BACKEND" else "right", overflow="fold")
    for item in backends:
        style = "red" if item.status >= ERROR_STATUSES else None
        found.add_row(_answers(item), item.share, f"{item.percent:g} %", _endpoints(item), style=style)
    return found


def _answers(item: Backend) -> str:
    if not item.status:
        return f"{item.service}:{item.port}"
    reason = f", {item.reason}" if item.reason else ""
    of = f" for {item.service}" if item.service else ""
    return f"the proxy: {item.status}{of}{reason}"


def _endpoints(item: Backend) -> str:
    return str(item.endpoints) if item.service else ""
