"""The commands: what they ask the API, what they make of its answers, and of its refusals (R99 to R107)."""

import io
import json
from functools import partial
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.plugin.answers import API, RELEASED, SEED, deployments, leg, listed, metrics
from tests.plugin.conftest import Told, refusal

from headgate.plugin import commands

BASE = f"/apis/{API}"
PODS = listed(metrics("foo", 54), metrics("bar", 27, 27), kind="Pod", namespace="default")


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (["top", "deploy"], "/namespaces/default/deployments"),
        (["top", "pods", "-n", "shop"], "/namespaces/shop/pods"),
        (["top", "pods", "-A"], "/pods"),
        (["top", "namespaces"], "/namespaces"),
        (["top", "nodes", "-n", "shop"], "/nodes"),
        (["top", "pods", "-l", "app=foo,tier!=db"], "/namespaces/default/pods?labelSelector=app%3Dfoo%2Ctier%21%3Ddb"),
        (["top", "pods", "--window", "30s"], "/namespaces/default/pods?t=30s"),
        (["top", "pod/foo"], "/namespaces/default/pods/foo"),
        (["top", "pods", "foo"], "/namespaces/default/pods/foo"),
        (["edges", "svc/foo", "--window=30s"], "/namespaces/default/services/foo/edges?t=30s"),
        (["edges", "svc/foo", "-l", "app=a"], "/namespaces/default/services/foo/edges?labelSelector=app%3Da"),
        (["edges", "svc/foo", "--by", "namespace"], "/namespaces/default/services/foo/edges?by=namespace"),
        (["edges", "ns", "shop", "--by=kind"], "/namespaces/shop/edges?by=kind"),
    ],
)
def test_what_is_typed_is_what_is_asked(told: Told, arguments: list[str], path: str):
    # R104: kinds, -n, -A, -l
    told.answers = {BASE + path.partition("?")[0]: listed(metrics("foo", 1))}
    ran = told.run(*arguments)
    assert ran.code == 0, ran.err
    assert told.asked == [BASE + path]


def test_all_namespaces_are_told_apart_by_a_column(told: Told):
    told.answers[f"{BASE}/pods"] = listed(metrics("foo", 30, namespace="shop"))
    assert told.ok("top", "pods", "-A").splitlines()[1].split() == ["shop", "foo", "100.00%", "1.0rps", "1ms"]


def test_json_and_yaml_are_what_the_api_said(told: Told):
    told.answers[f"{BASE}/namespaces/default/pods"] = PODS
    assert json.loads(told.ok("top", "pods", "-o", "json")) == PODS
    assert yaml.safe_load(told.ok("top", "pods", "-o", "yaml")) == PODS


def test_edges_show_both_directions(told: Told):
    told.answers = deployments(SEED, failures={("foo", "bar"): 9})
    base = f"{BASE}/namespaces/default/deployments/foo/edges"
    more = {"kind": "Deployment", "direction": "from"}
    told.answers[base]["items"] += [
        metrics("foo", 3, peer=("Outside", "", "gateway"), **more),
        metrics("foo", 3, peer=("Pod", "shop", "job-x"), **more),
        metrics("foo", 30, peer=("Deployment", "default", "shadow"), copy=True, kind="Deployment"),
    ]
    assert told.ok("edges", "deployment/foo") == (
        "DIRECTION   PEER             SUCCESS      RPS   LATENCY_P99\n"
        "from        traffic          100.00%   1.8rps           1ms\n"
        "from        (gateway)        100.00%   0.1rps           1ms\n"
        "from        pod/shop/job-x   100.00%   0.1rps           1ms\n"
        "to          bar               75.00%   1.2rps           1ms\n"
        "to          baz              100.00%   0.9rps           1ms\n"
        "to          shadow copies    100.00%   1.0rps           1ms\n"
    )


CONNECTED = [{"name": "connection_count", "value": "54"}, {"name": "connection_failure_count", "value": "2"}]
BETWEEN = metrics("foo", 0, kind="Deployment", peer=("Deployment", "default", "db"), beyond=CONNECTED)


