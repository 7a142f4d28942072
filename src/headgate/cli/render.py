"""`headgate render`: the routing model as the configuration of nginx or HAProxy."""

import asyncio
import enum
import ipaddress
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer

from headgate.cli.arguments import PATHS, ApiOptions, with_api_options
from headgate.cli.common_options import Namespace
from headgate.cli.connection import find_api
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.mesh_source import active_settings, current_mesh, followed_objects
from headgate.cli.offline import compile_files, reject_mistakes
from headgate.cli.output import EXIT_FAILURE, note, usage_error
from headgate.cli.rendered_files import ReloadCommand, keep_current
from headgate.compiler.compile import Compiler
from headgate.compiler.snapshot import Snapshot
from headgate.formatting import pluralize
from headgate.kubernetes.client import Client
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.model.routing import Mesh
from headgate.options import GivenOptions
from headgate.proxy_programs.files import ProxyProgram, write_files
from headgate.proxy_programs.haproxy import Haproxy
from headgate.proxy_programs.nginx import Nginx, stream_module
from headgate.proxy_programs.programs import find_program
from headgate.render.haproxy import configuration as haproxy
from headgate.render.nginx import configuration as nginx
from headgate.render.output import Rendered
from headgate.render.proxy_ports import Chosen, Selection, select
from headgate.resources.meta import is_dns_subdomain
from headgate.settings import DEFAULTS, Settings


class RenderedProxy(enum.StrEnum):
    """A proxy for which headgate renders configurations."""

    NGINX = "nginx"
    HAPROXY = "haproxy"


def _nginx(selection: Selection) -> Rendered:
    return nginx.render(selection, stream_module=stream_module(find_program("nginx")))


RENDERERS: Mapping[RenderedProxy, Callable[[Selection], Rendered]] = {
    RenderedProxy.NGINX: _nginx,
    RenderedProxy.HAPROXY: haproxy.render,
}
PROGRAMS: Mapping[RenderedProxy, Callable[[], ProxyProgram]] = {
    RenderedProxy.NGINX: lambda: Nginx(find_program("nginx")),
    RenderedProxy.HAPROXY: lambda: Haproxy(find_program("haproxy")),
}

