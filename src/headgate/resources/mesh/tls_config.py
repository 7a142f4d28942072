"""TLSConfigs (004, D17; R72 to R78): types, schema and checks of the kind."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated

from headgate.errors import Cause
from headgate.kinds import MESH, names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, PROXIES, SELECTED, STATE, Column, summary_path, summary_schema
from headgate.resources.core.pod_fields import selector_causes
from headgate.resources.kind import MESH_CATEGORY, Kind, ReadyBy
from headgate.resources.meta import Input, Object, Resource, namespace_of, part
from headgate.resources.schema.builders import Schema, kind, text
from headgate.resources.schema.declared import Field, FieldRule, declared_schema, rule_causes
from headgate.resources.selectors import LabelSelector
from headgate.resources.smi.conversion import ALIASES
from headgate.resources.status import (
    PROXY_PROGRESS,
    SELECTED_PODS,
    ObjectStatus,
    ProxyProgress,
    SelectedPodCounts,
    status_schema,
)

_UNSELECTED = (
    "is missing: select pods, for example by matchLabels: {app: web}; matchLabels: {} selects all pods of the namespace"
)


class PodSelector(LabelSelector, frozen=True, kw_only=True):
    """The selector of a TLSConfig, which names the labels even if it selects all pods."""

    __rules__ = (
        FieldRule(
            "matchLabels",
            _UNSELECTED,
            cel="has(self.matchLabels) || has(self.matchExpressions)",
            broken=lambda selector: selector.get("matchLabels") is selector.get("matchExpressions") is None,
        ),
    )


class TLSConfigSpec(Input, frozen=True, kw_only=True):
    """`spec` of a TLSConfig: a selector of pods (R73), and additional DNS names for their certificates (R75).

    A selector without labels selects all pods of the namespace.
    """

    selector: Annotated[
        PodSelector,
        Field("The selector of pods in the object's own namespace; matchLabels: {} selects all."),
    ]
    subject_names: Annotated[
        tuple[str, ...],
        Field(
            "DNS names in the pods' certificates, in addition to the SPIFFE ID.",
            key="*",
            item=Field("A DNS name; its first label may be *.", grammar="wildcard"),
        ),
    ] = ()


class TLSConfig(Resource, frozen=True, kw_only=True):
    """A TLSConfig: the pods that it selects in its namespace accept mutual TLS only (R72 to R78)."""

    spec: TLSConfigSpec


_LONGEST_LABEL = 63
_COLUMNS = (
    NAME,
    Column("Pods", summary_path("pods"), "The selector of the pods.", cell=cells.selector("spec.selector")),
    Column(
        "Subject-Names",
        summary_path("subjectNames"),
        "Subject alternative names of the pods' certificates, besides the SPIFFE ID.",
        cell=cells.names("spec.subjectNames"),
    ),
    *STATE,
    AGE,
    *SELECTED,
    *PROXIES,
)


class TLSConfigStatus(ObjectStatus, frozen=True, kw_only=True):
    """`status` of a TLSConfig. The status writer adds the `summary`."""

    pods: Annotated[SelectedPodCounts, SELECTED_PODS]
    proxies: Annotated[ProxyProgress, PROXY_PROGRESS]
    summary: Annotated[Mapping[str, str], Field(schema=summary_schema(_COLUMNS))] = {}


def tls_config_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in a TLSConfig that its schema can't express (R72 to R75).

    The selector and its labels are required, so that a forgotten selector does not select all pods.
    """
    if "name" in obj:
        yield Cause("name", "is not a field; write the name in metadata.name only")
    spec = part(obj, "spec")
    if isinstance(obj.get("spec"), Mapping) and spec.get("selector") is None:
        yield Cause("spec.selector", _UNSELECTED)
    yield from selector_causes(part(spec, "selector"), "spec.selector")
    yield from rule_causes(TLSConfigSpec, spec, "spec")
    names = spec.get("subjectNames")
    listed = [str(name) for name in names] if isinstance(names, list | tuple) else []
    yield from _long_names(listed)
    yield from _foreign_names(listed, namespace_of(obj))


def _long_names(names: Sequence[str]) -> Iterator[Cause]:
    for index, name in enumerate(names):
        longest = max(map(len, name.split(".")))
        if longest > _LONGEST_LABEL:
            message = f"has a label of {longest} characters; each label of a DNS name has at most {_LONGEST_LABEL}"
            yield Cause(f"spec.subjectNames[{index}]", message)


def _foreign_names(names: Sequence[str], namespace: str) -> Iterator[Cause]:
    """Yield a mistake for each Service name of another namespace: pods with this name could impersonate the Service."""
    for index, name in enumerate(names):
        match name.split("."):
            case [_, other, "svc", *_] if other != namespace:
                message = (
                    f"is the name of a Service in the namespace {other}; only a TLSConfig in that namespace can list it"
                )
                yield Cause(f"spec.subjectNames[{index}]", message)


def tls_config(*, bare: bool) -> Schema:
    """Return the schema of a TLSConfig. `bare` is the version without a group (004), with a top-level `name` (R72)."""
    spec = declared_schema(TLSConfigSpec, "The selected pods and the names in their certificates.")
    fields = {"name": text("The object's name; later versions have it in metadata.name.", "subdomain")} if bare else {}
    return kind(
        "Requires mutual TLS for connections to the selected pods.",
        spec=spec,
        status=status_schema(TLSConfigStatus, "configuration"),
        **fields,
    )


KIND = Kind(
    names_of("TLSConfig", MESH),
    versions=("v1beta1",),
    aliases=ALIASES,
    status=True,
    shape=TLSConfig,
    schema=lambda group, _version: tls_config(bare=not group),
    checks=tls_config_causes,
    columns=_COLUMNS,
    recorded=True,
    categories=(MESH_CATEGORY,),
    unversioned=True,
    ready_by=ReadyBy.GENERATION,
    loss="Plaintext that it refused is accepted until then.",
)
