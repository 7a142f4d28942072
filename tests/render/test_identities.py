"""What a rendered proxy leaves out because it has no identity of the mesh."""

from tests.make.objects import authorization_policy, backed_service, caller_rule, meshed_pod, tls_config
from tests.make.values import compiled

from headgate.render.identities import identity_omissions
from headgate.render.omissions import OmissionReason

APP = {"app": "web"}
MESH = (meshed_pod("web", "10.1.0.1", labels=APP), *backed_service("web", ("web", "10.1.0.1")))


def omitted(*objects):
    """Return the kinds of the omitted objects behind the routes of a mesh, with the reasons."""
    mesh = compiled(*MESH, *objects).mesh
    routes = [route for table in mesh.tables for route in table.routes]
    return [(omission.origin.kind, omission.reason) for omission in identity_omissions(mesh, routes)]


def test_pods_and_policies_that_need_an_identity_are_named():
    named = [("Pod", OmissionReason.ACCESS), ("XAuthorizationPolicy", OmissionReason.ACCESS)]
    assert omitted() == []
    assert omitted(authorization_policy("p", APP, caller_rule("client", ports=[8080, 9090]))) == named
    assert omitted(tls_config("strict", APP)) == [("Pod", OmissionReason.MUTUAL_TLS)]


def test_a_policy_for_all_callers_needs_no_identity():
    """GEP-3779: a rule without sources allows plaintext too."""
    assert omitted(authorization_policy("p", APP, {})) == []
