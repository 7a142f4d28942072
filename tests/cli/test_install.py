"""`headgate install` while the control plane is not ready, with the answers of an API server."""

import asyncio
import io
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, cast

import pytest
from msgspec import Raw
from typer import Abort

from headgate.cli import install
from headgate.cli.output import TimedOut
from headgate.errors import Unavailable
from headgate.kubernetes.client import Client, Page
from headgate.kubernetes.install.installer import Installer
from headgate.kubernetes.install.manifests import Values, manifests

DEFINITIONS = [obj for obj in manifests(Values(image="headgate:1")) if obj["kind"] == "CustomResourceDefinition"]
STATES = ({"reason": "ContainerCreating"}, {"reason": "ErrImagePull", "message": "registry: no such image"})


class Cluster:
    """A cluster with two pods of the control plane, whose state changes with each list. After the last state it is ready."""

    def __init__(self, states: Sequence[Any]) -> None:
        self._states: Iterator[Any] = iter(states)
        self._ready = asyncio.Event()

    async def get(self, path: str, **_query: str) -> Any:
        if path.endswith("/apiservices"):
            return {"items": [{}]}
        if not path.endswith("/pods"):
            return {}
        waiting = next(self._states, None)
        if waiting is None:
            self._ready.set()
            return {"items": []}
        status = {"containerStatuses": [{"state": {"waiting": waiting}}]}
        return {"items": [{"metadata": {"name": name}, "status": status} for name in ("headgate-1", "headgate-2")]}

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def ending_replicas(self) -> Sequence[str]:
        return []


async def wait(cluster: Cluster, patience: float) -> None:
    await install.wait_ready(cast("Client", cluster), cast("Installer", cluster), patience)


async def test_each_reason_is_printed_once_while_the_installation_waits(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(install, "REPORT_S", 0)
    await wait(Cluster([STATES[0], *[STATES[1]] * 3]), 60)
    assert capsys.readouterr().err.splitlines() == [
        "waiting until the control plane is ready",
        "waiting: pod headgate-1: ContainerCreating",
        "waiting: pod headgate-1: ErrImagePull: registry: no such image",
    ]


async def test_the_error_at_the_timeout_has_the_last_reason_and_the_effect_on_the_cluster(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(install, "REPORT_S", 60)
    with pytest.raises(TimedOut, match=r"not ready after 0.01 s:\n  pod headgate-1: ErrImagePull: registry") as raised:
        await wait(Cluster([STATES[1]]), 0.01)
    assert "Kubernetes deletes no namespace" in str(raised.value)


class Deletions:
    """An installer whose deletions never end."""

    async def unblock_deletion(self, _objects: Any) -> AsyncIterator[tuple[Any, str]]:
        yield {"kind": "APIService", "metadata": {"name": "v1.a"}}, "deleted: its server is gone"

    async def wait_gone(self, _objects: Any) -> None:
        await asyncio.Event().wait()

    async def terminating(self, _objects: Any) -> Sequence[str]:
        return ["namespace/headgate-system: finalizers remain: example.com/x"]


async def test_what_is_not_deleted_in_time_is_named_with_the_reason(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TimedOut, match=r"not deleted after 0.01 s:\n  namespace/headgate-system: finalizers remain"):
        await install.finish_deletion(cast("Installer", Deletions()), (), 0.01)
    assert capsys.readouterr().out == "apiservice/v1.a deleted: its server is gone\n"


class Terminal(io.StringIO):
    """Standard input with what a user types."""

    def isatty(self) -> bool:
        return True


class Objects:
    """A cluster with headgate's definitions, of which one has two objects and one can't be listed. All others have none."""

    async def get(self, path: str, **_query: str) -> Any:
        name = path.rpartition("/")[2]
        return next(obj for obj in DEFINITIONS if obj["metadata"]["name"] == name)

    async def page(self, path: str, _query: Any, **_more: Any) -> Page:
        if path.endswith("/traffictargets"):
            raise Unavailable("the webhook of conversions does not respond")
        return Page(items=(Raw(b'{"metadata": {}}'),) * 2 * path.endswith("/trafficsplits"))


@pytest.mark.parametrize(
    ("stdin", "force", "goes_on"),
    [
        (Terminal("n\n"), False, False),
        (Terminal("y\n"), False, True),
        (Terminal(), True, True),
        (io.StringIO(), False, True),
    ],
)
async def test_an_uninstallation_counts_the_objects_of_users_and_a_user_at_a_terminal_confirms_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stdin: io.StringIO, force: bool, goes_on: bool
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr(sys, "stdin", stdin)
    with nullcontext() if goes_on else pytest.raises(Abort):
        await install.name_objects(cast("Client", Objects()), DEFINITIONS, confirmed=force)
    assert capsys.readouterr().err.startswith(
        "the uninstallation deletes 2 TrafficSplits, an unknown number of TrafficTargets; this command prints them: kubectl get"
        " trafficsplits.split.smi-spec.io,traffictargets.access.smi-spec.io --all-namespaces -o yaml\n"
    )
