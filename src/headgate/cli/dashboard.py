"""`headgate dashboard`: open the page about the running mesh in the browser."""

import asyncio
import threading
import webbrowser
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from headgate.cli.arguments import ApiOptions, with_api_options
from headgate.cli.common_options import namespace_option
from headgate.cli.connection import find_api, find_runtime_info
from headgate.cli.output import note, stdout
from headgate.cli.until_signal import until_signal
from headgate.dashboard.local import Address, read_url, serving
from headgate.dashboard.server import PageSettings
from headgate.errors import HeadgateError
from headgate.kubernetes.client import Client

Port = Annotated[
    int,
    typer.Option(
        "--port",
        metavar="PORT",
        min=0,
        max=65535,
        help="Port on this machine; by default any free port.",
        show_default=False,
    ),
]
NoBrowser = Annotated[bool, typer.Option("--no-browser", help="Only print the URL.")]
InNamespace = Annotated[
    str, namespace_option("The namespace that the page shows first; all by default. The page can show each of them.")
]


@with_api_options
def dashboard(*, namespace: InNamespace = "", port: Port = 0, no_browser: NoBrowser = False, api: ApiOptions) -> None:
    """Open a page about the running mesh: what traffic does, findings, and the state of proxies.

    The page reads the API with the permissions of the kubeconfig's user. It listens on loopback only, and its URL contains a
    token: keep the URL private. A headgate on this machine already serves the page. For a cluster, this command serves it
    until Ctrl-C.
    """
    client = find_api(api)
    if not port and (url := asyncio.run(_running_url(client, api.state))):
        page = _print_url(url, namespace)
        if not no_browser:
            _open_browser(page)
        return
    asyncio.run(until_signal(_serve(client, namespace, port, no_browser=no_browser), plain=HeadgateError))


async def _running_url(client: Client, state: Path | None) -> str:
    """Return the URL of the dashboard that the headgate of a state directory serves, if it is the selected API; else an empty text."""
    info = find_runtime_info(state)
    return read_url(Path(info.kubeconfig).parent) if info and info.api == await client.server() else ""


async def _serve(client: Client, namespace: str, port: int, *, no_browser: bool) -> None:
    """Serve the page until canceled."""
    context: str = getattr(client.credentials, "context", "")
    async with serving(
        client.credentials, PageSettings(context, client.namespace), port=port, last=Address()
    ) as address:
        page = _print_url(address.url(), namespace)
        note("Press Ctrl-C to stop.")
        if not no_browser:
            # A browser may run in the foreground, so it must not block the server, nor the end of the command: asyncio
            # waits for its own threads at the end, and for no daemon thread.
            threading.Thread(target=_open_browser, args=(page,), daemon=True).start()
        await asyncio.Event().wait()


def _print_url(url: str, namespace: str) -> str:
    """Print and return the URL that shows a namespace first."""
    page = f"{url}#/?namespace={quote(namespace, safe='')}" if namespace else url
    stdout().print(page, soft_wrap=True)
    return page


def _open_browser(page: str) -> None:
    if not webbrowser.open(page):
        note("No browser opened; open the URL yourself.")