RenderedProxyArgument = Annotated[
    RenderedProxy, typer.Argument(metavar="PROXY", help="nginx or haproxy.", show_default=False)
]
Files = Annotated[
    list[Path] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar=PATHS,
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
Domain = Annotated[
    str,
    typer.Option(
        "--domain",
        metavar="NAME",
        help="DNS domain of Services for the manifests; the running headgate knows its own.",
    ),
]
Listen = Annotated[
    str, typer.Option("--listen", metavar="ADDRESS", help="The address to listen on; 0.0.0.0 or :: for all addresses.")
]
Directory = Annotated[
    Path | None, typer.Option("--output-dir", metavar="DIR", help="Write files to DIR.", show_default=False)
]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with code 1 when something is not carried over.")]
Watch = Annotated[
    bool,
    typer.Option(
        "-w",
        "--watch",
        help="With --output-dir: write the files again after each change, and reload the proxy gracefully.",
    ),
]
Reload = Annotated[
    str,
    typer.Option(
        "--reload",
        metavar="COMMAND",
        help="With --watch: the command that reloads the proxy, by default the reload of the proxy that runs with DIR.",
        show_default=False,
    ),
]


@with_api_options
@with_mesh_options("mtls", "access")
def render(
    target: RenderedProxyArgument,
    *,
    filename: Files = None,
    service: Services = None,
    gateway: Gateways = None,
    namespace: Namespace = "",
    endpoints: Addresses = "addresses",
    domain: Domain = DEFAULTS.domain,
    given: GivenOptions,
    listen: Listen = "127.0.0.1",
    output_dir: Directory = None,
    strict: Strict = False,
    watch: Watch = False,
    reload: Reload = "",
    api: ApiOptions,
) -> None:
    """Print the routing as a configuration of another proxy, and on stderr what is not carried over, and why.

    Without --service and --gateway, everything is rendered. Private keys are written only to files of DIR.

    With --watch, the command follows the running headgate until it is interrupted. A configuration that the proxy
    rejects changes no file.
    """
    _check_address(listen)
    _check_watch(filename, output_dir, watch=watch, reload=reload, strict=strict)
    settings = given.mesh.settings(domain=domain)
    _check_settings(filename, settings)
    if filename:
        mesh, place = _mesh_of_files(filename, settings), namespace or DEFAULT_NAMESPACE
    else:
        settings = asyncio.run(active_settings(find_api(api)))
        mesh = asyncio.run(current_mesh(client := find_api(api), settings))
        place = namespace or client.namespace
    chosen = Chosen(
        _found(_full(service or (), place), [frontend.service for frontend in mesh.frontends], "--service"),
        _found(_full(gateway or (), place), [frontend.gateway for frontend in mesh.gateways], "--gateway"),
        address=listen,
        dns=endpoints == "dns",
    )
    if watch and output_dir:
        output_dir.mkdir(parents=True, exist_ok=True)
        compiler, program = Compiler(), PROGRAMS[target]()
        asyncio.run(
            _follow(
                find_api(api),
                lambda snapshot: RENDERERS[target](select(compiler.compile(snapshot, settings).mesh, chosen)),
                output_dir,
                ReloadCommand(program, shlex.split(reload)) if reload else program,
            )
        )
    else:
        _write(RENDERERS[target](select(mesh, chosen)), output_dir, strict=strict)


def _write(rendered: Rendered, output: Path | None, *, strict: bool) -> None:
    """Print a configuration or write its files, and print its omissions. Raises Exit if `strict` forbids them."""
    if output is None:
        sys.stdout.write(str(rendered.files[rendered.main]))
    else:
        write_files(rendered, output)
    for omission in rendered.omissions:
        note(str(omission))
    if output is None and len(rendered.files) > 1:
        note(
            f"{pluralize(len(rendered.files) - 1, 'file')} with certificates and keys left out; --output-dir DIR writes them"
        )
    if rendered.omissions:
        note(f"{pluralize(len(rendered.omissions), 'omission')}")
        if strict:
            raise typer.Exit(EXIT_FAILURE)


def _check_watch(
    filename: Sequence[Path] | None, output: Path | None, *, watch: bool, reload: str, strict: bool
) -> None:
    if watch and output is None:
        raise usage_error("needs --output-dir, the directory with the files of the proxy", option="--watch")
    if watch and filename:
        raise usage_error("follows the running headgate; it excludes -f", option="--watch")
    if watch and strict:
        raise usage_error("is about the exit code; it excludes --watch, which does not end", option="--strict")
    if reload and not watch:
        raise usage_error("needs --watch", option="--reload")


def _check_settings(filename: Sequence[Path] | None, settings: Settings) -> None:
    if not is_dns_subdomain(settings.domain):
        raise usage_error(f"{settings.domain!r} is not a DNS domain such as {DEFAULTS.domain}", option="--domain")
    for name in ("domain", "mtls", "access"):
        if not filename and getattr(settings, name) != getattr(DEFAULTS, name):
            raise usage_error("is for manifests (-f); the running headgate has its own settings", option=f"--{name}")


def _mesh_of_files(paths: Sequence[Path], settings: Settings) -> Mesh:
    compiled = compile_files(paths, settings)
    reject_mistakes(compiled.manifests, "configuration")
    return compiled.compiled.mesh


async def _follow(
    client: Client, render: Callable[[Snapshot], Rendered], directory: Path, program: ProxyProgram
) -> None:
    async with followed_objects(client) as snapshots:
        await keep_current(snapshots, render, directory, program)


def _check_address(text: str) -> None:
    """Raise BadParameter for a text that is no IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        raise usage_error(f"{text!r} is not an IP address; write one such as 0.0.0.0", option="--listen") from None


def _full(written: Sequence[str], namespace: str) -> list[str]:
    """Return names, `NAME` or `NAME.NAMESPACE`, as `namespace/name`."""
    parts = [text.partition(".") for text in written]
    return [f"{own or namespace}/{name}" for name, _, own in parts]


def _found(names: list[str], names_in_mesh: Sequence[str], option: str) -> list[str]:
    """Return the names. Raises BadParameter for an unknown name."""
    for name in names:
        if name not in names_in_mesh:
            raise usage_error(
                f"{name} has no routes; write one of: {', '.join(sorted(set(names_in_mesh)))}", option=option
            )
    return names
