"""ConfigMaps without the data that headgate does not use: clusters have many large ones for other purposes.

A Gateway can name any ConfigMap for certificates of authorities, and an API server can't select ConfigMaps by their keys. So
headgate lists and watches all of them, and keeps little.
"""

import msgspec

from headgate.admission.sidecar_containers import ROOTS_CONFIG_MAP
from headgate.compiler.gateway_api.ca_certificates import CA_KEY
from headgate.resources.gateway_api.proxies import PARAMETERS
from headgate.resources.meta import Object, part

_METADATA = frozenset({"name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp"})


def reduced(config_map: Object) -> Object:
    """Return a ConfigMap with its certificates of authorities as its only data, and without labels and annotations.

    Parameters of Gateways, and the roots that headgate writes, are returned unchanged.
    """
    metadata = config_map["metadata"]
    if part(metadata, "labels").get(PARAMETERS) == "true" or metadata["name"] == ROOTS_CONFIG_MAP:
        return config_map
    text = part(config_map, "data").get(CA_KEY)
    return {
        **{name: config_map[name] for name in ("apiVersion", "kind") if name in config_map},
        "metadata": {name: value for name, value in metadata.items() if name in _METADATA},
        "data": {} if text is None else {CA_KEY: text},
    }


def reduced_json(config_map: msgspec.Raw) -> msgspec.Raw:
    """Return a ConfigMap of a list as `reduced` does. The result keeps no memory of the list."""
    return msgspec.Raw(msgspec.json.encode(reduced(msgspec.json.decode(config_map))))
