"""Installs and removes revisions of headgate beside the default one."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Sequence

from headgate.errors import HeadgateError, NotFound
from headgate.kubernetes.client import Client
from headgate.kubernetes.install.installer import POLL_S, Installer, is_rolled_out, of_revision
from headgate.kubernetes.install.manifests import Values, revision_manifests
from headgate.kubernetes.names import NAMESPACE, REVISION_PREFIX
from headgate.resources.core.pod_metadata import REVISION
from headgate.resources.meta import Object, labels_of

NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
"""The names of revisions: with `REVISION_PREFIX` they are names of Services."""
ENDING_S = 60.0
_DEPLOYMENTS = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


class RevisionInstaller:
    """The revisions of a cluster. Every method raises HeadgateError if the API server rejects a request."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._installer = Installer(client)

    async def names(self) -> Sequence[str]:
        """Return the names of the installed revisions."""
        listed = (await self._client.get(_DEPLOYMENTS, labelSelector=REVISION)).get("items") or ()
        return sorted(str(labels_of(obj)[REVISION]) for obj in listed)

    async def namespaces(self, name: str) -> Sequence[str]:
        """Return the namespaces whose label names a revision."""
        listed = (await self._client.get("/api/v1/namespaces", labelSelector=f"{REVISION}={name}")).get("items") or ()
        return sorted(str(obj["metadata"]["name"]) for obj in listed)

    async def apply(self, values: Values, name: str) -> AsyncIterator[tuple[Object, str]]:
        """Apply the objects of a revision, and delete its roles of other options; yield each with the outcome."""
        objects = revision_manifests(values, name)
        for step in (self._installer.apply(objects), self._installer.prune(objects, of_revision(name))):
            async for obj, outcome in step:
                yield obj, outcome

    async def delete(self, name: str) -> AsyncIterator[tuple[Object, str]]:
        """Delete the objects of a revision; yield each that exists, with the outcome.

        The default revision injects in its namespaces once it knows that the Deployment is gone. The webhooks, without which no
        pod is created there, stay until the last replica has ended, or `ENDING_S` seconds: it knows by then.
        """
        objects = revision_manifests(Values(image=""), name)
        deployment = [obj for obj in objects if obj["kind"] == "Deployment"]
        async for obj, outcome in self._installer.delete(deployment):
            yield obj, outcome
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ENDING_S):
                    await self._wait_ended(f"{REVISION_PREFIX}{name}")
        remaining = (obj for obj in objects if obj not in deployment)
        for step in (self._installer.delete(remaining), self._installer.prune((), of_revision(name))):
            async for obj, outcome in step:
                yield obj, outcome

    async def _wait_ended(self, name: str) -> None:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods"
        selector = f"app.kubernetes.io/name={name}"
        while (await self._client.get(path, labelSelector=selector)).get("items"):  # noqa: ASYNC110 - as in `wait_ready`
            await asyncio.sleep(POLL_S)

    async def wait_ready(self, name: str) -> None:
        """Wait until all replicas of a revision are ready, and the API server trusts its webhooks."""
        while not await self._is_ready(f"{REVISION_PREFIX}{name}"):  # noqa: ASYNC110 - the API server sends no event for this
            await asyncio.sleep(POLL_S)

    async def _is_ready(self, name: str) -> bool:
        try:
            deployment = await self._client.get(f"{_DEPLOYMENTS}/{name}")
            path = f"/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{name}"
            hooks = (await self._client.get(path))["webhooks"]
        except NotFound:
            return False
        return is_rolled_out(deployment) and all(hook["clientConfig"].get("caBundle") for hook in hooks)


def check_name(name: str) -> str:
    """Return the name of a revision. Raises HeadgateError if no revision can have it."""
    if not NAME.fullmatch(name):
        raise HeadgateError(f"{name!r} is not the name of a revision: write 1 to 40 letters a to z, digits and hyphens")
    return name
