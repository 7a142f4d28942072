"""Warnings about labels and annotations with headgate's prefix that have no effect on a pod, such as misspelled ones."""

from collections.abc import Iterator

from headgate.resources.mesh_keys import useless_keys
from headgate.resources.meta import Metadata, Object, part
from headgate.resources.pod_templates import pod_template, template_path


def useless_keys_of_pods(obj: Object) -> Iterator[str]:
    """Yield a warning for each label or annotation of a Pod, or of a workload's pod template, that has no effect."""
    path = template_path(obj)
    metadata = part(pod_template(obj) if path else obj, "metadata")
    written = Metadata(labels=dict(part(metadata, "labels")), annotations=dict(part(metadata, "annotations")))
    for cause in useless_keys("Pod", written):
        yield f"{path}.{cause}" if path else str(cause)
