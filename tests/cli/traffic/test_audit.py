"""`kubectl traffic audit`: the calls that TrafficTargets in audit mode would refuse."""

import json

from tests.cli.traffic.conftest import InProcessPlugin

PATH = "/apis/inspect.headgate.dev/v1beta1/namespaces/default/callrecords"
EVERYWHERE = "/apis/inspect.headgate.dev/v1beta1/callrecords"
LAST = "2026-01-01T00:00:00Z"
RECORDS = {
    "kind": "CallRecordList",
    "items": [
        {
            "metadata": {"name": "web", "namespace": "default"},
            "port": port,
            "protocol": protocol,
            "caller": caller,
            "plaintextCaller": plaintext,
            "calls": 9,
            "lastCallTime": LAST,
            "wouldRefuse": refused,
        }
        for port, protocol, caller, plaintext, refused in (
            (8080, "HTTP", "default/buyer", "", 0),
            (8080, "HTTP", "default/thief", "", 5),
            (0, "TCP", "", "192.0.2.1", 12),
        )
    ],
}
ROWS = """\
DESTINATION   PORT   PROTOCOL   CALLER                    WOULD_REFUSE                   LAST
web           -      TCP        192.0.2.1 (no identity)             12   2026-01-01T00:00:00Z
web           8080   HTTP       default/thief                        5   2026-01-01T00:00:00Z
"""


def test_only_callers_that_would_be_refused_are_shown_those_with_most_calls_first(plugin: InProcessPlugin) -> None:
    plugin.responses[PATH] = RECORDS
    assert plugin.ok("audit") == ROWS
    assert [item["wouldRefuse"] for item in json.loads(plugin.ok("audit", "-o", "json"))] == [12, 5]


def test_destinations_of_all_namespaces_have_their_namespace(plugin: InProcessPlugin) -> None:
    plugin.responses[EVERYWHERE] = RECORDS
    assert "\ndefault/web   8080   HTTP       default/thief " in plugin.ok("audit", "-A")


def test_without_calls_that_would_be_refused_a_note_says_so(plugin: InProcessPlugin) -> None:
    plugin.responses[PATH] = {"items": []}
    ran = plugin.run("audit")
    assert (ran.code, ran.out) == (0, "")
    assert ran.err == "No TrafficTarget in audit mode in default namespace would have refused a call.\n"


def test_errors_name_the_next_step(plugin: InProcessPlugin) -> None:
    def error(response: object, *arguments: str) -> tuple[int, str]:
        plugin.responses[PATH] = response
        ran = plugin.run("audit", *arguments)
        return ran.code, ran.err

    code, message = error(RECORDS, "-A", "-n", "x")
    assert (code, "'-A': selects all namespaces; leave out -n" in message) == (2, True)
    for missing in ("404 page not found", {"message": "the server could not find the requested resource"}):
        code, text = error((404, missing))
        assert (code, "no inspect API" in text, "`headgate install`" in text) == (1, True, True)
    code, text = error((403, {"message": "forbidden"}))
    assert "apiGroups: [inspect.headgate.dev], resources: [callrecords], verbs: [list]" in text
    code, text = error((503, {"message": "not ready"}))
    assert (code, text) == (3, "error: the API responded with 503: not ready\n")
    code, text = error((502, "bad gateway"))
    assert (code, "can't be reached (bad gateway)" in text) == (3, True)
    code, text = error({"items": 1})
    assert (code, "is not a list of recorded calls" in text) == (1, True)
