"""A/B tests: matching requests go to the split's backends, the rest to the root Service (R11 to R16, D4 to D8)."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.draws import TIMES
from tests.e2e.manifests import annotated, external, split_manifest
from tests.e2e.running_mesh import RunningMesh, assert_healthy
from tests.waiting import until

EXAMPLE = Path(__file__).parents[2] / "examples" / "ab-test"
FIREFOX = {"user-agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"}
CURL = {"user-agent": "curl/8.5.0"}


def group(name: str, *matches: Mapping[str, Any], version: str = "v1alpha4", shape: str = "spec") -> str:
    """Return an HTTPRouteGroup; with the shape `top` its matches are at top level, not in `spec`."""
    content = {"spec": {"matches": matches}} if shape == "spec" else {"matches": matches}
    head = {"apiVersion": f"specs.smi-spec.io/{version}", "kind": "HTTPRouteGroup", "metadata": {"name": name}}
    return json.dumps(head | content)


def matching(manifest: str, *groups: str) -> str:
    """Restrict a split to the requests that HTTPRouteGroups match."""
    obj = json.loads(manifest)
    obj["spec"]["matches"] = [{"kind": "HTTPRouteGroup", "name": name} for name in groups]
    return json.dumps(obj)


def ab_split(*groups: str, weights: Mapping[str, int] | None = None, name: str = "ab-test") -> str:
    return matching(split_manifest(name, "website", weights or {"website-v1": 0, "website-v2": 100}), *groups)


@pytest.fixture
def website(mesh: RunningMesh, namespace: str) -> str:
    """Create a root Service with an endpoint and two versions; return the namespace."""
    parts = (("website", "root"), ("website-v1", "v1"), ("website-v2", "v2"))
    mesh.apply(*(external(name, mesh.backend(backend)) for name, backend in parts), namespace=namespace)
    return namespace


def sent(mesh: RunningMesh, namespace: str, count: int = 20, **request: Any) -> Counter[str]:
    return mesh.send(count, mesh.request("website", 8080, namespace=namespace, **request))


def test_firefox_users_get_the_new_version_and_other_users_the_root(mesh: RunningMesh, website: str) -> None:
    """R11, R12, R14, R15: the example of specification 001, verbatim."""
    firefox = group("firefox-users", {"name": "firefox", "headers": [{"user-agent": ".*Firefox.*"}]}, shape="top")
    mesh.apply(firefox, ab_split("firefox-users"), namespace=website)
    assert sent(mesh, website, 100, headers=FIREFOX) == {"v2": 100}
    assert sent(mesh, website, 100, headers=CURL) == {"root": 100}
    assert sent(mesh, website, 100) == {"root": 100}
    assert sent(mesh, website, headers={"user-agent": "not a firefox"}) == {"root": 20}
    assert sent(mesh, website, headers={"USER-AGENT": "Firefox"}, via="proxy") == {"v2": 20}


def test_requests_with_the_insider_cookie_are_split_exactly_by_weight(mesh: RunningMesh, website: str) -> None:
    """R7, R11: the weights are 3 to 1."""
    insiders = group("insiders", {"name": "cookie", "headers": {"cookie": "(.*;)?\\s*insider=yes(;.*)?"}})
    mesh.apply(insiders, ab_split("insiders", weights={"website-v1": 3, "website-v2": 1}), namespace=website)
    assert sent(mesh, website, 100, headers={"cookie": "lang=en; insider=yes; a=b"}) == {"v1": 75, "v2": 25}
    assert sent(mesh, website, 100, headers={"cookie": "insider=yes"}) == {"v1": 75, "v2": 25}
    assert sent(mesh, website, 100, headers={"cookie": "insider=yesterday"}) == {"root": 100}
    assert sent(mesh, website, 100) == {"root": 100}


@pytest.mark.parametrize("version", ["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"])
@pytest.mark.parametrize("shape", ["spec", "top"])
@pytest.mark.parametrize("headers", [{"x-a": "1", "x-b": "2"}, [{"x-a": "1"}, {"x-b": "2"}]], ids=["map", "list"])
def test_a_group_of_every_shape_is_readable_in_every_api_version(
    mesh: RunningMesh, namespace: str, version: str, shape: str, headers: Any
) -> None:
    """R14, D4: headers as a map or as a list, matches in `spec` or at top level."""
    written = group("g", {"name": "both", "headers": headers}, version=version, shape=shape)
    mesh.apply(written, namespace=namespace)
    headers_map = {"x-a": "1", "x-b": "2"}
    for read in ("v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"):
        obj = mesh.api.call("GET", f"/apis/specs.smi-spec.io/{read}/namespaces/{namespace}/httproutegroups/g")
        assert obj["apiVersion"] == f"specs.smi-spec.io/{read}"
        inside = obj if read in {"v1alpha1", "v1alpha2"} else obj["spec"]
        assert inside["matches"] == [{"name": "both", "headers": headers_map}]
        assert ("spec" in obj) == (read in {"v1alpha3", "v1alpha4"})


def test_kubectl_gets_and_describes_an_http_route_group(mesh: RunningMesh, namespace: str) -> None:
    written = group("g", {"name": "m", "pathRegex": "/a", "methods": ["GET"]})
    mesh.kubectl("apply", "-n", namespace, "-f", "-", stdin=written)
    assert "g " in mesh.kubectl("get", "htr", "-n", namespace)
    described = mesh.kubectl("describe", "httproutegroup", "g", "-n", namespace)
    assert "Path Regex" in described
    assert "/a" in described
    assert "unchanged" in mesh.kubectl("apply", "-n", namespace, "-f", "-", stdin=written)


@pytest.mark.parametrize(
    ("path", "backend"),
    [
        ("/metrics", "v2"),
        ("/metrics/x", "v2"),
        ("/metricsx?y=z", "v2"),
        ("/a/metrics", "root"),
        ("/Metrics", "root"),
        ("/?/metrics", "root"),
    ],
)
def test_a_path_expression_matches_at_the_start_of_the_path(
    mesh: RunningMesh, website: str, path: str, backend: str
) -> None:
    """D5: the expression is anchored at the start, and open at the end."""
    mesh.apply(group("g", {"name": "m", "pathRegex": "/metrics"}), ab_split("g"), namespace=website)
    assert sent(mesh, website, 3, target=path) == {backend: 3}


def test_a_dollar_in_a_path_expression_matches_the_end_of_the_path(mesh: RunningMesh, website: str) -> None:
    mesh.apply(group("g", {"name": "m", "pathRegex": "^/a|/b$"}), ab_split("g"), namespace=website)
    for path, backend in {"/ac": "v2", "/b": "v2", "/bc": "root", "/b?c": "v2"}.items():
        assert sent(mesh, website, 2, target=path) == {backend: 2}


def test_a_request_must_satisfy_all_conditions_of_a_single_match(mesh: RunningMesh, website: str) -> None:
    """R13: the matches of several groups are alternatives."""
    mesh.apply(
        group("g1", {"name": "both", "headers": {"x-a": "1", "X-B": "2.*"}, "pathRegex": "/x", "methods": ["GET"]}),
        group("g2", {"name": "put", "methods": ["PUT"]}, {"name": "y", "pathRegex": "/y", "methods": ["*"]}),
        ab_split("g1", "g2"),
        namespace=website,
    )
    both = {"x-a": "1", "x-b": "22"}
    assert sent(mesh, website, 3, target="/x", headers=both) == {"v2": 3}
    assert sent(mesh, website, 3, target="/z", headers=both) == {"root": 3}
    assert sent(mesh, website, 3, target="/x", headers={"x-a": "1"}) == {"root": 3}
    assert sent(mesh, website, 3, target="/x", headers=both | {"x-a": "11"}) == {"root": 3}
    assert sent(mesh, website, 3, target="/y") == {"v2": 3}


def test_the_status_names_a_missing_group_which_matches_no_request(mesh: RunningMesh, website: str) -> None:
    """R16, D6: existing groups still match; without any existing group all requests go to the root."""
    mesh.apply(group("known", {"name": "m", "pathRegex": "/x"}), ab_split("gone", "known"), namespace=website)
    assert sent(mesh, website, 3, target="/x") == {"v2": 3}
    assert sent(mesh, website, 3) == {"root": 3}
    status, _, message = mesh.conditions("ab-test", website, ResolvedRefs="MatchNotFound")["ResolvedRefs"]
    assert status == "False"
    assert f"{website}/gone" in message
    mesh.event("MatchNotFound", "ab-test", website)
    mesh.delete("httproutegroup/known", website)
    mesh.settle()
    assert sent(mesh, website, 3, target="/x") == {"root": 3}
    mesh.apply(group("gone", {"name": "m", "pathRegex": "/x"}), namespace=website)
    assert sent(mesh, website, 3, target="/x") == {"v2": 3}


def test_the_api_rejects_an_invalid_expression_and_names_its_field(mesh: RunningMesh, website: str) -> None:
    """D5: the last valid group stays active."""
    mesh.apply(group("g", {"name": "m", "pathRegex": "/x"}), ab_split("g"), namespace=website)
    done = mesh.try_kubectl(
        "apply", "-n", website, "-f", "-", stdin=group("g", {"name": "m", "headers": {"a": "(?!x)"}})
    )
    assert done.returncode != 0
    assert "spec.matches[0].headers.a" in done.stderr
    assert "RE2" in done.stderr
    assert sent(mesh, website, 3, target="/x") == {"v2": 3}


def test_a_large_expression_reaches_the_proxy(mesh: RunningMesh, website: str) -> None:
    """Envoy's default limit for the RE2 program size of an expression is 100."""
    mesh.apply(group("g", {"name": "m", "headers": {"x-id": "[0-9a-f]{600}"}}), ab_split("g"), namespace=website)
    assert sent(mesh, website, 3, headers={"x-id": "a" * 600}) == {"v2": 3}
    assert sent(mesh, website, 3, headers={"x-id": "a" * 599}) == {"root": 3}


