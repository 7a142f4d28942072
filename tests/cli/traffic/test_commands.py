"""The commands of `kubectl traffic`: their requests, their output, and their errors (R99 to R107)."""

import io
import json
from functools import partial
from typing import Any

import pytest
import yaml
from rich.console import Console
from tests.cli.traffic.conftest import InProcessPlugin, refusal
from tests.cli.traffic.responses import API, RELEASED, SEED, deployments, leg, listed, traffic_metrics

from headgate.cli.traffic import commands

BASE = f"/apis/{API}"
PODS = listed(traffic_metrics("foo", 54), traffic_metrics("bar", 27, 27), kind="Pod", namespace="default")


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
        (["top", "pods", "-o", "wide"], "/namespaces/default/pods?uncertainty=true"),
        (["top", "pod/foo", "-o", "wide", "--window=1m"], "/namespaces/default/pods/foo?t=1m&uncertainty=true"),
        (["top", "pods", "--sort-by", "stddev"], "/namespaces/default/pods?uncertainty=true"),
        (["top", "pod/foo"], "/namespaces/default/pods/foo"),
        (["top", "pods", "foo"], "/namespaces/default/pods/foo"),
        (["edges", "svc/foo", "--window=30s"], "/namespaces/default/services/foo/edges?t=30s"),
        (["edges", "svc/foo", "-l", "app=a"], "/namespaces/default/services/foo/edges?labelSelector=app%3Da"),
        (["edges", "svc/foo", "--by", "namespace"], "/namespaces/default/services/foo/edges?by=namespace"),
        (["edges", "ns", "shop", "--by=kind"], "/namespaces/shop/edges?by=kind"),
    ],
)
def test_arguments_become_the_path_and_query_of_the_request(plugin: InProcessPlugin, arguments: list[str], path: str):
    # R104: the kinds, and the options -n, -A and -l.
    plugin.responses = {BASE + path.partition("?")[0]: listed(traffic_metrics("foo", 1))}
    ran = plugin.run(*arguments)
    assert ran.code == 0, ran.err
    assert plugin.requests == [BASE + path]


def test_all_namespaces_adds_a_namespace_column(plugin: InProcessPlugin):
    plugin.responses[f"{BASE}/pods"] = listed(traffic_metrics("foo", 30, namespace="shop"))
    assert plugin.ok("top", "pods", "-A").splitlines()[1].split() == ["shop", "foo", "100.00%", "1.0rps", "1ms"]


def test_json_and_yaml_output_is_the_response_of_the_api(plugin: InProcessPlugin):
    plugin.responses[f"{BASE}/namespaces/default/pods"] = PODS
    assert json.loads(plugin.ok("top", "pods", "-o", "json")) == PODS
    assert yaml.safe_load(plugin.ok("top", "pods", "-o", "yaml")) == PODS


def test_edges_show_both_directions(plugin: InProcessPlugin):
    plugin.responses = deployments(SEED, failures={("foo", "bar"): 9})
    base = f"{BASE}/namespaces/default/deployments/foo/edges"
    more = {"kind": "Deployment", "direction": "from"}
    plugin.responses[base]["items"] += [
        traffic_metrics("foo", 3, peer=("Outside", "", "gateway"), **more),
        traffic_metrics("foo", 3, peer=("Pod", "shop", "job-x"), **more),
        traffic_metrics("foo", 30, peer=("Deployment", "default", "shadow"), copy=True, kind="Deployment"),
    ]
    assert plugin.ok("edges", "deployment/foo") == (
        "DIRECTION   PEER             SUCCESS      RPS   LATENCY_P99\n"
        "from        traffic          100.00%   1.8rps           1ms\n"
        "from        (gateway)        100.00%   0.1rps           1ms\n"
        "from        pod/shop/job-x   100.00%   0.1rps           1ms\n"
        "to          bar               75.00%   1.2rps           1ms\n"
        "to          baz              100.00%   0.9rps           1ms\n"
        "to          shadow copies    100.00%   1.0rps           1ms\n"
    )


CONNECTIONS = [{"name": "connection_count", "value": "54"}, {"name": "connection_failure_count", "value": "2"}]
BETWEEN = traffic_metrics("foo", 0, kind="Deployment", peer=("Deployment", "default", "db"), more_metrics=CONNECTIONS)


def test_edges_show_connections_of_ports_that_are_not_http(plugin: InProcessPlugin):
    plugin.responses[f"{BASE}/namespaces/default/deployments/foo/edges"] = listed(BETWEEN)
    assert plugin.ok("edges", "deployment/foo").splitlines()[1].split() == ["to", "db", *"---", "54", "2"]
    wide = plugin.ok("edges", "deployment/foo", "-o", "wide")
    assert wide.splitlines()[1].split() == ["to", "db", *"------", "54", "2"]


