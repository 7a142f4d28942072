"""The request counts in the table of `headgate up --watch`, read from a real Envoy."""

from tests.envoy.rig import EnvoyRig
from tests.waiting import until

from headgate.standalone.request_counters import BackendRequests, RequestCounters


def observed(rig: EnvoyRig) -> list[BackendRequests]:
    """Read the counters of the proxy."""
    return list(rig.network.run(RequestCounters(lambda: {"gateway": rig.envoy.admin}).read()))


def test_the_counters_return_requests_and_failures_of_each_backend() -> None:
    with EnvoyRig() as rig:
        for name in ("one", "two", "gone"):
            rig.echo(name)
        rig.apply(rig.route("one", "two"))
        rig.ask_when_listening()
        before = observed(rig)
        rig.echoes["two"].status = "503 Busy"
        rig.load(20)
        first = {item.backend: item.requests for item in before}
        wanted = {"default/one": (first["default/one"] + 10, 0), "default/two": (first["default/two"] + 10, 10)}

        def counted() -> bool:  # failures are in histograms, which Envoy merges periodically
            counts = {item.backend: (item.requests, item.failures) for item in observed(rig)}
            assert counts == wanted
            return True

        until(counted)
