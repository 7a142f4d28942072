"""Namespaces."""

import re
from collections.abc import Iterator

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.core.pod_metadata import (
    INJECT,
    REVISION,
    inject_causes,
    redirection_causes,
    trace_sampling_causes,
)
from headgate.resources.core.proxy_annotations import proxy_annotation_causes
from headgate.resources.kind import Kind
from headgate.resources.meta import Object, Resource, part


class Namespace(Resource, frozen=True, kw_only=True):
    """A Namespace. Its labels decide which Gateway listeners accept its routes."""


def namespace_causes(obj: Object) -> Iterator[Cause]:
    """Yield mistakes in the mesh's labels and annotations of a Namespace.

    The injection setting must be a label there: as an annotation it is a mistake, because webhooks select by labels.
    """
    metadata = part(obj, "metadata")
    yield from inject_causes(part(metadata, "labels"), "metadata.labels")
    for key in (INJECT, REVISION):
        if key in part(metadata, "annotations"):
            yield Cause(f"metadata.annotations.{key}", "has no effect on a Namespace; write it in metadata.labels")
    yield from trace_sampling_causes(part(metadata, "annotations"), "metadata.annotations")
    yield from proxy_annotation_causes(part(metadata, "annotations"), "metadata.annotations")
    yield from redirection_causes(part(metadata, "annotations"), "metadata.annotations")


KIND = Kind(
    names_of("Namespace", ""),
    status=True,
    shape=Namespace,
    checks=namespace_causes,
    # A wrong value has no effect, and the labels still select the namespace for Gateways.
    unread=re.compile(rf"metadata\.(annotations\..*|labels\.{re.escape(INJECT)})"),
    columns=(NAME, Column("Status", cell=cells.at("status.phase", "Active")), AGE),
    deletes_collection=False,
    unserved=frozenset({"finalize"}),
    selectable=frozenset({"status.phase"}),
    always_present=("spec", "status"),
    loss="If it has objects, it is created again without its labels and annotations.",
)