def test_up_reports_an_invalid_group_in_a_file_and_applies_the_valid_group(new_mesh: Any) -> None:
    """D6: the split keeps its valid groups."""
    mesh = new_mesh()
    parts = (("website", "root"), ("website-v1", "v1"), ("website-v2", "v2"))
    mesh.write("services.yaml", as_list([external(name, mesh.backend(backend)) for name, backend in parts]))
    good = group("good", {"name": "m", "headers": [{"x-user": "a.*"}]}, shape="top", version="v1alpha2")
    bad = group("bad", {"name": "m", "pathRegex": "/x("})
    mesh.write("ab.yaml", as_list([good, ab_split("good", "bad")]))
    line = mesh.write("bad.yaml", bad)
    problem = next(item for item in line["problems"] if "pathRegex" in str(item))
    assert "missing )" in str(problem)
    assert sent(mesh, "default", 3, headers={"x-user": "alice"}) == {"v2": 3}
    assert sent(mesh, "default", 3, headers={"x-user": "bob"}) == {"root": 3}
    mesh.write("bad.yaml", group("bad", {"name": "m", "pathRegex": "/x"}))
    assert sent(mesh, "default", 3, target="/x") == {"v2": 3}


def as_list(manifests: Sequence[str]) -> str:
    return "\n---\n".join(manifests)


