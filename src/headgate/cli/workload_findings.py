"""What manifests alone show about workloads: Services that select no pod, containers that this machine can't start."""

from collections.abc import Iterator, Mapping
from typing import Any

from headgate.cli.stand_ins import selector, written_pods
from headgate.errors import DecodeError
from headgate.resources.decode import read
from headgate.resources.meta import Key, Object, Value
from headgate.resources.registry import SERVICE
from headgate.resources.workloads import Container, Pod
from headgate.standalone.processes import Launch, missing_program

NO_COMMAND = "NoCommand"  # as the Events of a pod that runs here
COMMAND_NOT_FOUND = "CommandNotFound"
SELECTS_NO_PODS = "SelectsNoPods"
_TEMPLATED = ("Deployment", "ReplicaSet")


class WorkloadFinding(Value, frozen=True, kw_only=True):
    """A warning about an object of the files; `field` is the path as the user wrote it."""

    about: Key
    reason: str
    field: str
    message: str


def workload_findings(objects: Mapping[Key, Object], environ: Mapping[str, str]) -> Iterator[WorkloadFinding]:
    """Yield what keeps the workloads of manifests from serving on this machine, whose environment is `environ`."""
    pods = written_pods(objects)
    for key, obj in objects.items():
        if (key.group, key.kind) == (SERVICE.group, SERVICE.kind):
            yield from _unselected(key, selector(obj), pods)
        elif key.kind == "Pod" or key.kind in _TEMPLATED:
            yield from _containers(key, obj, environ)


def _unselected(service: Key, wanted: Mapping[str, str], pods: Mapping[Key, Object]) -> Iterator[WorkloadFinding]:
    """Yield a finding when the files have pods in the Service's namespace, and none with the labels that it wants."""
    labels = [pod["metadata"].get("labels") or {} for key, pod in pods.items() if key.namespace == service.namespace]
    if not wanted or not labels or any(wanted.items() <= found.items() for found in labels):
        return
    written = ",".join(f"{name}={value}" for name, value in wanted.items())
    seen = sorted({f"{name}={found[name]}" for found in labels for name in wanted if name in found})
    hint = f"; pods there have {', '.join(seen)}" if seen else ""
    message = f"no pod of these files in namespace {service.namespace} has the labels {written}{hint}"
    yield WorkloadFinding(about=service, reason=SELECTS_NO_PODS, field="spec.selector", message=message)


def _containers(key: Key, obj: Object, environ: Mapping[str, str]) -> Iterator[WorkloadFinding]:
    where = "spec.template.spec" if key.kind in _TEMPLATED else "spec"
    try:
        pod = read({"metadata": {}, "spec": _at(obj, where)}, Pod)
    except DecodeError:  # the pod's runtime refuses it, with the field
        return
    for kind, containers in (("initContainers", pod.spec.init_containers), ("containers", pod.spec.containers)):
        for index, container in enumerate(containers):
            field = f"{where}.{kind}[{index}]"
            yield from _command(key, field, container, environ)


def _command(key: Key, field: str, container: Container, environ: Mapping[str, str]) -> Iterator[WorkloadFinding]:
    if not container.command:
        message = (
            f"container {container.name} has no command, and a pod on one machine runs its command, not its image; "
            "write command, or run the manifest on a cluster"
        )
        yield WorkloadFinding(about=key, reason=NO_COMMAND, field=field, message=message)
    elif _is_judged(container):
        launch = Launch(command=container.command, env=dict(environ), cwd=container.working_dir)
        if message := missing_program(launch):
            yield WorkloadFinding(about=key, reason=COMMAND_NOT_FOUND, field=f"{field}.command", message=message)


def _is_judged(container: Container) -> bool:
    """Whether the program is known before the pod runs: not from a variable, a volume, or a PATH of its own."""
    program = (container.command or ("",))[0]
    mounted = any(program.startswith(f"{mount.mount_path.rstrip('/')}/") for mount in container.volume_mounts or ())
    return not (mounted or "$(" in program or any(item.name == "PATH" for item in container.env or ()))


def _at(obj: Object, path: str) -> Any:
    found: Any = obj
    for name in path.split("."):
        found = found.get(name) or {} if isinstance(found, Mapping) else {}
    return found
