"""The state of the control plane in Secrets of a real API server."""

import asyncio
import itertools
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from tests.cluster.api_server import KubeApiServer

from headgate.errors import Unavailable
from headgate.kubernetes.client import Client
from headgate.kubernetes.names import NAMESPACE
from headgate.kubernetes.state_secrets import CHUNK_BYTES, StateSecrets
from headgate.latest import Latest

_names = (f"state{number}" for number in itertools.count())


@pytest_asyncio.fixture
async def client(cluster: KubeApiServer) -> AsyncIterator[Client]:
    async with cluster.client() as client:
        yield client


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return next(_names)


def secrets(client: Client) -> StateSecrets:
    """Return the storage of a replica that is active."""
    return StateSecrets(client, Latest(value=True))


async def test_a_new_replica_loads_what_the_last_one_saved(client: Client, name: str) -> None:
    """The first state fits in one Secret, the second and the third need four."""
    assert await secrets(client).load(name) is None
    for state in (b"", b"counts", os.urandom(3 * CHUNK_BYTES), os.urandom(3 * CHUNK_BYTES)):
        replica = secrets(client)
        await replica.load(name)
        await replica.save(name, state)
        assert await secrets(client).load(name) == state


async def test_an_interrupted_save_leaves_the_old_state(client: Client, name: str) -> None:
    """The replica stops before it writes the first Secret, which names the series of the new state."""
    replica, old = secrets(client), os.urandom(2 * CHUNK_BYTES)
    await replica.save(name, old)
    interrupted = StateSecrets(Interrupted(client), Latest(value=True))  # type: ignore[arg-type]
    await interrupted.load(name)
    with pytest.raises(asyncio.CancelledError):
        await interrupted.save(name, os.urandom(2 * CHUNK_BYTES))
    assert await secrets(client).load(name) == old


class Interrupted:
    """A client whose process stops when it replaces the first Secret of a state."""

    def __init__(self, client: Client) -> None:
        self.get, self.post = client.get, client.post
        self._put = client.put

    async def put(self, path: str, obj: dict[str, object]) -> object:
        """Replace an object."""
        if "-a-" in path or "-b-" in path:
            return await self._put(path, obj)
        raise asyncio.CancelledError


async def test_a_replica_that_is_not_active_saves_nothing(client: Client, name: str) -> None:
    await secrets(client).save(name, b"new")
    with pytest.raises(Unavailable, match="not active"):
        await StateSecrets(client, Latest(value=False)).save(name, b"old")
    assert await secrets(client).load(name) == b"new"


async def test_a_damaged_state_is_reported(client: Client, name: str) -> None:
    await secrets(client).save(name, b"counts")
    path = f"/api/v1/namespaces/{NAMESPACE}/secrets/headgate-state-{name}"
    await client.put(path, {**await client.get(path), "data": {"state": "AAAA", "series": "YQ==", "chunks": "MQ=="}})
    with pytest.raises(Unavailable, match="damaged"):
        await secrets(client).load(name)
