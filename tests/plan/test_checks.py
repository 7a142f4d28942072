"""Checks of access hold for all requests, or have a counterexample."""

import pytest
from tests.make.objects import authorization_policy, caller_rule, container, deployment, manifest, service
from tests.plan.manifests import (
    SERVICES,
    compiled,
    group,
    path_rule,
    planned,
    target,
    texts_of,
    website_route,
    workload,
)

from headgate.errors import NotFound
from headgate.plan.checks import CheckOutcome, InvalidCheck, Never, check_claim, never, no_new_access
from headgate.plan.departures import Side

PODS = (workload("shop"), workload("web"), workload("thief"))
LOOK = group("g", pathRegex="/items", methods=["GET"])


def claimed(directory, *texts, **claim):
    found = compiled(directory, *PODS, *texts)
    return never(Side(found.compiled.mesh, found.snapshot), Never(**claim))


def test_a_wider_rule_is_a_counterexample_to_no_new_access(tmp_path):
    before = [*PODS, LOOK, target("web", "web")]
    assert no_new_access(planned(tmp_path / "same", before, before)).holds
    narrower = [*PODS, group("g", pathRegex="/items/new", methods=["GET"]), target("web", "web")]
    assert no_new_access(planned(tmp_path / "narrower", before, narrower)).holds
    wider = [*PODS, group("g", pathRegex="/i", methods=["GET"]), target("web", "web")]
    verdict = no_new_access(planned(tmp_path / "wider", before, wider))
    assert not verdict.holds
    (counterexample,) = verdict.counterexamples
    assert (
        "ServiceAccount default/web may send GET, path begins with /i to ServiceAccount default/shop"
        in counterexample.message
    )
    assert counterexample.command == "headgate explain http://shop.default:8080/i --from serviceaccount/web -n default"


@pytest.mark.parametrize(
    ("rules", "message"),
    [
        ([caller_rule("web", ports=[8080])], ""),
        ([], ""),
        ([caller_rule("web", "thief")], "ServiceAccount default/thief may send all requests"),
        ([caller_rule("*")], "every ServiceAccount of namespace default may send all requests"),
        ([{}], "every ServiceAccount and callers without a sidecar may send all requests"),
    ],
)
def test_further_sources_of_an_authorization_policy_are_new_access(tmp_path, rules, message):
    """GEP-3779."""
    before, after = (
        [*PODS, manifest(authorization_policy("p", {"app": "shop"}, *each))] for each in ([caller_rule("web")], rules)
    )
    verdict = no_new_access(planned(tmp_path, before, after))
    assert verdict.holds is not bool(message)
    assert all(message in text for text in texts_of(verdict))
    assert bool(texts_of(verdict)) is bool(message)


def member(name: str, role: str, *served: str) -> str:
    """Return a Deployment of the ServiceAccount `web` whose pods have a role, and are behind the Services `served`."""
    labels = {"app": name, "role": role, **dict.fromkeys(served, "true")}
    template = {"account": "web", "labels": labels}
    return manifest(deployment(name, container("app", 8080), labels={"app": name}, template=template))


@pytest.mark.parametrize("admin", ["a-admin", "z-admin"])
@pytest.mark.parametrize(
    ("new", "holds"),
    [
        (("public", "admin"), False),
        (("public", "public"), True),
        (("admin", "admin"), True),
        (("admin", "admin", "public"), True),
        (("public", "admin", "public"), False),
    ],
)
def test_a_new_pod_behind_a_service_allows_no_more_than_each_of_its_pods(tmp_path, admin, new, holds):
    """All pods have one ServiceAccount, and policies select them by their role."""
    before = [
        manifest(*(service(name, selector={name: "true"}) for name in ("admin", "public"))),
        manifest(authorization_policy("tight", {"role": "admin"}, caller_rule("client"))),
        manifest(authorization_policy("loose", {"role": "public"}, {})),
        member(admin, "admin", "admin"),
        member("b-public", "public", "public"),
    ]
    verdict = no_new_access(planned(tmp_path, before, [*before, member("c-new", *new)]))
    assert verdict.holds is holds
    assert len(set(texts_of(verdict))) == len(texts_of(verdict))


def guarded_by(name: str) -> str:
    """Return a route whose authorization server is a Service."""
    auth = {"protocol": "HTTP", "backendRef": {"name": name, "port": 8080}, "http": {}}
    return website_route(path_rule(v1=1, filters=[{"type": "ExternalAuth", "externalAuth": auth}]))