def test_edges_show_denials_and_the_share_of_mutual_tls(plugin: InProcessPlugin):
    # R68, R74: the wide table has the identities. Without `security` in the response the columns are hidden.
    ids = {"clients": ["spiffe://a/ns/default/sa/thief"], "servers": ["spiffe://a/ns/default/sa/web"]}
    plugin.responses[f"{BASE}/namespaces/default/pods/web/edges"] = listed(
        traffic_metrics(
            "web",
            0,
            direction="from",
            peer=("Pod", "default", "thief"),
            counts={"denied": 9},
            security={"exchanged": 9, "secured": 9, **ids},
        ),
        traffic_metrics(
            "web", 3, direction="from", peer=("Pod", "default", "both"), security={"exchanged": 3, "secured": 1}
        ),
        traffic_metrics(
            "web", 3, direction="from", peer=("Outside", "", "10.0.0.1"), security={"exchanged": 3, "secured": 0}
        ),
    )
    assert plugin.ok("edges", "pod/web") == (
        "DIRECTION   PEER         SUCCESS      RPS   LATENCY_P99   DENIED   SECURED\n"
        "from        (10.0.0.1)   100.00%   0.1rps           1ms        0        no\n"
        "from        both         100.00%   0.1rps           1ms        0    33.33%\n"
        "from        thief              -        -             -        9       yes\n"
    )
    header, *_, thief = plugin.ok("edges", "pod/web", "-o", "wide").splitlines()
    assert header.split()[-3:] == ["SECURED", "CLIENT_ID", "SERVER_ID"]
    assert thief.split()[-3:] == ["yes", *ids["clients"], *ids["servers"]]


def test_a_topology_of_services_draws_each_share_of_a_split_once(plugin: InProcessPlugin):
    # R89, D25: the split's arrows show requests to the root. A backend that is called by its own name has another arrow.
    base = f"{BASE}/namespaces/default/services"

    def to(name: str, called: int) -> Any:
        return traffic_metrics("shop", 10, kind="Service", peer=("Service", "default", name), counts={"called": called})

    shop = listed(to("web", 10), to("web-v1", 0), to("web-v2", 4), to("other", 0))
    plugin.responses = {
        base: listed(
            *(traffic_metrics(name, 10, kind="Service") for name in ("shop", "web", "web-v1", "web-v2", "other"))
        ),
        f"{base}/shop/edges": shop,
        **{f"{base}/{name}/edges": listed() for name in ("web", "web-v1", "web-v2", "other")},
        f"/apis/{RELEASED}/namespaces/default/trafficsplits": listed(
            leg("canary", "web", "web-v1", 90, 9), leg("canary", "web", "web-v2", 10, 1)
        ),
    }
    found = json.loads(plugin.ok("topology", "services", "-o", "json"))["edges"]
    assert {(edge["from"]["name"], edge["to"]["name"], edge["style"]) for edge in found} == {
        ("shop", "web", "calls"),
        ("shop", "web-v2", "calls"),
        ("shop", "other", "calls"),
        ("web", "web-v1", "split"),
        ("web", "web-v2", "split"),
    }


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg", "wide"])
def test_a_labeled_topology_shows_numbers_of_connections(plugin: InProcessPlugin, form: str):
    base = f"{BASE}/namespaces/default/deployments"
    plugin.responses = {
        base: listed(traffic_metrics("foo", 0, kind="Deployment")),
        f"{base}/foo/edges": listed(BETWEEN),
    }
    assert "54 connections, 2 failed" in plugin.ok("topology", "-o", form)
    (edge,) = json.loads(plugin.ok("topology", "-o", "json"))["edges"]
    assert (edge["connections"], edge["failedConnections"], edge["success"]) == (54, 2, 0)


def test_edges_grouped_by_namespace_or_kind_show_the_group(plugin: InProcessPlugin):
    # R88
    path = f"{BASE}/namespaces/default/pods/foo/edges"
    plugin.responses[path] = listed(
        traffic_metrics("foo", 3, peer=("", "shop", "")),
        traffic_metrics("foo", 3, peer=("Deployment", "", "")),
        traffic_metrics("foo", 3, peer=("Outside", "", "")),
    )
    rows = plugin.ok("edges", "pod/foo", "--by", "namespace").splitlines()[1:]
    assert [row.split()[1] for row in rows] == ["shop", "Deployment", "(outside)"]


