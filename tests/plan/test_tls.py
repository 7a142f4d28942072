"""A plan says which certificates the clients of a Gateway need before and after a change."""

from pathlib import Path
from typing import Any

from tests.authority import Authority
from tests.make.objects import config_map, gateway, listener, manifest
from tests.make.server_certificates import PAIRS, secret
from tests.plan.manifests import planned

from headgate.plan.lines import lines
from headgate.resources.registry import CONFIG_MAP

EMPLOYEES, PARTNERS = Authority("employees").pem, Authority("partners").pem
SERVER = manifest(secret("server", PAIRS["P-256"]))


def edge(**default: Any) -> str:
    """Return a Gateway with an HTTPS listener, and the `default` of its client certificates."""
    https = listener(443, "https", protocol="HTTPS", tls={"certificateRefs": [{"name": "server"}]})
    status = {"addresses": [{"value": "127.0.0.1"}]}
    return manifest(gateway("edge", https, tls={"frontend": {"default": default}}, status=status))


def bundle(text: str) -> str:
    return manifest(config_map("ca", {"ca.crt": text}))


def signed(mode: str = "AllowValidOnly") -> str:
    refs = [{"group": "", "kind": "ConfigMap", "name": "ca"}]
    return edge(validation={"caCertificateRefs": refs, "mode": mode})


def test_clients_that_need_a_certificate_are_a_change(tmp_path: Path) -> None:
    before, after = [SERVER, bundle(EMPLOYEES), edge()], [SERVER, bundle(EMPLOYEES), signed()]
    place = "certificates of clients of Gateway default/edge, port 443"
    needed = "required, signed by an authority in ConfigMap default/ca"
    assert list(lines(planned(tmp_path / "1", before, after))) == [f"{place}: not requested -> {needed}"]
    assert list(lines(planned(tmp_path / "2", after, before))) == [f"{place}: {needed} -> not requested"]
    fallback = [SERVER, bundle(EMPLOYEES), signed("AllowInsecureFallback")]
    assert list(lines(planned(tmp_path / "3", after, fallback))) == [
        f"{place}: {needed} -> requested, but not required, signed by an authority in ConfigMap default/ca"
    ]


def test_other_authorities_are_a_change_with_the_config_map_as_its_cause(tmp_path: Path) -> None:
    differences = planned(tmp_path, [SERVER, bundle(EMPLOYEES), signed()], [SERVER, bundle(PARTNERS), signed()])
    (change,) = differences.client_certificates
    assert change.after_message == f"{change.before_message}, with other authorities"
    assert [cause.object for cause in change.causes] == [CONFIG_MAP.key("default", "ca")]
