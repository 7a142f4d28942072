"""The request that a backend receives, after the filters of the route and of the share (docs/tasks/gateway-api.md)."""

import pytest

from headgate.model.applied_filters import authorization_request, backend_request
from headgate.model.requests import NO_FILTERS, Filters, HeaderEdit, Match, Path, PathEdit, Request, Rewrite
from headgate.model.routing import ExternalAuth, PortRef, Route, Split


def arrived(target="/old/x?q=1", prefix="/old", *, edit=None, share=NO_FILTERS, headers=(), **filters):
    rewrite = Rewrite(path=PathEdit(kind=edit[0], value=edit[1])) if edit else None
    made = Filters(**({"rewrite": rewrite} | filters))
    route = Route(split=Split(targets=()), match=Match(path=Path(kind="prefix", value=prefix)), filters=made)
    return backend_request(Request(authority="a.example", target=target, headers=headers), route, share)


@pytest.mark.parametrize(
    ("target", "prefix", "edit", "wanted"),
    [
        ("/old/x?q=1", "/old", ("full", "/new"), "/new?q=1"),
        ("/old/x?q=1", "/old", ("prefix", "/new"), "/new/x?q=1"),
        ("/old", "/old/", ("prefix", "/new/"), "/new"),
        ("/old/x", "/old", ("prefix", "/"), "/x"),
        ("/old", "/old", ("prefix", "/"), "/"),
        ("/x", "/", ("prefix", "/new"), "/new/x"),
        ("/x", "/", None, "/x"),
    ],
)
def test_path_rewrites_follow_the_gateway_api(target, prefix, edit, wanted):
    assert arrived(target, prefix, edit=edit).target == wanted


def test_header_edits_ignore_case():
    edit = HeaderEdit(set=(("A", "new"),), add=(("b", "more"),), remove=("C",))
    found = arrived(headers=(("a", "old"), ("b", "one"), ("c", "gone"), ("d", "stays")), request=edit)
    assert found.headers == (("b", "one"), ("d", "stays"), ("A", "new"), ("b", "more"))


def test_filters_of_a_share_apply_after_those_of_the_route():
    share = Filters(rewrite=Rewrite(hostname="v2.example"), request=HeaderEdit(set=(("a", "share"),)))
    found = arrived(share=share, request=HeaderEdit(set=(("a", "route"), ("host", "v1.example"))))
    assert (found.authority, found.headers) == ("v2.example", (("a", "share"),))


@pytest.mark.parametrize(
    ("server", "asked"),
    [
        (
            {"protocol": "HTTP", "path": "check", "headers": ("x-user",)},
            ("PUT", "/check/a?q=1", ("Authorization", "x-user")),
        ),
        ({"protocol": "HTTP"}, ("PUT", "/a?q=1", ("Authorization",))),
        ({"protocol": "GRPC"}, ("POST", "/envoy.service.auth.v3.Authorization/Check", ())),
    ],
)
def test_an_authorization_server_is_asked_by_a_request_of_its_own(server, asked):
    headers = (("Authorization", "token"), ("x-user", "a"), ("x-other", "b"))
    request = Request(method="PUT", authority="a.example", target="/a?q=1", headers=headers)
    sent = authorization_request(ExternalAuth(ref=PortRef("default/auth", 9000), **server), request)
    assert (sent.method, sent.target, tuple(name for name, _ in sent.headers)) == asked
