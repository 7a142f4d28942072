"""Types of the inspect API for the sidecars of a workload's pods, and for what a restart of the pods changes."""

from headgate.resources.inspect import API_VERSION, Answer, AnswerList, ObjectName, SidecarMode, SidecarProxy
from headgate.resources.meta import Key


class PodRestart(Answer, frozen=True, kw_only=True):
    """A pod of a workload. `messages` say how its sidecar differs from that of a new pod; without any, it is up to date.

    `injected`: a new pod gets a sidecar. `proxy` is null if headgate expects no proxy for the pod.
    """

    name: str
    sidecar: SidecarMode
    injected: bool
    messages: tuple[str, ...] = ()
    proxy: SidecarProxy | None = None


class WorkloadSidecars(Answer, frozen=True, kw_only=True):
    """The pods of a workload that have a sidecar, or that would get one. Pods that are deleted or have ended are left out.

    `object` is the Deployment, or another controller of the pods, or the pod itself if it has none. `metadata` has its
    namespace, and its kind and name as `deployment.website`.
    """

    metadata: ObjectName
    object: Key
    pods: tuple[PodRestart, ...]
    api_version: str = API_VERSION
    kind: str = "WorkloadSidecars"

    @property
    def outdated(self) -> int:
        """The number of pods whose sidecars differ from those of new pods."""
        return sum(bool(pod.messages) for pod in self.pods)

    @property
    def messages(self) -> tuple[str, ...]:
        """The differences of all pods, each once."""
        return tuple(dict.fromkeys(message for pod in self.pods for message in pod.messages))


class WorkloadSidecarsList(AnswerList, frozen=True, kw_only=True):
    """The workloads of the mesh, sorted by namespace, kind and name."""

    items: tuple[WorkloadSidecars, ...]
    kind: str = "WorkloadSidecarsList"
