"""Read the certificates of authorities from the ConfigMaps to which an object refers.

Of several references, the usable ones apply: a certificate that an authority of any of them has signed is trusted.
"""

from collections.abc import Iterable
from typing import NamedTuple

from headgate.compiler.gateway_api.certificates import readable_certificates
from headgate.compiler.reasons import Reason
from headgate.compiler.references import grant_hint, permitted
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.resources.core.config_map import ConfigMap
from headgate.resources.gateway_api.gateway import CaReference
from headgate.resources.meta import Key
from headgate.resources.registry import CONFIG_MAP

CA_KEY = "ca.crt"


class Authorities(NamedTuple):
    """The certificates of authorities in PEM, the ConfigMaps (`namespace/name`) that have them, and findings about unusable references."""

    certificates: str
    sources: tuple[str, ...]
    findings: tuple[Finding, ...]


def authorities(snapshot: Snapshot, about: Key, refs: Iterable[CaReference], field: str) -> Authorities:
    """Read the authorities to which the object `about` refers in `field`. They have no certificate if no reference is usable."""
    usable: dict[str, tuple[str, ...]] = {}
    findings = []
    for index, ref in enumerate(refs):
        name = f"{ref.namespace or about.namespace}/{ref.name}"
        finding = _refusal(snapshot, about, ref, f"{field}[{index}]")
        if finding:
            findings.append(finding)
        else:
            usable[name] = _certificates(snapshot, name)
    certificates = dict.fromkeys(certificate for several in usable.values() for certificate in several)
    return Authorities("".join(certificates), tuple(usable), tuple(findings))


def _refusal(snapshot: Snapshot, about: Key, ref: CaReference, field: str) -> Finding | None:
    """Return why a reference is not usable, in the order of the Gateway API: kind, permission, content."""
    name = f"{ref.namespace or about.namespace}/{ref.name}"
    if (ref.group, ref.kind) != (CONFIG_MAP.group, CONFIG_MAP.kind):
        message = f"{ref.kind} {ref.name} is not a ConfigMap; write group: '' and kind: ConfigMap"
        return Finding(about, Reason.INVALID_CA_CERTIFICATE_KIND, f"{field}.kind", message)
    if not permitted(snapshot, about, name, kind=ref.kind):
        hint = grant_hint(about, name, kind=ref.kind)
        message = f"ConfigMap {name} is in another namespace, which does not allow this reference; {hint}"
        return Finding(about, Reason.REF_NOT_PERMITTED, f"{field}.namespace", message)
    if CONFIG_MAP.key(*name.split("/")) not in snapshot.objects:
        message = f"ConfigMap {name} not found; create it or correct the name"
    elif not _certificates(snapshot, name):
        message = f"ConfigMap {name} has no readable certificates in PEM in its key {CA_KEY}; correct the key"
    else:
        return None
    return Finding(about, Reason.INVALID_CA_CERTIFICATE_REF, f"{field}.name", message)


def _certificates(snapshot: Snapshot, name: str) -> tuple[str, ...]:
    """Return the certificates in a ConfigMap as PEM; none if a proxy could not read one of them."""
    config_map = snapshot.objects.get(CONFIG_MAP.key(*name.split("/")))
    return readable_certificates(config_map.data.get(CA_KEY, "").encode()) if isinstance(config_map, ConfigMap) else ()