def test_a_window_longer_than_the_stored_metrics_prints_a_warning(plugin: InProcessPlugin):
    # The API stores the metrics of 15 minutes, so the rates of a longer window need a warning.
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 900, window="15m0s"))
    ran = plugin.run("top", "pods", "--window", "1h")
    assert (ran.code, ran.out.splitlines()[1].split()[2]) == (0, "1.0rps")
    assert ran.err == "Warning: the metrics cover the last 15m0s, because the API stores less than the requested 1h\n"
    assert plugin.run("top", "pods", "--window", "15m").err == ""


def test_a_selector_filters_the_resources_of_a_topology_but_not_their_peers(plugin: InProcessPlugin):
    # R107
    plugin.responses = deployments({("a", "b"): 27})
    assert "| a | --> | b |" in plugin.ok("topology", "-l", "app=a")
    listing, *edges = plugin.requests
    assert listing.endswith("/deployments?labelSelector=app%3Da")
    assert edges
    assert not [path for path in edges if "?" in path]


@pytest.mark.parametrize("form", ["dot", "mermaid", "svg", "json", "yaml", "wide"])
def test_a_topology_in_each_format_names_all_nodes(plugin: InProcessPlugin, form: str):
    # R106
    plugin.responses = deployments(SEED)
    text = plugin.ok("topology", "-o", form)
    assert all(name in text for name in ("traffic", "foo", "bar", "baz"))


def test_a_topology_as_json_has_nodes_and_edges(plugin: InProcessPlugin):
    plugin.responses = deployments({("a", "b"): 27}, failures={("a", "b"): 3})
    found = json.loads(plugin.ok("topology", "-o", "json"))
    assert [node["name"] for node in found["nodes"]] == ["a", "b"]
    (edge,) = found["edges"]
    assert (edge["from"]["name"], edge["to"]["name"], edge["style"]) == ("a", "b", "calls")
    assert (edge["success"], edge["failure"], edge["successRate"], edge["requestsPerSecond"]) == (27, 3, 0.9, 1.0)


def test_a_topology_of_services_shows_the_shares_of_splits(plugin: InProcessPlugin):
    base = f"{BASE}/namespaces/default/services"
    call: dict[str, Any] = {"kind": "Service", "peer": ("Service", "default", "web")}
    plugin.responses = {
        base: listed(traffic_metrics("client", 0, kind="Service"), traffic_metrics("web", 100, kind="Service")),
        f"{base}/client/edges": listed(traffic_metrics("client", 100, **call)),
        f"{base}/web/edges": listed(),
        f"/apis/{RELEASED}/namespaces/default/trafficsplits": listed(
            leg("canary", "web", "web-v1", 90, 90), leg("canary", "web", "web-v2.default.svc.cluster.local", 10, 10)
        ),
    }
    text = plugin.ok("topology", "services")
    assert "= 90% =" in text
    assert "= 10% =" in text
    del plugin.responses[
        f"/apis/{RELEASED}/namespaces/default/trafficsplits"
    ]  # an API that implements only 004 has no splits
    assert "| client | --> | web |" in plugin.ok("topology", "services")


def test_each_split_of_a_service_has_its_own_arrows(plugin: InProcessPlugin):
    plugin.responses[f"/apis/{RELEASED}/namespaces/default/trafficsplits"] = listed(
        leg("firefox", "web", "web-v2", 1, 90),
        leg("insiders", "web", "web-v1", 1, 5),
        leg("insiders", "web", "web-v2", 3, 15),
    )
    picture = plugin.ok("topology", "trafficsplits")
    assert [share for share in ("100%", "25%", "75%") if f" {share} " not in picture] == []
    edges = json.loads(plugin.ok("topology", "trafficsplits", "-o", "json"))["edges"]
    assert {(edge["split"], edge["to"]["name"], edge["weight"]) for edge in edges} == {
        ("default/firefox", "web-v2", 1),
        ("default/insiders", "web-v1", 1),
        ("default/insiders", "web-v2", 3),
    }


def test_a_resource_deleted_after_the_list_has_no_edges(plugin: InProcessPlugin):
    plugin.responses = deployments({("a", "b"): 27}, "gone")
    plugin.responses[BASE] = {"kind": "APIResourceList", "resources": [{"name": "deployments"}]}
    plugin.responses[f"{BASE}/namespaces/default/deployments/gone/edges"] = refusal(
        404, "no such Deployment", "NotFound"
    )
    assert "| a | --> | b |" in plugin.ok("topology")


