"""`headgate render`: the routing model as the configuration of nginx or HAProxy."""

import asyncio
import enum
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.atomic_file import write_private
from headgate.cli.arguments import Kubeconfig, State
from headgate.cli.mesh_source import current_mesh
from headgate.cli.offline import compile_files
from headgate.cli.output import EXIT_FAILURE, note, usage_error
from headgate.formatting import pluralize
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.identities import PrivateText
from headgate.render.nginx import configuration as nginx
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Chosen, Selection, select
from headgate.settings import Settings


class Target(enum.StrEnum):
    """A proxy for which headgate renders configurations."""

    NGINX = "nginx"


RENDERERS: Mapping[Target, Callable[[Selection], Rendered]] = {Target.NGINX: nginx.render}

TargetArgument = Annotated[Target, typer.Argument(metavar="PROXY", help="nginx.", show_default=False)]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar="DIR|FILE",
        help="Manifests; by default the objects of the running headgate.",
        show_default=False,
    ),
]
Services = Annotated[
    list[str] | None,
    typer.Option("--service", metavar="NAME[.NAMESPACE]", help="A Service to render.", show_default=False),
]
Gateways = Annotated[
    list[str] | None,
    typer.Option("--gateway", metavar="NAME[.NAMESPACE]", help="A Gateway to render.", show_default=False),
]
Addresses = Annotated[
    Literal["addresses", "dns"],
    typer.Option("--endpoints", help="Backends by the addresses of pods, or by the DNS names of Services."),
]
Directory = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Write files to DIR.", show_default=False)
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 1 when something is not carried over.")]


def render(
    target: TargetArgument,
    *,
    filename: Files = None,
    service: Services = None,
    gateway: Gateways = None,
    endpoints: Addresses = "addresses",
    output: Directory = None,
    strict: Strict = False,
    state: State = None,
    kubeconfig: Kubeconfig = None,
) -> None:
    """Print the routing as a configuration of another proxy, and on stderr what can't be carried over, and why.

    Without --service and --gateway, everything is rendered.
    """
    mesh = (
        compile_files(filename).compiled.mesh if filename else asyncio.run(current_mesh(kubeconfig, state, Settings()))
    )
    chosen = Chosen(
        _found(service or (), [item.service for item in mesh.frontends], "--service"),
        _found(gateway or (), [item.gateway for item in mesh.gateways], "--gateway"),
        dns=endpoints == "dns",
    )
    rendered = RENDERERS[target](select(mesh, chosen))
    for omission in rendered.omissions:
        note(str(omission))
    if output is None:
        sys.stdout.write(rendered.files[rendered.main])
    else:
        _write(rendered, output)
    if rendered.omissions:
        note(f"{pluralize(len(rendered.omissions), 'omission')}")
        if strict:
            raise typer.Exit(EXIT_FAILURE)


def _write(rendered: Rendered, directory: Path) -> None:
    """Write all files, each atomically; the main file comes last, because it names the rest."""
    for name, text in sorted(rendered.files.items(), key=lambda item: item[0] == rendered.main):
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_private(path, (text.reveal() if isinstance(text, PrivateText) else text).encode())


def _found(written: Sequence[str], known: Sequence[str], option: str) -> list[str]:
    """Return names as `namespace/name`. Raises BadParameter for an unknown name."""
    found = []
    for text in written:
        name, _, namespace = text.partition(".")
        found.append(f"{namespace or DEFAULT_NAMESPACE}/{name}")
        if found[-1] not in known:
            raise usage_error(
                f"{found[-1]} has no routes; write one of: {', '.join(sorted(set(known)))}", option=option
            )
    return found
