"""A control plane in this process, with the permissions of its installation on a real API server that records its requests."""

import asyncio
import contextlib
import json
import logging
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from tests.cluster.conftest import ADMIN, CONTROL_PLANE, Cluster
from tests.ports import free_port

from headgate.kinds import GATEWAY
from headgate.kubernetes import (
    aggregated_apis,
    app,
    handover,
    lease,
    permissions,
    registration,
    served_versions,
    state_secrets,
    webhooks,
)
from headgate.kubernetes.client import Client
from headgate.kubernetes.credentials import InCluster
from headgate.kubernetes.install.custom_resources import converted_kinds, custom_resource_definitions
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests
from headgate.kubernetes.options import Options
from headgate.kubernetes.permissions import DeniedRequests, Permission
from headgate.resources.registry import KINDS

ACCOUNT = "system:serviceaccount:headgate-system:headgate"
POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "rules": [
        {"level": "None", "resources": [{"group": "authorization.k8s.io", "resources": ["selfsubjectaccessreviews"]}]},
        {"level": "Metadata", "users": [ACCOUNT]},
    ],
}
"""Records the control plane's requests. Every user may review its own permissions."""
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPROVED = {"api-approved.kubernetes.io": "unapproved, for tests"}
UNUSED = {"service": {"namespace": "none", "name": "none", "port": 443}}
DEADLINE_S = 90


def audited(root: Path) -> dict[str, object]:
    """Return the options of an API server that records the control plane's requests in `root`."""
    (root / "policy.json").write_text(json.dumps(POLICY))
    return {"audit_policy_file": root / "policy.json", "audit_log_path": root / "audit.log"}


def requested(root: Path) -> set[Permission]:
    """Return the permissions that the recorded requests need. A patch that creates an object needs two."""
    found: set[Permission] = set()
    for line in (root / "audit.log").read_text().splitlines():
        event = json.loads(line)
        if target := event.get("objectRef"):
            resource = "/".join(filter(None, (target["resource"], target.get("subresource"))))
            namespace = target.get("namespace", "") if resource != "namespaces" else ""
            permission = Permission(
                event["verb"], target.get("apiGroup", ""), resource, namespace, target.get("name", "")
            )
            found.add(permission)
            if event.get("responseStatus", {}).get("code") == 201:
                found.add(permission._replace(verb="create"))
    return found


def follows_again(root: Path) -> bool:
    """Return whether the control plane follows all kinds again after it wrote its CA bundle into their definitions.

    The API server ends the watches of a kind about a second after a change of its definition, and the kind is listed again.
    """
    steps = {kind.plural: ["update", "watch", "list"] for kind in converted_kinds()}
    for line in (root / "audit.log").read_text().splitlines():
        event = json.loads(line)
        target = event.get("objectRef") or {}
        of_definition = target.get("resource") == "customresourcedefinitions"
        plural = target.get("name", "").partition(".")[0] if of_definition else target.get("resource", "")
        is_done = event["stage"] == "ResponseComplete" and event.get("responseStatus", {}).get("code") == 200
        if is_done and [event["verb"]] == steps.get(plural, [])[:1] and of_definition == (event["verb"] == "update"):
            del steps[plural][0]
    return not any(steps.values())


async def install(cluster: Cluster, values: Values, *, gateways: bool = True) -> None:
    """Apply the objects of an installation and, with `gateways`, the Gateway API's definitions."""
    if gateways:
        kinds = [kind for kind in KINDS if kind.group == GATEWAY]
        for definition in custom_resource_definitions(kinds, UNUSED):
            definition["metadata"]["annotations"] = APPROVED
            definition["spec"].pop("conversion", None)
            cluster.make(DEFINITIONS, definition)
    cluster.api(ADMIN)  # writes the files of the account
    async with Client(InCluster(cluster.environment, cluster.root / ADMIN)) as client:
        async for _ in Installer(client).apply(manifests(values)):
            pass


class NotAnswered(Exception):
    """The aggregated APIs can't answer now, such as before the objects are compiled, or while users can't be authorized."""