def test_an_empty_result_prints_a_note_on_stderr(plugin: InProcessPlugin):
    base = f"{BASE}/namespaces/default"
    plugin.responses = {f"{base}/pods": listed(), f"{base}/deployments": listed(), f"{base}/pods/foo/edges": listed()}
    assert plugin.run("top", "pods") == (0, "", "No resources found in default namespace.\n")
    assert plugin.run("topology") == (
        0,
        "",
        "No traffic between deployments in default namespace in the last 30s.\n",
    )
    assert plugin.run("edges", "pod/foo") == (0, "", "No traffic of pod/foo in the last 30s.\n")


def test_a_cluster_without_the_metrics_api_prints_how_to_get_it(plugin: InProcessPlugin):
    ran = plugin.run("top", "pods")
    assert (ran.code, ran.out) == (1, "")
    assert f"no metrics API ({API})" in ran.err
    assert "run `headgate install`, or on one machine `headgate up`" in ran.err
    assert "APIService v1beta1.traffic.metrics.k8s.io" in ran.err


def test_a_missing_kind_and_a_missing_resource_have_different_errors(plugin: InProcessPlugin):
    plugin.responses[BASE] = {"kind": "APIResourceList", "resources": [{"name": "pods"}, {"name": "deployments"}]}
    assert "no metrics of jobs in this cluster; it has deployments, pods" in plugin.run("top", "jobs").err
    plugin.responses[f"{BASE}/namespaces/default/pods/foo"] = refusal(404, 'pods "foo" not found', "NotFound")
    assert plugin.run("top", "pod/foo") == (1, "", 'error: pods "foo" not found\n')
    splits = f"/apis/{RELEASED}"
    plugin.responses[splits] = {"kind": "APIResourceList", "resources": [{"name": "trafficsplits"}]}
    plugin.responses[f"{splits}/namespaces/default/trafficsplits"] = listed(leg("canary", "web", "web-v1", 1, 1))
    plugin.responses[f"{splits}/namespaces/default/trafficsplits/foo"] = refusal(404, 'no split "foo"', "NotFound")
    assert plugin.run("top", "ts/foo") == (1, "", 'error: no split "foo"\n')


@pytest.mark.parametrize(
    ("arguments", "path", "rule"),
    [
        (["top", "pods"], "pods", "resources: [pods], verbs: [list]"),
        (["edges", "pod/foo"], "pods/foo/edges", "resources: [pods/edges], verbs: [get]"),
        (["topology", "pods"], "pods", "resources: [pods], verbs: [list]"),
    ],
)
def test_a_forbidden_request_prints_the_rbac_rule_that_allows_it(
    plugin: InProcessPlugin, arguments: list[str], path: str, rule: str
):
    # R99, R100
    plugin.responses[f"{BASE}/namespaces/default/{path}"] = refusal(403, 'User "me" cannot do that', "Forbidden")
    ran = plugin.run(*arguments)
    assert ran.code == 1
    assert 'User "me" cannot do that' in ran.err
    assert f"apiGroups: [traffic.metrics.k8s.io], {rule}" in ran.err


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (refusal(401, "Unauthorized", "Unauthorized"), "You must be logged in to the server (Unauthorized)"),
        (refusal(503, "no proxy has reported yet", "ServiceUnavailable"), "no proxy has reported yet"),
        ((503, "service unavailable\n"), "`kubectl get apiservice v1beta1.traffic.metrics.k8s.io`"),
        (refusal(500, "it broke", "InternalError"), "responded with 500: it broke"),
        ((200, "[]"), "not a JSON object"),
    ],
)
def test_each_error_status_has_a_message(plugin: InProcessPlugin, answer: Any, words: str):
    plugin.responses[f"{BASE}/namespaces/default/pods"] = answer
    ran = plugin.run("top", "pods")
    assert ran.code in (1, 3)
    assert words in ran.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["top", "cats"], "unknown kind 'cats'; write one of daemonsets, deployments, jobs"),
        (["top", "pods", "--sort-by", "speed"], "no column 'speed'"),
        (["top", "pods", "--window", "soon"], "'--window': 'soon' is not a duration"),
        (["top", "pod/foo", "bar"], "write KIND/NAME"),
        (["edges", "deployments"], "write deployment/NAME"),
        (["top"], "Missing argument"),
        (["--nonsense"], "No such option: --nonsense"),
        (["top", "pods", "-o", "dot"], "'dot' is not one of 'table', 'wide', 'json', 'yaml'"),
        (["top", "pods", "--window", "0s"], "'--window': 0s is not a positive duration"),
        (["top", "pod/shop/foo"], "'shop/foo' is not a resource name; write KIND/NAME, and the namespace with -n"),
        (["edges", "pod", "../foo"], "'../foo' is not a resource name"),
        (["edges", "ts/canary"], "has no edges; use `top trafficsplits/canary` for its backends"),
        (["edges", "pod/foo", "--by", "color"], "'color' is not one of 'each', 'namespace', 'kind'"),
        (["topology", "deploy/foo"], "`topology` takes no name; use `edges deployment/foo` for one resource"),
    ],
)
def test_wrong_usage_exits_with_2_and_sends_no_request(plugin: InProcessPlugin, arguments: list[str], words: str):
    ran = plugin.run(*arguments)
    assert ran.code == 2
    assert words in ran.err
    assert plugin.requests == []


