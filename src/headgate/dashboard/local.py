"""The dashboard of a state directory: its URL stays the same for all starts while its port is free, so a bookmark opens it."""

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple
from urllib.parse import parse_qs, urlsplit

from headgate.atomic_file import write_private
from headgate.dashboard.assets import read_assets
from headgate.dashboard.server import Dashboard, PageSettings
from headgate.dashboard.upstream import Upstream
from headgate.kubernetes.connection import CredentialSource
from headgate.standalone.listeners import LOOPBACK, address_of, listen, split_address

FILE_NAME = "dashboard"
"""The file in a state directory with the URL of its dashboard, which contains the token (mode 0600)."""
_TOKEN_BYTES = 32


class Address(NamedTuple):
    """The address of a dashboard, `host:port`, and its token; both empty before the first start."""

    host_port: str = ""
    token: str = ""

    def url(self) -> str:
        """Return the URL that a user opens."""
        return f"http://{self.host_port}/?token={self.token}"


def read_url(state: Path) -> str:
    """Return the URL of the dashboard in a state directory, also that of its last start; empty before the first start."""
    with contextlib.suppress(FileNotFoundError):
        return (state / FILE_NAME).read_text().strip()
    return ""


def parse_url(url: str) -> Address:
    """Return the address and the token in a URL; an empty address if it has not both."""
    parts = urlsplit(url)
    token = parse_qs(parts.query).get("token", [""])[0]
    return Address(parts.netloc, token) if parts.port and len(token) >= _TOKEN_BYTES else Address()


@contextlib.asynccontextmanager
async def serving(
    credentials: CredentialSource, settings: PageSettings, *, port: int, last: Address
) -> AsyncIterator[Address]:
    """Serve a dashboard and yield its address. With port 0, it has that of the `last` start, or any free port.

    On another port it has a new token: a program that has the last port gets the last token from users who open the last URL.
    Raises HeadgateError if the port is in use.
    """
    upstream = Upstream(credentials)
    with listen(f"{LOOPBACK}:{port}", last.host_port) as listener:
        host_port = address_of(listener)
        token = last.token if host_port == last.host_port else secrets.token_urlsafe(_TOKEN_BYTES)
        address = Address(host_port, token)
        own_port = split_address(host_port)[1]
        dashboard = Dashboard(upstream, read_assets(), settings, token=token, port=own_port)
        task = asyncio.create_task(dashboard.serve(listener), name="dashboard")
        try:
            yield address
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await upstream.aclose()


@contextlib.asynccontextmanager
async def serving_state(state: Path, credentials: CredentialSource) -> AsyncIterator[str]:
    """Serve the dashboard of a state directory and yield its URL, which the directory then has for `headgate dashboard`."""
    settings, last = PageSettings("", credentials.namespace), parse_url(read_url(state))
    async with serving(credentials, settings, port=0, last=last) as address:
        write_private(state / FILE_NAME, (address.url() + "\n").encode())
        yield address.url()
