"""Read the parameters of Gateways from the ConfigMaps that a Gateway and its GatewayClass refer to."""

import difflib
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from headgate.compiler.snapshot import Snapshot
from headgate.errors import Cause, DecodeError
from headgate.quantity import parse_quantity
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.decode import read
from headgate.resources.gateway_api.gateway import GROUP, Gateway, Infrastructure, ParametersReference
from headgate.resources.gateway_api.gateway_class import GatewayClass
from headgate.resources.gateway_api.proxies import OWN_KEYS, PARAMETERS
from headgate.resources.mesh_keys import PREFIX
from headgate.resources.meta import Input, Key, Value, label_key_fault, type_name
from headgate.resources.registry import CONFIG_MAP

MOST_REPLICAS = 1000
SERVICE_TYPES = ("ClusterIP", "NodePort", "LoadBalancer")
_RESOURCES = ("cpu", "memory", "ephemeral-storage")
_LONGEST = 5_000  # maximum length of a parameter; it limits the cost of parsing and the length of messages
_MOST_FAULTS = 10  # the most mistakes that are reported for one ConfigMap
_NUMBER = re.compile("[0-9]{1,4}")
_OWN = "headgate sets {} itself; remove it"


class Parameters(Value, frozen=True, kw_only=True):
    """The settings of a Gateway's pods and Service on a cluster.

    Without `replicas`, headgate does not set the number of pods. `resources` has the container's requests and limits.
    """

    replicas: int | None = None
    service_type: str = "ClusterIP"
    service_annotations: Mapping[str, str] = {}
    resources: Mapping[str, Mapping[str, str]] = {}


class ParametersRead(NamedTuple):
    """The valid parameters of a ConfigMap, keyed by field of `Parameters`, and the mistakes in the invalid ones."""

    values: Mapping[str, Any]
    causes: tuple[Cause, ...] = ()


def gateway_parameters(snapshot: Snapshot, gateway: Gateway) -> tuple[Parameters, tuple[Cause, ...]]:
    """Return the parameters of a Gateway, which win over those of its class, and all mistakes in them."""
    class_name, infrastructure = gateway.spec.gateway_class_name, gateway.spec.infrastructure
    of_class = snapshot.objects.get(Key(GROUP, "GatewayClass", "", class_name))
    inherited = class_parameters(snapshot, of_class) if isinstance(of_class, GatewayClass) else ParametersRead({})
    own = _read(snapshot, infrastructure.parameters_ref, gateway.metadata.namespace, "spec.infrastructure")
    message = f"the parameters of GatewayClass {class_name} are not valid"
    causes = (
        *(Cause("spec.gatewayClassName", f"{message}: {cause}") for cause in inherited.causes),
        *own.causes,
        *_reserved_keys(infrastructure),
    )
    return Parameters(**{**inherited.values, **own.values}), causes


def class_parameters(snapshot: Snapshot, gateway_class: GatewayClass) -> ParametersRead:
    """Return the parameters of a GatewayClass, and the mistakes in them."""
    ref = gateway_class.spec.parameters_ref
    return _read(snapshot, ref, ref.namespace if ref else "", "spec")


def _reserved_keys(infrastructure: Infrastructure) -> Iterator[Cause]:
    """Yield a mistake for each label and annotation of a Gateway's pods that only headgate may set."""
    for field in ("labels", "annotations"):
        for key in getattr(infrastructure, field):
            if _is_own(key):
                yield Cause(f"spec.infrastructure.{field}.{key}", _OWN.format(key))


def _is_own(key: str) -> bool:
    return key in OWN_KEYS or key.startswith(PREFIX)


def _read(snapshot: Snapshot, ref: ParametersReference | None, namespace: str, where: str) -> ParametersRead:
    """Read the ConfigMap that a `parametersRef` names; `where` is the path of the field that contains it."""
    if ref is None:
        return ParametersRead({})
    where = f"{where}.parametersRef"
    if (ref.group, ref.kind) != (CONFIG_MAP.group, CONFIG_MAP.kind):
        kind = f"{ref.kind}.{ref.group}" if ref.group else ref.kind
        message = f"headgate reads parameters from a ConfigMap, not from {kind}; write kind: ConfigMap and group: ''"
        return ParametersRead({}, (Cause(f"{where}.kind", message),))
    if not namespace:
        return ParametersRead(
            {}, (Cause(f"{where}.namespace", f"is missing: write the namespace of ConfigMap {ref.name}"),)
        )
    key = CONFIG_MAP.key(namespace, ref.name)
    config_map = snapshot.objects.get(key)
    if not isinstance(config_map, ConfigMap) or config_map.metadata.labels.get(PARAMETERS) != "true":
        message = f'{key} with the label {PARAMETERS}: "true" not found; create it, or add the label'
        return ParametersRead({}, (Cause(f"{where}.name", message),))
    values, faults = _parsed(tuple(sorted(config_map.data.items())))
    return ParametersRead(values, tuple(Cause(where, f"{key}, key {fault}") for fault in faults))


