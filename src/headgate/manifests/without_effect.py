"""What headgate does not carry out of manifests, each in one line (D34)."""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headgate import control_groups
from headgate.errors import Cause
from headgate.formatting import pluralize
from headgate.manifests.documents import Position
from headgate.manifests.files import Manifest, Manifests
from headgate.resources.core import ignored_pod_fields as pod_fields
from headgate.resources.foreign_meshes import foreign_hint, foreign_keys
from headgate.resources.meta import part
from headgate.resources.pod_templates import pod_template, template_path
from headgate.resources.registry import POD

_MOST_KINDS = 12  # kinds that a line names
_MOST_FIELDS = 8  # fields that a line names


def stored_without_effect(manifests: Manifests) -> str:
    """Return how many objects of which kinds are only stored: `3 objects of 2 kinds are stored without effect: 2 Job, 1 Role`."""
    return counted(
        (manifest.key.kind for manifest in manifests.objects if manifest.kind.without_effect), "stored without effect"
    )


def left_out(manifests: Manifests) -> str:
    """Return how many objects are left out, because their kinds are neither built in nor defined; empty if there are none.

    Objects of other meshes are not counted: `foreign_kinds` has them.
    """
    kinds = (f"{left.kind} ({left.api_version})" for left in manifests.left_out if not _hint(left.api_version))
    line = counted(kinds, "left out, because no CustomResourceDefinition defines the kind")
    return line and f"{line}; add the definitions to the files to have the objects stored"


class ForeignKind(NamedTuple):
    """A kind of another mesh: the position of its first object, and what is lost without that mesh."""

    file: str
    position: Position
    message: str


def foreign_kinds(manifests: Manifests) -> Iterator[ForeignKind]:
    """Yield each kind of another mesh of which the files have objects, whether these are stored or left out."""
    places = [((left.kind, left.api_version), left.file, left.position) for left in manifests.left_out]
    for manifest in manifests.objects:
        version = str(manifest.object["apiVersion"])
        places.append(((manifest.key.kind, version), manifest.file, manifest.document.locate("kind")))
    counts = Counter(kind for kind, _, _ in places)
    for kind, file, position in places:
        name, version = kind
        if number := counts.pop(kind, 0) if _hint(version) else 0:
            noun = f"{pluralize(number, 'object')} of the kind {name} ({version})"
            yield ForeignKind(file, position, f"{noun} {'has' if number == 1 else 'have'} no effect; {_hint(version)}")


def ignored_keys(manifests: Manifests) -> Iterator[tuple[Manifest, Cause]]:
    """Yield the labels and annotations of Namespaces and pods by which other meshes inject sidecars, with headgate's key.

    The keys that request a sidecar for a pod are left out: on one machine a pod has headgate's without a key.
    """
    for manifest in manifests.objects:
        is_namespace = manifest.key.kind == "Namespace"
        if is_namespace or manifest.kind is POD or template_path(manifest.object):
            for cause in foreign_keys(manifest.object, injected=not is_namespace):
                yield manifest, cause


def ignored_fields(manifests: Manifests, *, own_networks: bool = False) -> Iterator[tuple[Manifest, str, str]]:
    """Yield each object with fields of its pods that have no effect on one machine: the field, and a message.

    The field of several is the `spec` of the pods, and the message names them from there. `own_networks` says whether pods
    have networks of their own. Objects that are only stored are left out.
    """
    is_root, limited = os.geteuid() == 0, control_groups.limited()
    for manifest in manifests.objects:
        template = template_path(manifest.object)
        if manifest.kind.without_effect or not (template or manifest.kind is POD):
            continue
        pod, where = (pod_template(manifest.object), f"{template}.spec") if template else (manifest.object, "spec")
        spec = part(pod, "spec")
        fields = list(pod_fields.ignored_fields(spec, is_root=is_root, own_networks=own_networks, limited=limited))
        names = sorted(pod_fields.NAMES.intersection(fields))
        ways = [
            *(["without hostNetwork"] if spec.get("hostNetwork") else []),
            *([] if own_networks else ["with headgate up --network pod"]),
        ]
        hint = f"; {' and '.join(names)} also {' and '.join(ways)}" if names and ways else ""
        if len(fields) == 1:
            yield manifest, f"{where}.{fields[0]}", f"has an effect on clusters only{hint}"
        elif fields:
            more = f" and {len(fields) - _MOST_FIELDS} more fields" if len(fields) > _MOST_FIELDS else ""
            yield manifest, where, f"{', '.join(fields[:_MOST_FIELDS])}{more} have an effect on clusters only{hint}"


def lines(manifests: Manifests, *, own_networks: bool = False) -> Iterator[str]:
    """Yield the lines about objects that are only stored, left out or of another mesh, and about ignored keys and fields."""
    yield from filter(None, (stored_without_effect(manifests), left_out(manifests)))
    yield from (foreign.message for foreign in foreign_kinds(manifests))
    for manifest, cause in ignored_keys(manifests):
        yield f"{manifest.key}: {cause}"
    for manifest, field, message in ignored_fields(manifests, own_networks=own_networks):
        yield f"{manifest.key}: {field}: {message}"


def _hint(version: str) -> str:
    """Return the hint about an `apiVersion` of another mesh; empty for other ones."""
    return foreign_hint(version.partition("/")[0])


def counted(kinds: Iterable[str], what: str) -> str:
    """Return how many objects of which kinds are `what`, in a line; empty if there are none."""
    counts = Counter(kinds)
    if not counts:
        return ""
    named = [f"{number} {kind}" for kind, number in sorted(counts.items())]
    more = f" and {len(named) - _MOST_KINDS} more kinds" if len(named) > _MOST_KINDS else ""
    total = counts.total()
    verb = "is" if total == 1 else "are"
    kinds_text = f" of {pluralize(len(counts), 'kind')}" if total > 1 else ""
    return f"{pluralize(total, 'object')}{kinds_text} {verb} {what}: {', '.join(named[:_MOST_KINDS])}{more}"
