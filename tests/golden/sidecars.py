"""Print the configuration of a sidecar for a golden case: certificates, inbound side, and required server identities.

Fields that are equal in all cases (`_EVERYWHERE`) are left out; all remaining fields are printed, so a new field is
visible.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import yaml

from headgate.envoy import names

_EVERYWHERE = {
    "@type",  # the type, which the extension's name contains
    "access_log",
    "access_log_options",
    "circuit_breakers",
    "config_source",
    "connect_timeout",
    "early_header_mutation_extensions",
    "generate_request_id",
    "http_protocol_options",
    "idle_timeout",
    "local_reply_config",
    "sds_config",
    "server_header_transformation",
    "stat_prefix",
    "stream_idle_timeout",
    "suppress_envoy_headers",
    "track_per_rule_stats",
    "upgrade_configs",
}
_MAPS = frozenset({"map", "policies"})  # whose order differs from run to run
_ORDER = ("Secret", "Cluster", "Listener", "RouteConfiguration")
_LINE = 140
_INLINE = 110


class _Dumper(yaml.SafeDumper):
    """A YAML dumper that writes a short mapping or list on one line."""

    def represent_mapping(self, tag: str, mapping: Any, flow_style: bool | None = None) -> yaml.MappingNode:
        return super().represent_mapping(tag, mapping, flow_style or len(str(mapping)) < _INLINE)

    def represent_sequence(self, tag: str, sequence: Any, flow_style: bool | None = None) -> yaml.SequenceNode:
        return super().represent_sequence(tag, sequence, flow_style or _is_short(sequence))

    def ignore_aliases(self, _: object) -> bool:
        return True


def _is_short(sequence: list[Any]) -> bool:
    return len(str(sequence)) < _INLINE and not any(isinstance(item, dict) for item in sequence)


def printed(documents: Iterable[Mapping[str, Any]], services: set[str]) -> str:
    """Return a sidecar's resources as YAML.

    The outbound side is reduced to the TLS settings of the clusters of `services`; an empty set means all Services.
    """
    found = sorted(_chosen(documents, services), key=lambda item: _ORDER.index(item[0]))
    return "---\n".join(
        yaml.dump({f"{kind} {name}": _short(body)}, Dumper=_Dumper, sort_keys=False, width=_LINE)
        for kind, name, body in found
    )


def _chosen(documents: Iterable[Mapping[str, Any]], services: set[str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for document in documents:
        kind, name = document["type"], document["name"]
        body = {key: value for key, value in document["resource"].items() if key != "name"}
        ref = names.parse(name)
        if kind == "Secret" or name.split("/")[0] in (names.INBOUND, names.CALLERS, names.PROBES):
            yield kind, name, body
        elif kind == "Cluster" and ref and (not services or ref.service in services):
            tls = {key: value for key, value in body.items() if key.startswith("transport_socket")}
            yield from [(kind, name, tls)] if tls else []


def _short(value: Any) -> Any:
    """Return a value without the fields in `_EVERYWHERE`; an extension is reduced to name and configuration."""
    if isinstance(value, list):
        return [_short(item) for item in value]
    if not isinstance(value, dict):
        return value.strip() if isinstance(value, str) else value
    found = {key: _short(item) for key, item in value.items() if key not in _EVERYWHERE}
    for name in _MAPS & found.keys():
        found[name] = dict(sorted(found[name].items()))
    if value.keys() == {"name", "typed_config"}:
        return {value["name"].removeprefix("envoy."): found["typed_config"]}
    return found