def test_edges_show_connections_of_ports_that_are_not_http(told: Told):
    told.answers[f"{BASE}/namespaces/default/deployments/foo/edges"] = listed(BETWEEN)
    assert told.ok("edges", "deployment/foo").splitlines()[1].split() == ["to", "db", *"---", "54", "2"]
    wide = told.ok("edges", "deployment/foo", "-o", "wide")
    assert wide.splitlines()[1].split() == ["to", "db", *"------", "54", "2"]


def test_edges_say_what_was_refused_and_what_went_by_mutual_tls(told: Told):
    # R68, R74: who by, in wide tables; an API that does not say it has no such column
    ids = {"clients": ["spiffe://a/ns/default/sa/thief"], "servers": ["spiffe://a/ns/default/sa/web"]}
    told.answers[f"{BASE}/namespaces/default/pods/web/edges"] = listed(
        metrics(
            "web",
            0,
            direction="from",
            peer=("Pod", "default", "thief"),
            counts={"denied": 9},
            security={"exchanged": 9, "secured": 9, **ids},
        ),
        metrics("web", 3, direction="from", peer=("Pod", "default", "both"), security={"exchanged": 3, "secured": 1}),
        metrics("web", 3, direction="from", peer=("Outside", "", "10.0.0.1"), security={"exchanged": 3, "secured": 0}),
    )
    assert told.ok("edges", "pod/web") == (
        "DIRECTION   PEER         SUCCESS      RPS   LATENCY_P99   DENIED   SECURED\n"
        "from        (10.0.0.1)   100.00%   0.1rps           1ms        0        no\n"
        "from        both         100.00%   0.1rps           1ms        0    33.33%\n"
        "from        thief              -        -             -        9       yes\n"
    )
    header, *_, thief = told.ok("edges", "pod/web", "-o", "wide").splitlines()
    assert header.split()[-3:] == ["SECURED", "CLIENT_ID", "SERVER_ID"]
    assert thief.split()[-3:] == ["yes", *ids["clients"], *ids["servers"]]


def test_a_topology_of_services_draws_a_share_of_a_split_once(told: Told):
    # R89, D25: backends have received what was called by the name of the root; they have arrows of their own when called
    base = f"{BASE}/namespaces/default/services"

    def to(name: str, called: int) -> Any:
        return metrics("shop", 10, kind="Service", peer=("Service", "default", name), counts={"called": called})

    shop = listed(to("web", 10), to("web-v1", 0), to("web-v2", 4), to("other", 0))
    told.answers = {
        base: listed(*(metrics(name, 10, kind="Service") for name in ("shop", "web", "web-v1", "web-v2", "other"))),
        f"{base}/shop/edges": shop,
        **{f"{base}/{name}/edges": listed() for name in ("web", "web-v1", "web-v2", "other")},
        f"/apis/{RELEASED}/namespaces/default/trafficsplits": listed(
            leg("canary", "web", "web-v1", 90, 9), leg("canary", "web", "web-v2", 10, 1)
        ),
    }
    found = json.loads(told.ok("topology", "services", "-o", "json"))["edges"]
    assert {(edge["from"]["name"], edge["to"]["name"], edge["style"]) for edge in found} == {
        ("shop", "web", "calls"),
        ("shop", "web-v2", "calls"),
        ("shop", "other", "calls"),
        ("web", "web-v1", "split"),
        ("web", "web-v2", "split"),
    }


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg", "wide"])
def test_a_topology_with_numbers_has_those_of_connections(told: Told, form: str):
    base = f"{BASE}/namespaces/default/deployments"
    told.answers = {base: listed(metrics("foo", 0, kind="Deployment")), f"{base}/foo/edges": listed(BETWEEN)}
    assert "54 connections, 2 failed" in told.ok("topology", "-o", form)
    (edge,) = json.loads(told.ok("topology", "-o", "json"))["edges"]
    assert (edge["connections"], edge["failedConnections"], edge["success"]) == (54, 2, 0)


def test_edges_by_namespace_or_kind_name_what_tells_them_apart(told: Told):
    # R88
    path = f"{BASE}/namespaces/default/pods/foo/edges"
    told.answers[path] = listed(
        metrics("foo", 3, peer=("", "shop", "")),
        metrics("foo", 3, peer=("Deployment", "", "")),
        metrics("foo", 3, peer=("Outside", "", "")),
    )
    rows = told.ok("edges", "pod/foo", "--by", "namespace").splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["shop", "Deployment", "(outside)"]


