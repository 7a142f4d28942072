"""`headgate config`: show the Envoy resources that a proxy of the running mesh was sent, and their state."""

import asyncio
from typing import Annotated

import typer

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import Output, namespace_option
from headgate.cli.completion import proxy_names, types
from headgate.cli.inspect_client import InspectClient, display_name
from headgate.cli.output import Format, answer, make_table, print_table, stdout, usage_error
from headgate.errors import NotFound
from headgate.resources.inspect import TYPES, ProxyConfig

_STYLES = {"Pending": "yellow", "Refused": "bold red"}
_VERSION_LETTERS = 12

ProxyName = Annotated[
    str,
    typer.Argument(
        metavar="PROXY",
        help="The proxy: gateway, the name of a pod, or NAMESPACE/POD.",
        show_default=False,
        autocompletion=proxy_names,
    ),
]
Type = Annotated[
    str,
    typer.Argument(
        metavar=f"[{'|'.join(TYPES)}]",
        help="Only the resources of this type.",
        show_default=False,
        autocompletion=types,
    ),
]
Name = Annotated[
    str, typer.Option("--name", metavar="NAME", help="Only the Envoy resource with this name.", show_default=False)
]
InNamespace = Annotated[
    str,
    namespace_option("Namespace of the pod; by default the namespace of the kubeconfig's context."),
]


@with_api_options
def config(
    proxy: ProxyName,
    type: Type = "",
    *,
    name: Name = "",
    namespace: InNamespace = "",
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show the Envoy resources that a proxy was sent, their state, and the object from which each was compiled.

    -o yaml and -o json also print the content of each resource, in the format of `headgate compile --stage xds`.
    Private keys are redacted.
    """
    if type not in ("", *TYPES):
        raise usage_error(f"{type!r} is not a resource type; write one of {', '.join(TYPES)}", option="TYPE")
    inspect_client = InspectClient.of(api)
    query = {"type": type, "name": name, "content": "" if output is Format.TABLE else "true"}
    proxy_config = asyncio.run(inspect_client.config(proxy, namespace, query))
    if name and not proxy_config.resources:
        raise NotFound(
            f"{display_name(proxy_config.node)} has no resource {name!r}{f' among its {type}' if type else ''}; "
            f"`headgate config {display_name(proxy_config.node)}{f' {type}' if type else ''}` lists the names"
        )
    answer(proxy_config, output, lambda: _show(proxy_config))


def _show(proxy_config: ProxyConfig) -> None:
    console = stdout()
    table = make_table(("TYPE", "NAME", "OBJECT", "VERSION", "STATE"))
    for resource in proxy_config.resources:
        cells = (
            resource.type,
            resource.name,
            str(resource.object or ""),
            resource.version[:_VERSION_LETTERS],
            resource.state,
        )
        table.add_row(*cells, style=_STYLES.get(resource.state))
    print_table(table)
    for resource in proxy_config.resources:
        if resource.message:
            text = f"{display_name(proxy_config.node)} rejected {resource.type} {resource.name}: {resource.message}"
            console.print(text, style=_STYLES["Refused"], soft_wrap=True)
