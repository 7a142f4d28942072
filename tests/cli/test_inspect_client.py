"""The errors of the inspect API, for a headgate that does not answer."""

from typing import Any

import pytest

from headgate.cli.inspect_client import InspectClient
from headgate.errors import Unavailable


class Server:
    """An API server, or a network, that answers the paths of `served` only."""

    def __init__(self, *served: str) -> None:
        self._served = served

    async def get(self, path: str, **_query: Any) -> dict[str, Any]:
        if path not in self._served:
            raise Unavailable("the API answers with 503 (service unavailable)")
        return {}


async def test_a_command_says_that_no_replica_serves_the_api_of_headgate() -> None:
    """As in the first seconds after `helm install --wait`, or while all replicas are down."""
    with pytest.raises(Unavailable, match=r"503 .*: no replica of headgate serves inspect\.headgate\.dev now"):
        await InspectClient(Server("/apis")).proxies()  # type: ignore[arg-type]


async def test_an_api_server_that_does_not_answer_is_not_blamed_on_headgate() -> None:
    with pytest.raises(Unavailable, match=r"503 \(service unavailable\)$"):
        await InspectClient(Server()).status()  # type: ignore[arg-type]
