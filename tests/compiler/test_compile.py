"""The work of a fork of the compiler, which computes warnings about an object before it is written."""

from collections import Counter

from tests.make.objects import backed_service, meshed_pod, split

from headgate.compiler import compile as module
from headgate.compiler.compile import Compiler
from headgate.plane.feed import snapshot_of, with_objects
from headgate.resources.registry import key_of
from headgate.settings import Settings

SPLIT = split("web", {"web-v1": 1})


def test_a_fork_computes_only_the_stages_that_read_the_new_object(monkeypatch):
    calls = Counter()
    for name in ("endpoints", "pod_ports", "workloads", "apply_policies", "identified", "gateway_pods"):
        stage = getattr(module, name)

        def counted(*values, name=name, stage=stage):
            calls[name] += 1
            return stage(*values)

        monkeypatch.setattr(module, name, counted)
    objects = [
        meshed_pod("web-1", "10.0.0.1"),
        *backed_service("web", ("web-1", "10.0.0.1")),
        *backed_service("web-v1", ("", "10.0.0.2")),
    ]
    snapshot = snapshot_of({key_of(item): item for item in objects})
    compiler = Compiler()
    compiler.compile(snapshot, Settings())
    assert set(calls) == {"endpoints", "pod_ports", "workloads", "apply_policies", "identified", "gateway_pods"}
    calls.clear()
    found = compiler.fork().compile(with_objects(snapshot, {key_of(SPLIT): SPLIT}), Settings())
    assert found.report.outcomes
    assert not calls