@functools.lru_cache(maxsize=256)
def _parsed(data: tuple[tuple[str, str], ...]) -> tuple[Mapping[str, Any], tuple[Cause, ...]]:
    """Parse the data of a ConfigMap. The result depends on the data only, so it is cached."""
    values, faults = dict[str, Any](), list[Cause]()
    for key, text in data:
        try:
            field, value = _parameter(key, text)
            values[field] = value
        except ValueError as error:
            faults.append(Cause(key, str(error)))
    return values, tuple(faults[:_MOST_FAULTS])


def _parameter(key: str, text: str) -> tuple[str, Any]:
    """Parse a parameter; return its field of `Parameters` and its value. Raises ValueError."""
    if key not in _PARSERS:
        nearest = difflib.get_close_matches(key, _PARSERS, n=1)
        hint = f"did you mean {nearest[0]}?" if nearest else f"the parameters are {', '.join(_PARSERS)}"
        raise ValueError(f"is not a parameter; {hint}")
    if len(text) > _LONGEST:
        raise ValueError(f"must have at most {_LONGEST} characters, not {len(text)}")
    field, parse = _PARSERS[key]
    return field, parse(text)


def _replicas(text: str) -> int:
    if _NUMBER.fullmatch(text.strip()) and int(text) <= MOST_REPLICAS:
        return int(text)
    raise ValueError(f"must be a whole number from 0 to {MOST_REPLICAS}, not {text!r}")


def _service_type(text: str) -> str:
    if text.strip() in SERVICE_TYPES:
        return text.strip()
    raise ValueError(f"must be {', '.join(SERVICE_TYPES[:-1])} or {SERVICE_TYPES[-1]}, not {text!r}")


def _annotations(text: str) -> Mapping[str, str]:
    annotations: Mapping[str, Any] = _from_yaml(text, Mapping[str, Any])
    for key in annotations:
        if fault := label_key_fault(key):
            raise ValueError(fault)
        if _is_own(key):
            raise ValueError(_OWN.format(key))
    for key, kind in ((key, type_name(value)) for key, value in annotations.items() if not isinstance(value, str)):
        raise ValueError(f"the value of {key} must be text, not {kind}; write it with quotes")
    return annotations


class _Resources(Input, frozen=True, kw_only=True, forbid_unknown_fields=True):
    requests: Mapping[str, str | int | float] = {}
    limits: Mapping[str, str | int | float] = {}


def _resources(text: str) -> Mapping[str, Mapping[str, str]]:
    """Parse the requests and limits of a container; check what a Kubernetes API server checks."""
    resources = _from_yaml(text, _Resources)
    requests, limits = _amounts("requests", resources.requests), _amounts("limits", resources.limits)
    for name in requests.keys() & limits.keys():
        if parse_quantity(limits[name]) < parse_quantity(requests[name]):
            raise ValueError(f"limits.{name} must be at least requests.{name}")
    return {field: amounts for field, amounts in (("requests", requests), ("limits", limits)) if amounts}


def _amounts(field: str, written: Mapping[str, str | int | float]) -> Mapping[str, str]:
    """Check the requests or limits of a container; return them as texts. Raises ValueError."""
    for name, amount in written.items():
        if name not in _RESOURCES:
            raise ValueError(f"{field}.{name} is not a resource of a proxy; the resources are {', '.join(_RESOURCES)}")
        try:
            value = parse_quantity(str(amount))
        except ValueError as error:
            raise ValueError(f"{field}.{name}: {error}") from None
        if value < 0:
            raise ValueError(f"{field}.{name} must be 0 or more, not {amount}")
    return {name: str(amount) for name, amount in written.items()}


def _from_yaml(text: str, shape: Any) -> Any:
    """Decode a YAML text as a type. Raises ValueError with a message for the user."""
    try:
        return read(msgspec.yaml.decode(text), shape)
    except DecodeError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, RecursionError):
        raise ValueError("is not valid YAML; write one `name: value` a line") from None


_PARSERS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "replicas": ("replicas", _replicas),
    "serviceType": ("service_type", _service_type),
    "serviceAnnotations": ("service_annotations", _annotations),
    "resources": ("resources", _resources),
}
"""For each parameter, its field of `Parameters` and its parser, which raises ValueError."""
