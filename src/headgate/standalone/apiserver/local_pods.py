"""The functions of the local runtime that the embedded API calls for the subresources of pods."""

from collections.abc import AsyncGenerator, Callable
from typing import NamedTuple

from headgate.resources.meta import Key
from headgate.standalone.pods.logs import LogOptions
from headgate.standalone.pods.runs import Run


class LocalPods(NamedTuple):
    """The pods of this machine. `logs` yields a container's log in chunks: with `follow`, until the container ends.

    `container` returns a container by the key of its pod and its name. Both raise StoreError. `published` returns the address at which
    users of the machine reach a port of a pod, by its own address; empty if they don't.
    """

    logs: Callable[[Key, LogOptions], AsyncGenerator[bytes]]
    container: Callable[[Key, str], Run]
    published: Callable[[str, int], str] = lambda address, _port: address