def test_a_window_that_the_api_does_not_have_is_told(told: Told):
    # 15 minutes are kept: rates of a window that was not asked for need a word
    told.answers[f"{BASE}/namespaces/default/pods"] = listed(metrics("foo", 900, window="15m0s"))
    ran = told.run("top", "pods", "--window", "1h")
    assert (ran.code, ran.out.splitlines()[1].split()[2]) == (0, "1.0rps")
    assert ran.err == "Warning: these are the numbers of the last 15m0s: the API has none of the last 1h\n"
    assert told.run("top", "pods", "--window", "15m").err == ""


def test_labels_choose_what_a_topology_begins_with_and_not_its_peers(told: Told):
    # R107
    told.answers = deployments({("a", "b"): 27})
    assert "| a | --> | b |" in told.ok("topology", "-l", "app=a")
    listing, *edges = told.asked
    assert listing.endswith("/deployments?labelSelector=app%3Da")
    assert edges
    assert not [path for path in edges if "?" in path]


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg", "json", "yaml", "wide"])
def test_a_topology_in_each_form_names_everybody(told: Told, form: str):
    # R106
    told.answers = deployments(SEED)
    text = told.ok("topology", "-o", form)
    assert all(name in text for name in ("traffic", "foo", "bar", "baz"))


def test_a_topology_for_scripts(told: Told):
    told.answers = deployments({("a", "b"): 27}, failures={("a", "b"): 3})
    found = json.loads(told.ok("topology", "-o", "json"))
    assert [node["name"] for node in found["nodes"]] == ["a", "b"]
    (edge,) = found["edges"]
    assert (edge["from"]["name"], edge["to"]["name"], edge["style"]) == ("a", "b", "calls")
    assert (edge["success"], edge["failure"], edge["successRate"], edge["requestsPerSecond"]) == (27, 3, 0.9, 1.0)


def test_services_have_the_shares_of_their_splits(told: Told):
    base = f"{BASE}/namespaces/default/services"
    call: dict[str, Any] = {"kind": "Service", "peer": ("Service", "default", "web")}
    told.answers = {
        base: listed(metrics("client", 0, kind="Service"), metrics("web", 100, kind="Service")),
        f"{base}/client/edges": listed(metrics("client", 100, **call)),
        f"{base}/web/edges": listed(),
        f"/apis/{RELEASED}/namespaces/default/trafficsplits": listed(
            leg("canary", "web", "web-v1", 90, 90), leg("canary", "web", "web-v2.default.svc.cluster.local", 10, 10)
        ),
    }
    text = told.ok("topology", "services")
    assert "= 90% =" in text
    assert "= 10% =" in text
    del told.answers[f"/apis/{RELEASED}/namespaces/default/trafficsplits"]  # an implementation of 004 alone has none
    assert "| client | --> | web |" in told.ok("topology", "services")


def test_each_of_several_splits_of_a_service_has_arrows_of_its_own(told: Told):
    told.answers[f"/apis/{RELEASED}/namespaces/default/trafficsplits"] = listed(
        leg("firefox", "web", "web-v2", 1, 90),
        leg("insiders", "web", "web-v1", 1, 5),
        leg("insiders", "web", "web-v2", 3, 15),
    )
    picture = told.ok("topology", "trafficsplits")
    assert [share for share in ("100%", "25%", "75%") if f" {share} " not in picture] == []
    edges = json.loads(told.ok("topology", "trafficsplits", "-o", "json"))["edges"]
    assert {(edge["split"], edge["to"]["name"], edge["weight"]) for edge in edges} == {
        ("default/firefox", "web-v2", 1),
        ("default/insiders", "web-v1", 1),
        ("default/insiders", "web-v2", 3),
    }


def test_what_went_away_since_it_was_listed_has_no_edges(told: Told):
    told.answers = deployments({("a", "b"): 27}, "gone")
    told.answers[BASE] = {"kind": "APIResourceList", "resources": [{"name": "deployments"}]}
    told.answers[f"{BASE}/namespaces/default/deployments/gone/edges"] = refusal(404, "no such Deployment", "NotFound")
    assert "| a | --> | b |" in told.ok("topology")


