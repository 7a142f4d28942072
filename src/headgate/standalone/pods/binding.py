"""The binding of a pod to this machine, in its object: the node, the ports of its processes, and a finalizer."""

from headgate.resources.core.pod_metadata import APPLICATION_PORTS, STOP_PROCESS
from headgate.resources.meta import Object
from headgate.standalone.machine_node import NODE_NAME
from headgate.standalone.pods import application_ports
from headgate.standalone.pods.application_ports import PortMap


def bound(pod: Object, port_map: PortMap) -> Object:
    """Return the object with its node, ports, and the finalizer that keeps it until its processes are gone."""
    metadata = pod["metadata"]
    if metadata.get("deletionTimestamp"):
        return pod
    finalizers = dict.fromkeys([*(metadata.get("finalizers") or []), STOP_PROCESS])
    metadata = {**metadata, "finalizers": list(finalizers)}
    if port_map:
        text = application_ports.to_annotation(port_map)
        metadata["annotations"] = {**(metadata.get("annotations") or {}), APPLICATION_PORTS: text}
    return {**pod, "metadata": metadata, "spec": {**(pod.get("spec") or {}), "nodeName": NODE_NAME}}


def without_finalizer(pod: Object) -> Object:
    """Return the object without the finalizer."""
    finalizers = pod["metadata"].get("finalizers") or []
    kept = [name for name in finalizers if name != STOP_PROCESS]
    return pod if kept == finalizers else {**pod, "metadata": {**pod["metadata"], "finalizers": kept}}
