"""The users of sidecars on a cluster.

The rules of a pod's redirection except the proxy's user, so no container of the application may run as this user. And the
kernel limits the inotify instances of a *user* of a node: 128 by default, of which each Envoy needs four (`headgate.inotify`).
So the pods of a node divide `PROXY_USERS` among themselves.
"""

import itertools
import zlib
from collections.abc import Iterator
from typing import Any

from headgate.resources.meta import Object, part

PROXY_USERS = range(1338, 1370)
"""Users (and groups) that few images have. Their 32 times 31 sidecars are more than the pods of a node."""


def proxy_user(pod: Object, first: int) -> int:
    """Return `first`, or the next user as which no container of the pod runs by its manifest."""
    taken = set(_users(part(pod, "spec")))
    return next(user for user in itertools.count(first) if user not in taken)


def user_of_manifest(obj: Object) -> int:
    """Return the first user to try for the pods of a manifest: equal manifests have equal users, and most different ones different users."""
    metadata = part(obj, "metadata")
    name = f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"
    return PROXY_USERS[zlib.crc32(name.encode()) % len(PROXY_USERS)]


def _users(spec: Any) -> Iterator[int]:
    containers = (spec.get(field) or () for field in ("containers", "initContainers", "ephemeralContainers"))
    for holder in (spec, *itertools.chain.from_iterable(containers)):
        user = part(holder, "securityContext").get("runAsUser")
        if isinstance(user, int):
            yield user