class ControlPlane:
    """A running replica. `log` has the messages of its log."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.log: list[str] = []
        self.ports = {name: free_port() for name in ("XDS_PORT", "WEBHOOK_PORT", "API_PORT")}

    async def get(self, path: str, *, user: str = "admin") -> Any:
        """Call the aggregated APIs as the API server does; return the JSON. Raises NotAnswered after a status of 500 or more."""
        return json.loads(await self.get_text(path, user=user))

    async def get_text(self, path: str, *, user: str = "admin") -> str:
        """Do the same, and return the text of the answer."""
        trust = ssl.create_default_context()
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
        trust.load_cert_chain(self.cluster.root / "front-proxy.crt", self.cluster.root / "front-proxy.key")
        headers = {"x-remote-user": user, "x-remote-group": "system:masters" if user == "admin" else "users"}
        url = f"https://127.0.0.1:{self.ports['API_PORT']}{path}"
        async with aiohttp.ClientSession() as session, session.get(url, ssl=trust, headers=headers) as response:
            if response.status >= 500:
                raise NotAnswered(await response.text())
            return await response.text()

    async def problems(self) -> list[str]:
        """Return what `headgate status` names as problems."""
        found = await self.get("/apis/inspect.headgate.dev/v1/meshstatuses/mesh")
        assert found.get("kind") != "Status", found
        return list(found["status"]["problems"])

    async def served(self) -> bool:
        """Return whether the aggregated APIs respond."""
        await self.problems()
        return True

    async def has_all_permissions(self) -> bool:
        """Return whether `headgate status` names no missing permission."""
        return not [line for line in await self.problems() if line.startswith("permission missing")]


class _Lines(logging.Handler):
    def __init__(self, lines: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        self._lines.append(record.getMessage())


@contextlib.asynccontextmanager
async def running(cluster: Cluster, patch: pytest.MonkeyPatch, **options: Any) -> AsyncIterator[ControlPlane]:
    """Run a replica whose checks and retries are frequent."""
    plane = ControlPlane(cluster)
    for module, name in ((app, "XDS_PORT"), (webhooks, "WEBHOOK_PORT"), (aggregated_apis, "API_PORT")):
        patch.setattr(module, name, plane.ports[name])
    patch.setattr(permissions, "MISSING_S", 0.1)
    patch.setattr(permissions, "ALL_S", 0.5)
    patch.setattr(served_versions, "REFRESH_S", 0.5)
    patch.setattr(registration, "RESTORE_S", 0.5)
    for name in ("PROPAGATION_S", "LONGEST_S"):  # no other replica runs
        patch.setattr(handover, name, 0)
    patch.setattr(lease, "STOP_S", float(DEADLINE_S))  # so a replica that could not renew the Lease may continue
    patch.setattr(state_secrets.StateSecrets, "interval_s", 0.1)
    cluster.api(CONTROL_PLANE)  # writes the files of the account
    handler = _Lines(plane.log)
    handler.addFilter(DeniedRequests())
    logging.getLogger().addHandler(handler)
    credentials = InCluster(cluster.environment, cluster.root / CONTROL_PLANE)
    task = asyncio.create_task(app.run(Options(pod="headgate-1", image="headgate:1", **options), credentials))
    try:
        yield plane
        assert not task.done(), task.exception()
    finally:
        logging.getLogger().removeHandler(handler)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def eventually(check: Any, *, of: object = "") -> Any:
    """Poll until `check` returns a true value, also from a coroutine; return the value."""
    failure: Exception | None = None
    try:
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    found = check()
                    if found := await found if asyncio.iscoroutine(found) else found:
                        return found
                    failure = None
                except (aiohttp.ClientError, KeyError, NotAnswered) as error:
                    failure = error
                await asyncio.sleep(0.05)  # the API server has no event for all of this
    except TimeoutError:
        raise AssertionError(f"not reached within {DEADLINE_S} s: {of() if callable(of) else of}") from failure