def test_splits_with_matches_precede_those_without_and_older_splits_precede_younger_ones(
    mesh: RunningMesh, website: str
) -> None:
    """D8."""
    everything = split_manifest("all", "website", {"website-v1": 1, "website-v2": 1})
    mesh.apply(everything, group("x", {"name": "x", "pathRegex": "/x"}), namespace=website)
    assert sent(mesh, website, 20) == {"v1": 10, "v2": 10}
    mesh.apply(ab_split("x", weights={"website-v2": 1}, name="z-first"), namespace=website)
    mesh.conditions("z-first", website, Programmed="True")
    mesh.apply(ab_split("x", weights={"website-v1": 1}, name="a-second"), namespace=website)
    assert sent(mesh, website, 20, target="/x") in ({"v2": 20}, {"v1": 20})
    assert sent(mesh, website, 20) == {"v1": 10, "v2": 10}
    mesh.delete("trafficsplit/z-first", website)
    mesh.settle()
    assert sent(mesh, website, 20, target="/x") == {"v1": 20}


def test_a_split_with_a_match_for_all_requests_precedes_a_split_without_matches(
    mesh: RunningMesh, website: str
) -> None:
    """R13: each split keeps its own weights."""
    mesh.apply(
        group("all", {"name": "all", "methods": ["*"]}),
        ab_split("all", weights={"website-v1": 1}),
        split_manifest("rest", "website", {"website-v2": 1}),
        namespace=website,
    )
    assert sent(mesh, website) == {"v1": 20}
    mesh.delete("trafficsplit/ab-test", website)
    mesh.settle()
    assert sent(mesh, website) == {"v2": 20}


