"""headgate's own kinds, in their hub form: `headgate.dev/v1beta1` (004, D17)."""

from msgspec import field

from headgate.resources.meta import Input, Resource


class LabelSelector(Input, frozen=True, kw_only=True):
    """Pods that have all of `match_labels` (R73); none are all pods of the namespace."""

    match_labels: dict[str, str] = field(default_factory=dict)


class TLSConfigSpec(Input, frozen=True, kw_only=True):
    """The pods, and the names that their certificates carry besides their identity (R75)."""

    selector: LabelSelector
    subject_names: tuple[str, ...] = ()


class TLSConfig(Resource, frozen=True, kw_only=True):
    """Lets the pods of its namespace that it selects talk through mutual TLS only (R72 to R78)."""

    spec: TLSConfigSpec
