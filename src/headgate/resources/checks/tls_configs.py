"""What can be wrong with a TLSConfig as it is written (004, R72 to R75)."""

from collections.abc import Iterator, Mapping, Sequence

from headgate.errors import Cause
from headgate.resources.checks.shared import namespace_of, part
from headgate.resources.meta import Object
from headgate.resources.names import label_causes

_LONGEST_LABEL = 63
_LABELS = "spec.selector.matchLabels"
_UNSELECTED = "is missing: write which pods are meant, for example matchLabels: {app: web}; {} are all of the namespace"


def tls_config_causes(obj: Object) -> Iterator[Cause]:
    """Yield what the schema can't say about a TLSConfig. The labels must be written: no pod is selected by accident."""
    if "name" in obj:
        yield Cause("name", "is a field of metadata: write metadata.name, and only there")
    spec = part(obj, "spec")
    if isinstance(obj.get("spec"), Mapping) and spec.get("selector") is None:
        yield Cause("spec.selector", _UNSELECTED)
    elif isinstance(spec.get("selector"), Mapping) and spec["selector"].get("matchLabels") is None:
        yield Cause(_LABELS, _UNSELECTED)
    yield from _label_causes(part(part(spec, "selector"), "matchLabels"))
    names = spec.get("subjectNames")
    listed = [str(name) for name in names] if isinstance(names, list | tuple) else []
    yield from _long_names(listed)
    yield from _foreign_names(listed, namespace_of(obj))


def _label_causes(labels: Mapping[str, object]) -> Iterator[Cause]:
    """Yield labels that no pod can have; values of other types are known from the schema."""
    yield from label_causes({key: value for key, value in labels.items() if isinstance(value, str)}, _LABELS)


def _long_names(names: Sequence[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        longest = max(map(len, name.split(".")))
        if longest > _LONGEST_LABEL:
            message = f"has {longest} characters between two dots; a DNS name has at most {_LONGEST_LABEL}"
            yield Cause(f"spec.subjectNames[{index}]", message)


def _foreign_names(names: Sequence[str], namespace: str) -> Iterator[Cause]:
    """Yield names of Services of other namespaces: who could have one would be taken for that Service, or for headgate."""
    for index, name in enumerate(names):
        match name.split("."):
            case [_, other, "svc", *_] if other != namespace:
                message = f"is a Service's name in the namespace {other}; only a TLSConfig there can give it"
                yield Cause(f"spec.subjectNames[{index}]", message)
