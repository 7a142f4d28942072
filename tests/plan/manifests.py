"""Short manifests for tests of plans, and the plan of a change of them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.make import objects
from tests.make.objects import Object, manifest

from headgate.cli.offline import CompiledFiles, compile_manifests
from headgate.manifests.files import read
from headgate.options import InjectionMode
from headgate.plan.checks import CheckVerdict
from headgate.plan.plan import Differences, plan
from headgate.plan.world import World
from headgate.settings import Settings

SERVICES = objects.manifest(
    objects.service("website", selector={"app": "website"}),
    *(objects.service(name, selector={"app": "website", "version": name}) for name in ("v1", "v2")),
)


def split_of(v1: Any, v2: Any, *, name: str = "website", group: str = "", **annotations: str) -> str:
    """Return a TrafficSplit of the Service website between v1 and v2."""
    matches = [group] if group else []
    keys = objects.headgate_keys(**annotations)
    return manifest(objects.split("website", {"v1": v1, "v2": v2}, name=name, matches=matches, annotations=keys))


def group(name: str, **match: Any) -> str:
    """Return an HTTPRouteGroup with the match `m`."""
    return manifest(objects.http_route_group(name, {"m": match}))


def website_route(*rules: Object) -> str:
    """Return an HTTPRoute for the Service website."""
    return manifest(objects.route("website", *rules, parents=[objects.service_parent("website", 8080)]))


def path_rule(path: str = "", *, v1: int = 0, v2: int = 0, **fields: Any) -> Object:
    """Return a rule of an HTTPRoute with a path prefix and weights of backends; a weight of 0 leaves the backend out."""
    matches: Object = {"matches": [objects.path_match(path)]} if path else {}
    return objects.rule({name: weight for name, weight in (("v1", v1), ("v2", v2)) if weight}, **matches, **fields)


def workload(name: str, **labels: str) -> str:
    """Return a Deployment and its Service; `labels` has further labels of its pods."""
    template = {"account": name, "labels": {"app": name, **labels}}
    selector = {"app": name}
    deployed = objects.deployment(name, objects.container("app", 8080), labels=selector, template=template)
    return manifest(deployed, objects.service(name, selector=selector))


def target(name: str, *callers: str, server: str = "shop", group: str = "g") -> str:
    """Return a TrafficTarget that allows the requests of a group."""
    return manifest(objects.traffic_target(name, server, callers, [objects.http_rule(group)]))


def compiled(directory: Path, *texts: str, sidecars: InjectionMode = "all", **settings: Any) -> CompiledFiles:
    """Return the compiled texts of manifests, each of which may have several documents."""
    directory.mkdir(parents=True, exist_ok=True)
    for number, text in enumerate(texts):
        (directory / f"{number}.yaml").write_text(text)
    found = read([directory])
    assert not found.problems, found.problems
    return compile_manifests(found, Settings(**settings), sidecars)


def planned(directory: Path, before: Sequence[str], after: Sequence[str], **settings: Any) -> Differences:
    """Return the plan of a change between two lists of texts."""
    one, other = (
        compiled(directory / name, *texts, **settings) for name, texts in (("before", before), ("after", after))
    )
    old, new = ({part.key: part.object for part in files.manifests.objects} for files in (one, other))
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    return plan(World(one.compiled, other.compiled, changed, new.keys(), (one.snapshot, other.snapshot)))


def texts_of(verdict: CheckVerdict) -> list[str]:
    """Return the counterexamples of a verdict as texts."""
    return [counterexample.message for counterexample in verdict.counterexamples]
