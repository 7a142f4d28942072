"""The audit log of an API server: the requests of the control plane's ServiceAccount."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from headgate.kubernetes.permissions import Permission

ACCOUNT = "system:serviceaccount:headgate-system:headgate"
_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {
            "level": "None",
            "resources": [
                {"group": "authorization.k8s.io", "resources": ["selfsubjectaccessreviews", "selfsubjectrulesreviews"]}
            ],
        },
        {"level": "Metadata", "users": [ACCOUNT]},
    ],
}
"""Records the control plane's requests. Every user may review its own permissions."""


def write_policy(root: Path) -> Path:
    """Write what an API server shall record; return the path of the file."""
    path = root / "policy.json"
    path.write_text(json.dumps(_POLICY))
    return path


class AuditLog:
    """The requests that an API server has recorded since the last `restart`. A poll reads only the new lines."""

    def __init__(self, root: Path) -> None:
        self.path = root / "audit.log"
        self.path.touch()
        self._position = 0
        self._start = ""  # in the form of the API server's timestamps, on the clock of the same machine
        self._events: list[Any] = []

    def restart(self) -> None:
        """Forget the requests until now, with those that the API server still records, such as the end of a watch."""
        self._start = datetime.now(UTC).isoformat(timespec="microseconds")
        self._position = self.path.stat().st_size
        self._events = []

    def events(self) -> Sequence[Any]:
        """Return the recorded stages of requests."""
        with self.path.open("rb") as log:
            log.seek(self._position)
            lines, end, _ = log.read().rpartition(b"\n")
        self._position += len(lines) + len(end)
        events = map(json.loads, lines.splitlines())
        self._events += [event for event in events if event["requestReceivedTimestamp"] >= self._start]
        return self._events

    def permissions(self) -> set[Permission]:
        """Return the permissions that the requests need. A patch that creates an object needs two."""
        needed: set[Permission] = set()
        for event in self.events():
            if target := event.get("objectRef"):
                resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
                namespace = target.get("namespace", "") if resource != "namespaces" else ""
                permission = Permission(
                    event["verb"], target.get("apiGroup", ""), resource, namespace, target.get("name", "")
                )
                needed.add(permission)
                if event.get("responseStatus", {}).get("code") == 201:
                    needed.add(permission._replace(verb="create"))
        return needed

    def attempts(self, resource: str, namespace: str, name: str, *verbs: str) -> int:
        """Return the number of completed requests with these verbs for an object, successful or not."""
        return sum(
            event["stage"] == "ResponseComplete"
            and event["verb"] in verbs
            and (target["resource"], target.get("namespace"), target.get("name")) == (resource, namespace, name)
            for event in self.events()
            if (target := event.get("objectRef"))
        )
