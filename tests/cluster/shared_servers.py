"""API servers that the modules of a directory share. Each runs until the last of consecutive tests of its directory."""

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest
from tests.cluster.api_server import KubeApiServer
from tests.cluster.isolation import Leftovers

Shared = tuple[KubeApiServer, Leftovers]
"""An API server, and what it contained before the first test."""


class SharedServers:
    """The API server of each directory that has one now.

    An API server without requests takes 2 to 3 % of a processor, its etcd 0.5 to 1 %, and the process that started it runs other
    tests for most of a run.
    """

    def __init__(self) -> None:
        self._servers: dict[Path, Shared] = {}
        self._running: dict[Path, ExitStack] = {}

    def of(self, directory: Path, starting: AbstractContextManager[KubeApiServer]) -> Shared:
        """Return the API server of a directory. Start it if it does not run."""
        if directory not in self._servers:
            with ExitStack() as stack:
                server = stack.enter_context(starting)
                self._servers[directory] = server, Leftovers(server)
                self._running[directory] = stack.pop_all()
        return self._servers[directory]

    def end(self, directory: Path) -> None:
        """End the API server of a directory if it runs."""
        if directory in self._running:
            del self._servers[directory]
            self._running.pop(directory).close()


SERVERS = pytest.StashKey[SharedServers]()