def test_the_status_of_a_split_with_matches_has_the_weight_of_each_backend(mesh: RunningMesh, website: str) -> None:
    mesh.apply(
        group("g", {"name": "m", "pathRegex": "/x"}),
        ab_split("g", weights={"website-v1": 3, "website-v2": 1}),
        namespace=website,
    )

    def ports() -> Any:
        return (mesh.get("trafficsplit/ab-test", website).get("status") or {}).get("ports")

    (port,) = until(ports)
    assert port["port"] == 8080
    assert [entry["weight"] for entry in port["backends"]] == [3, 1]


def test_a_sticky_split_with_matches_sets_cookies_only_for_matching_requests(mesh: RunningMesh, website: str) -> None:
    """Insiders keep their backend; other users get the root Service and no cookie."""
    insiders = group("insiders", {"name": "m", "headers": {"x-insider": "yes"}})
    sticky = annotated(ab_split("insiders", weights={"website-v1": 1, "website-v2": 1}), sticky="cookie:side")
    mesh.apply(insiders, sticky, namespace=website)
    request = mesh.request("website", 8080, namespace=website, headers={"x-insider": "yes"})
    seen = set()
    for _ in range(TIMES):
        first = mesh.ask(request)
        cookie = first.headers["set-cookie"].partition(";")[0]
        seen.add(first.answered_by)
        again = request._replace(headers={"x-insider": "yes", "cookie": f"a=b; {cookie}"})
        assert {mesh.ask(again).answered_by for _ in range(3)} == {first.answered_by}
    assert seen == {"v1", "v2"}
    outsider = mesh.ask(mesh.request("website", 8080, namespace=website))
    assert outsider.answered_by == "root"
    assert "set-cookie" not in outsider.headers


def test_the_ab_test_example_splits_users_as_documented(new_mesh: Any) -> None:
    """examples/ab-test: Firefox users get v2, other users v1, and an insider always the same version."""
    mesh = new_mesh(manifests={path.name: path.read_text() for path in EXAMPLE.glob("*.yaml")})
    assert_healthy(mesh)

    def versions(count: int, headers: Mapping[str, str]) -> set[str]:
        request = mesh.request("website", 8080, via="proxy", headers=headers)
        return {mesh.ask(request).answered_by.split()[0] for _ in range(count)}

    until(lambda: versions(6, CURL) == {"v1"} and versions(6, FIREFOX) == {"v2"})
    sides = [versions(5, {"cookie": f"insider=yes; side=user-{number}"}) for number in range(12)]
    assert all(len(side) == 1 for side in sides)
    assert set().union(*sides) == {"v1", "v2"}
    assert versions(20, CURL) == {"v1"}
