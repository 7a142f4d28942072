"""ConfigMaps."""

from collections.abc import Iterator, Mapping

from headgate.errors import Cause
from headgate.kinds import names_of
from headgate.resources import cells
from headgate.resources.columns import AGE, NAME, Column
from headgate.resources.core.secret import _base64_map, key_causes
from headgate.resources.kind import Kind
from headgate.resources.meta import Object, Resource


class ConfigMap(Resource, frozen=True, kw_only=True):
    """A ConfigMap. headgate reads parameters of Gateways from it, and CA certificates of BackendTLSPolicies."""

    data: Mapping[str, str] = {}


def config_map_causes(obj: Object) -> Iterator[Cause]:
    """Yield the mistakes in the keys of a ConfigMap, and each entry of `binaryData` that is not base64."""
    yield from key_causes(obj, "data", "binaryData")
    yield from _base64_map(obj, "binaryData")


KIND = Kind(
    names_of("ConfigMap", ""),
    shape=ConfigMap,
    checks=config_map_causes,
    columns=(NAME, Column("Data", cell=cells.count("data", "binaryData")), AGE),
)
