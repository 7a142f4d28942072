"""Two versions of a Service, and the Canary that shifts its traffic."""

from collections.abc import Mapping
from typing import Any

from tests.e2e.manifests import external
from tests.e2e.running_mesh import RunningMesh
from tests.make.objects import canary, manifest
from tests.make.rollouts import state_of
from tests.waiting import until

ANALYSIS: Mapping[str, Any] = {
    "canary": "web-next",
    "steps": [{"share": "50%"}],
    "interval": "1s",
    "success": {"margin": "20%"},  # 40 requests rule out a drop of 20 %
}


def canary_of_web(analysis: Mapping[str, Any], percent: int = 10) -> str:
    """Return the Canary; `percent` is the share of the next version in the first step."""
    weights = {"web-next": f"{10 * percent}m", "web-current": f"{10 * (100 - percent)}m"}
    return manifest(canary("web", weights, analysis=analysis, namespace=""))


class Versions:
    """The current and the next version of a Service `web` in a namespace, and the Canary that shifts its traffic."""

    def __init__(self, mesh: RunningMesh, namespace: str) -> None:
        self.mesh = mesh
        self.namespace = namespace
        self.current, self.next = mesh.backend("current"), mesh.backend("next")
        for name, backend in (("web-current", self.current), ("web-next", self.next)):
            mesh.submit(external(name, backend), namespace=namespace)

    def status(self, name: str = "web") -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.mesh.get(f"canary/{name}", self.namespace).get("status") or {}
        return found

    def begin(self, analysis: Mapping[str, Any], percent: int = 10) -> None:
        """Begin a rollout, and wait until clients reach the current version."""
        self.mesh.submit(external("web", self.current), canary_of_web(analysis, percent), namespace=self.namespace)
        until(lambda: state_of(self.status()) == "Progressing")
        until(lambda: self.mesh.send(1, self.mesh.request("web", 8080, namespace=self.namespace)) == {"current": 1})

    def ended(self, phase: str) -> Mapping[str, Any]:
        """Wait until every proxy has the last weights of the rollout; return the status."""

        def last() -> Mapping[str, Any] | None:
            status = self.status()
            programmed = next(item["status"] for item in status["conditions"] if item["type"] == "Programmed")
            return status if (state_of(status), programmed) == (phase, "True") else None

        found: Mapping[str, Any] = until(last, phase, seconds=60)
        return found