def test_nothing_to_show_is_said_beside_the_output(told: Told):
    base = f"{BASE}/namespaces/default"
    told.answers = {f"{base}/pods": listed(), f"{base}/deployments": listed(), f"{base}/pods/foo/edges": listed()}
    assert told.run("top", "pods") == (0, "", "No pods found in the namespace default.\n")
    assert told.run("topology") == (0, "", "No traffic between deployments in the namespace default in the last 30s.\n")
    assert told.run("edges", "pod/foo") == (0, "", "pod/foo exchanged nothing in the last 30s.\n")


def test_a_cluster_without_the_api_says_what_to_do(told: Told):
    ran = told.run("top", "pods")
    assert (ran.code, ran.out) == (1, "")
    assert f"no metrics API ({API})" in ran.err
    assert "`headgate up`" in ran.err
    assert "APIService v1beta1.traffic.metrics.k8s.io" in ran.err


def test_a_kind_that_the_api_does_not_have_is_told_from_a_resource_that_is_not_there(told: Told):
    told.answers[BASE] = {"kind": "APIResourceList", "resources": [{"name": "pods"}, {"name": "deployments"}]}
    assert "no metrics of jobs here; it has deployments, pods" in told.run("top", "jobs").err
    told.answers[f"{BASE}/namespaces/default/pods/foo"] = refusal(404, 'pods "foo" not found', "NotFound")
    assert told.run("top", "pod/foo") == (1, "", 'error: pods "foo" not found\n')
    splits = f"/apis/{RELEASED}"
    told.answers[splits] = {"kind": "APIResourceList", "resources": [{"name": "trafficsplits"}]}
    told.answers[f"{splits}/namespaces/default/trafficsplits"] = listed(leg("canary", "web", "web-v1", 1, 1))
    told.answers[f"{splits}/namespaces/default/trafficsplits/foo"] = refusal(404, 'no split "foo"', "NotFound")
    assert told.run("top", "ts/foo") == (1, "", 'error: no split "foo"\n')