def test_requests_that_no_longer_need_permission_are_new_access(tmp_path):
    before = [SERVICES, guarded_by("v2")]
    assert no_new_access(planned(tmp_path / "same", before, before)).holds
    assert no_new_access(planned(tmp_path / "more", [SERVICES, website_route(path_rule(v1=1))], before)).holds
    open_ = planned(tmp_path / "open", before, [SERVICES, website_route(path_rule(v1=1))])
    (change,) = open_.requests
    assert change.change_messages == ("external authorization: default/v2:8080 over HTTP -> none",)
    (counterexample,) = no_new_access(open_).counterexamples
    assert counterexample.message == (
        "Service default/website:8080: all requests: decided by default/v2:8080 over HTTP before, allowed without a decision"
    )
    assert no_new_access(planned(tmp_path / "gone", before, [SERVICES, guarded_by("missing")])).holds  # all get 500
    other = no_new_access(planned(tmp_path / "other", before, [SERVICES, guarded_by("v1")]))
    assert (other.verdict, other.counterexamples) == (CheckOutcome.UNDECIDED, ())


def test_a_split_rule_that_allows_the_same_requests_is_no_new_access(tmp_path):
    before = [*PODS, group("g", pathRegex="/(a|b)"), target("web", "web")]
    after = [
        *PODS,
        group("g", pathRegex="/a"),
        group("h", pathRegex="/b"),
        target("web", "web"),
        target("two", "web", group="h"),
    ]
    found = planned(tmp_path, before, after)
    assert not found.gained
    assert not found.lost


def test_never_is_proven_for_a_caller_without_a_rule(tmp_path):
    verdict = claimed(tmp_path, LOOK, target("web", "web"), caller="sa/thief", server="deployment/shop")
    assert verdict.holds
    assert verdict.message == "never serviceaccount default/thief to deployment default/shop"
    assert verdict.reason_messages == ("no rule of 1 pod allows such a request",)


@pytest.mark.parametrize(
    ("request_", "holds"),
    [("", False), ("GET /items/.*", False), ("POST /items.*", True), ("/admin.*", True), ("* /item", True)],
)
def test_never_is_about_the_given_requests(tmp_path, request_, holds):
    verdict = claimed(tmp_path, LOOK, target("web", "web"), caller="sa/web", server="service/shop", request=request_)
    assert verdict.holds is holds
    assert bool(verdict.counterexamples) is not holds


def test_an_open_workload_is_a_counterexample_for_every_caller(tmp_path):
    for number, caller in enumerate(("gateway", "pod/web", "serviceaccount/other/x")):
        verdict = claimed(tmp_path / str(number), caller=caller, server="sa/shop")
        assert not verdict.holds
        assert "because of it is open" in verdict.counterexamples[0].message


def test_a_pod_without_a_sidecar_is_a_counterexample(tmp_path):
    bare = workload("bare", **{"headgate.dev/inject": "false"})
    verdict = claimed(tmp_path, bare, caller="sa/web", server="deployment/bare")
    assert texts_of(verdict) == ["pod default/bare has no sidecar, so it allows all requests"]


@pytest.mark.parametrize(
    ("claim", "message"),
    [
        ({"caller": "web", "server": "sa/shop"}, "'web' names no caller or server"),
        ({"caller": "sa/", "server": "sa/shop"}, "names no caller or server"),
        ({"caller": "sa/a/b/c", "server": "sa/shop"}, "names no caller or server"),
        ({"caller": "sa/web", "server": "gateway"}, "TO can't be the gateway"),
        ({"caller": "sa/web", "server": "sa/shop", "request": "GET items"}, "must begin with a slash"),
        ({"caller": "sa/web", "server": "sa/shop", "request": "GET /("}, "is not a regular expression"),
    ],
)
def test_an_invalid_claim_names_the_mistake(claim, message):
    with pytest.raises(InvalidCheck, match=message.replace("(", "\\(")):
        check_claim(Never(**claim))


def test_a_claim_about_a_server_without_pods_proves_nothing(tmp_path):
    with pytest.raises(NotFound, match="no pod of serviceaccount default/gone exists"):
        claimed(tmp_path, caller="sa/web", server="sa/gone")
