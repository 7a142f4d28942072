"""What can be wrong with a TLSConfig as it is written (004, R72 to R75)."""

from collections.abc import Iterator, Mapping, Sequence

from headgate.errors import Cause
from headgate.resources import crd_access
from headgate.resources.checks import namespace_of
from headgate.resources.gateway_checks import spec_causes
from headgate.resources.meta import Object
from headgate.resources.names import label_causes
from headgate.resources.schema_checks import part
from headgate.resources.schema_parts import Schema

_LONGEST_LABEL = 63
_SPEC: Schema = crd_access.tls_config(bare=False)["properties"]["spec"]
_LABELS = "spec.selector.matchLabels"
_SELECTION = ("spec.selector", _LABELS)
_UNSELECTED = "is missing: write which pods are meant, for example matchLabels: {app: web}; {} are all of the namespace"


def tls_config_causes(obj: Object) -> Iterator[Cause]:
    """Yield every structural mistake of a TLSConfig. The labels must be written: no pod is selected by accident."""
    if "name" in obj:
        yield Cause("name", "is a field of metadata: write metadata.name, and only there")
    for cause in spec_causes({field: value for field, value in obj.items() if field != "name"}, _SPEC):
        unselected = cause.field in _SELECTION and cause.message == "is missing"
        yield Cause(cause.field, _UNSELECTED) if unselected else cause
    spec = part(obj, "spec")
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