@pytest.mark.parametrize(
    ("arguments", "path", "rule"),
    [
        (["top", "pods"], "pods", "resources: [pods], verbs: [list]"),
        (["edges", "pod/foo"], "pods/foo/edges", "resources: [pods/edges], verbs: [get]"),
        (["topology", "pods"], "pods", "resources: [pods], verbs: [list]"),
    ],
)
def test_who_may_not_is_told_which_rule_allows_it(told: Told, arguments: list[str], path: str, rule: str):
    # R99, R100
    told.answers[f"{BASE}/namespaces/default/{path}"] = refusal(403, 'User "me" cannot do that', "Forbidden")
    ran = told.run(*arguments)
    assert ran.code == 1
    assert 'User "me" cannot do that' in ran.err
    assert f"apiGroups: [traffic.metrics.k8s.io], {rule}" in ran.err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusal(401, "Unauthorized", "Unauthorized"), "does not know you"),
        (refusal(503, "no proxy has reported yet", "ServiceUnavailable"), "no proxy has reported yet"),
        ((503, "service unavailable\n"), "`kubectl get apiservice v1beta1.traffic.metrics.k8s.io`"),
        (refusal(500, "it broke", "InternalError"), "answers with 500: it broke"),
        ((200, "[]"), "no JSON object"),
    ],
)
def test_each_refusal_says_what_it_is(told: Told, answer: Any, words: str):
    told.answers[f"{BASE}/namespaces/default/pods"] = answer
    ran = told.run("top", "pods")
    assert ran.code in (1, 3)
    assert words in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["top", "cats"], "there are no metrics of 'cats'; write one of pods, deployments"),
        (["top", "pods", "--sort-by", "speed"], "no column 'speed'"),
        (["top", "pods", "--window", "soon"], "--window: 'soon' is not a duration"),
        (["top", "pod/foo", "bar"], "write KIND/NAME"),
        (["edges", "deployments"], "Write deployment/NAME"),
        (["top"], "Missing argument"),
        (["--nonsense"], "No such option: --nonsense"),
        (["top", "pods", "-o", "dot"], "'dot' is not one of 'table', 'wide', 'json', 'yaml'"),
        (["top", "pods", "--window", "0s"], "--window: 0s is no time"),
        (["top", "pod/shop/foo"], "'shop/foo' is no name: write KIND/NAME, and the namespace with -n"),
        (["edges", "pod", "../foo"], "'../foo' is no name"),
        (["edges", "ts/canary"], "has no edges: `top trafficsplits/canary` has its backends"),
        (["edges", "pod/foo", "--by", "color"], "'color' is not one of 'each', 'namespace', 'kind'"),
        (["topology", "deploy/foo"], "a topology has all deployments; `edges deployment/foo` shows one"),
    ],
)
def test_wrong_usage_is_2_and_asks_nobody(told: Told, arguments: list[str], words: str):
    ran = told.run(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert told.asked == []


class Pauses:
    """Stands for the time between two looks: changes what is answered, and interrupts after the last change."""

    def __init__(self, told: Told, *answers: Any) -> None:
        self._told = told
        self._answers = list(answers)

    def __call__(self, _: float) -> None:
        if not self._answers:
            raise KeyboardInterrupt
        self._told.answers[f"{BASE}/namespaces/default/pods"] = self._answers.pop(0)


def test_a_watch_shows_each_look(told: Told, monkeypatch: pytest.MonkeyPatch):
    told.answers[f"{BASE}/namespaces/default/pods"] = listed(metrics("foo", 30))
    monkeypatch.setattr(commands, "pause", Pauses(told, listed(metrics("foo", 60))))
    ran = told.run("top", "pods", "--watch")
    assert ran.code == 130
    assert [line.split()[2] for line in ran.out.splitlines()] == ["RPS", "1.0rps", "RPS", "2.0rps"]


def test_a_watch_on_a_terminal_that_can_go_nowhere_shows_each_look_too(told: Told, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commands, "Console", partial(Console, force_terminal=True, _environ={"TERM": "dumb"}))
    told.answers[f"{BASE}/namespaces/default/pods"] = listed(metrics("foo", 30))
    monkeypatch.setattr(commands, "pause", Pauses(told, listed(metrics("foo", 60))))
    ran = told.run("top", "pods", "--watch")
    assert [line.split()[2] for line in ran.out.splitlines()] == ["RPS", "1.0rps", "RPS", "2.0rps"]


def test_a_watch_says_what_was_not_counted_and_only_as_long_as_it_is_so(told: Told, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=80, _environ={})
    monkeypatch.setattr(commands, "Console", terminal)
    told.warning = "what a proxy had no room for: 3"
    told.answers[f"{BASE}/namespaces/default/pods"] = listed()

    def pause(_: float) -> None:
        if not told.warning:
            raise KeyboardInterrupt
        told.warning = ""

    monkeypatch.setattr(commands, "pause", pause)
    assert told.run("top", "pods", "--watch") == (130, "", "")
    first, second, *_ = screen.getvalue().split("No pods found in the namespace default.")
    assert "Warning: what a proxy had no room for: 3" in first
    assert "Warning" not in second


def test_a_watch_on_a_terminal_refreshes_in_place_and_outlives_an_api_that_is_away(
    told: Told, monkeypatch: pytest.MonkeyPatch
):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=40, _environ={})  # as wide as the table
    monkeypatch.setattr(commands, "Console", terminal)
    told.answers[f"{BASE}/namespaces/default/pods"] = listed(metrics("foo", 30))
    away = refusal(503, "no proxy has reported yet", "ServiceUnavailable")
    monkeypatch.setattr(commands, "pause", Pauses(told, away, listed(metrics("foo", 60))))
    assert told.run("top", "pods", "--watch").code == 130
    before, first, second, third, *_ = screen.getvalue().split("NAME")
    assert "error" not in before
    assert "1.0rps" in first
    assert "no proxy has reported yet" in " ".join(first.split())  # above the second look: all of it, however narrow
    assert "1.0rps" in second  # what was last known stays, with a word why it is old
    assert "error" not in second
    assert "2.0rps" in third
    assert "\x1b[1A" in screen.getvalue()  # the cursor goes up: each look replaces the one before