class Pauses:
    """Replaces the pause between two refreshes: sets the next response, and interrupts the command after the last response."""

    def __init__(self, plugin: InProcessPlugin, *responses: Any) -> None:
        self._plugin = plugin
        self._answers = list(responses)

    def __call__(self, _: float) -> None:
        if not self._answers:
            raise KeyboardInterrupt
        self._plugin.responses[f"{BASE}/namespaces/default/pods"] = self._answers.pop(0)


def test_a_watch_prints_each_refresh(plugin: InProcessPlugin, monkeypatch: pytest.MonkeyPatch):
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 30))
    monkeypatch.setattr(commands, "pause", Pauses(plugin, listed(traffic_metrics("foo", 60))))
    ran = plugin.run("top", "pods", "--watch")
    assert ran.code == 130
    assert [line.split()[2] for line in ran.out.splitlines()] == ["RPS", "1.0rps", "RPS", "2.0rps"]


def test_a_watch_on_a_dumb_terminal_prints_each_refresh(plugin: InProcessPlugin, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commands, "Console", partial(Console, force_terminal=True, _environ={"TERM": "dumb"}))
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 30))
    monkeypatch.setattr(commands, "pause", Pauses(plugin, listed(traffic_metrics("foo", 60))))
    ran = plugin.run("top", "pods", "--watch")
    assert [line.split()[2] for line in ran.out.splitlines()] == ["RPS", "1.0rps", "RPS", "2.0rps"]


def test_a_watch_shows_warnings_only_while_the_api_sends_them(plugin: InProcessPlugin, monkeypatch: pytest.MonkeyPatch):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=80, _environ={})
    monkeypatch.setattr(commands, "Console", terminal)
    plugin.warning = "3 requests are not counted"
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed()

    def pause(_: float) -> None:
        if not plugin.warning:
            raise KeyboardInterrupt
        plugin.warning = ""

    monkeypatch.setattr(commands, "pause", pause)
    assert plugin.run("top", "pods", "--watch") == (130, "", "")
    first, second, *_ = screen.getvalue().split("No resources found in default namespace.")
    assert "Warning: 3 requests are not counted" in first
    assert "Warning" not in second


def test_a_watch_refreshes_in_place_and_survives_an_unavailable_api(
    plugin: InProcessPlugin, monkeypatch: pytest.MonkeyPatch
):
    screen = io.StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=40, _environ={})  # the width of the table
    monkeypatch.setattr(commands, "Console", terminal)
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 30))
    away = refusal(503, "no proxy has reported yet", "ServiceUnavailable")
    monkeypatch.setattr(commands, "pause", Pauses(plugin, away, listed(traffic_metrics("foo", 60))))
    assert plugin.run("top", "pods", "--watch").code == 130
    before, first, second, third, *_ = screen.getvalue().split("NAME")
    assert "error" not in before
    assert "1.0rps" in first
    assert "no proxy has reported yet" in " ".join(first.split())  # The whole message, above the second table.
    assert "1.0rps" in second  # The last table remains.
    assert "error" not in second
    assert "2.0rps" in third
    assert "\x1b[1A" in screen.getvalue()  # the cursor moves up: each table replaces the previous table


def test_a_window_shorter_than_two_reports_prints_a_warning(plugin: InProcessPlugin):
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 4, window="4s"))
    warning = "Warning: the metrics cover the last 4s, because proxies report too rarely for the requested 1s\n"
    assert plugin.run("top", "pods", "--window", "1s").err == warning


def test_a_rounded_long_window_prints_no_warning(plugin: InProcessPlugin):
    plugin.responses[f"{BASE}/namespaces/default/pods"] = listed(traffic_metrics("foo", 4, window="4m41.5s"))
    assert plugin.run("top", "pods", "--window", "5m").err == ""
