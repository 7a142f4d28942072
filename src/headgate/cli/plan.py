"""`headgate plan`: what a change to objects does to requests and access; and checks of access, for CI."""

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from headgate.cli.arguments import PATHS, ApiOptions, check_paths, parse_kind_and_name, with_api_options
from headgate.cli.common_options import Output, namespace_option
from headgate.cli.inspect_client import InspectClient
from headgate.cli.mesh_options import with_mesh_options
from headgate.cli.offline import compile_manifests, objects_in, reject_mistakes
from headgate.cli.output import EXIT_FAILURE, EXIT_UNDECIDED, Format, answer, note, usage_error
from headgate.cli.placeholders import with_pods
from headgate.cli.plan_rates import ServiceRates, read_rates, recorded_rates
from headgate.cli.plan_text import show
from headgate.compiler.snapshot import Snapshot
from headgate.errors import NotFound
from headgate.manifests import without_effect
from headgate.manifests.files import Manifest, Manifests, read
from headgate.model.authorities import DEFAULT_NAMESPACE
from headgate.options import GivenOptions, InjectionMode
from headgate.plan.annotated import with_files, with_rates
from headgate.plan.checks import CheckOutcome, InvalidCheck, Never, check_claim
from headgate.plan.planning import Plan, PlanSpec, PlanStatus, checked_plan
from headgate.plan.world import World
from headgate.plane.feed import COMPILED
from headgate.resources.meta import Key
from headgate.resources.pod_templates import template_path
from headgate.resources.registry import CANARY, WORKLOADS
from headgate.settings import Settings

_DELETABLE = (*COMPILED, *WORKLOADS)
"""The kinds whose deletion may change requests or access."""
Request = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[[METHOD] PATH]",
        help="With --never: the requests, as a method and a regular expression for the path: GET '/admin/.*'.",
        show_default=False,
    ),
]
Change = Annotated[
    list[Path] | None,
    typer.Option(
        "-f",
        "--filename",
        metavar=PATHS,
        help="The changed manifests; - reads standard input.",
        show_default=False,
    ),
]
Delete = Annotated[
    list[str] | None,
    typer.Option("--delete", metavar="KIND/NAME", help="An object that the change deletes.", show_default=False),
]
Base = Annotated[
    list[Path] | None,
    typer.Option(
        "--base",
        metavar=PATHS,
        help="Manifests that are active; by default the objects of the running headgate.",
        show_default=False,
    ),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="With --base: objects of --base that -f does not have are deleted.")
]
NoNewAccess = Annotated[
    bool, typer.Option("--no-new-access", help="Check that no caller gets access that it does not have now.")
]
NeverOption = Annotated[
    tuple[str, str] | None,
    typer.Option(
        "--never",
        metavar="FROM TO",
        help="Check that after the change FROM may never send a request to TO. Each is KIND/NAME or KIND/NAMESPACE/NAME;"
        " FROM can be gateway.",
        show_default=False,
    ),
]
Metrics = Annotated[
    list[Path] | None,
    typer.Option(
        "--metrics",
        metavar="FILE",
        help="Recorded answer of the metrics API with the rates; by default those of the running headgate.",
        show_default=False,
    ),
]
InNamespace = Annotated[
    str,
    namespace_option(
        "Namespace of objects and of names in --never without one; by default the namespace of the kubeconfig's context, with --base `default`."
    ),
]


@with_api_options
@with_mesh_options("mtls", "access", "sidecars", sidecars="all")
def plan_(
    request: Request = None,
    *,
    filename: Change = None,
    delete: Delete = None,
    base: Base = None,
    prune: Prune = False,
    no_new_access: NoNewAccess = False,
    never: NeverOption = None,
    metrics: Metrics = None,
    namespace: InNamespace = "",
    given: GivenOptions,
    output: Output = Format.TABLE,
    api: ApiOptions,
) -> None:
    """Show what a change to manifests does: which requests are treated differently, and which access is gained or lost.

    Nothing is changed. Each difference has a request as an example, and the file and line that cause it. With --base two
    sets of manifests are compared, without a running headgate.
    """
    if not filename and not delete and never is None:
        raise usage_error("is missing; name the changed manifests, for example -f DIR", option="-f")
    if prune and not base:
        raise usage_error("needs --base; a running headgate keeps the objects that -f does not have", option="--prune")
    client = None if base else InspectClient.of(api)
    place = namespace or (client.client.namespace if client else DEFAULT_NAMESPACE)
    claim = _claim(never, request or (), place)
    changed = _read(filename or (), place)
    deleted = tuple(_deleted(text, place, changed) for text in delete or ())
    spec = PlanSpec(applied=True, deleted=deleted, no_new_access=no_new_access, never=claim)
    before = _read(base or (), place)
    if client is None:
        settings = given.mesh.settings()
        result = _offline(before, changed, spec, prune=prune, settings=settings, sidecars=given.mesh.sidecars)
        rates = ServiceRates()
    else:
        result, rates = asyncio.run(_live(client, changed, spec))
    rates = recorded_rates(metrics) if metrics else rates
    files = {manifest.key: manifest for manifest in (*before.objects, *changed.objects)}
    result = result.with_differences(
        with_rates(with_files(result.differences, lambda key, field: _position(files, key, field)), rates.of)
    )
    shown = Plan(spec=spec, status=result)
    answer(shown, output, lambda: show(result, only_checks=bool(result.verdicts)))
    if code := exit_code(result):
        raise typer.Exit(code)


def exit_code(result: PlanStatus) -> int:
    """Return the exit code for a plan. A verdict that a newer control plane gives, and this version does not know, decides nothing."""
    verdicts = {verdict.verdict for verdict in result.verdicts}
    if CheckOutcome.DOES_NOT_HOLD in verdicts or (not verdicts and not result.differences.is_empty):
        return EXIT_FAILURE
    return 0 if verdicts <= {CheckOutcome.HOLDS} else EXIT_UNDECIDED


def _read(paths: Sequence[Path], namespace: str) -> Manifests:
    manifests = read(check_paths(paths), namespace)
    reject_mistakes(manifests, "plan")
    for line in without_effect.lines(manifests):
        note(line)
    return manifests


def _deleted(text: str, namespace: str, changed: Manifests) -> Key:
    """Return the key of an object that the change deletes. Raises BadParameter."""
    kind, name = parse_kind_and_name(text, _DELETABLE)
    if kind not in _DELETABLE:
        raise usage_error(f"{kind.plural} change no requests by themselves; leave out {text}", option="--delete")
    key = kind.key(namespace, name)
    if any(manifest.key == key for manifest in changed.objects):
        raise usage_error(f"{key} is in the manifests of -f too; remove it from one of them", option="--delete")
    return key


def _claim(never: tuple[str, str] | None, request: Sequence[str], namespace: str) -> Never | None:
    if never is None:
        if request:
            raise usage_error(f"{' '.join(request)!r} is a request; it needs --never FROM TO", option="REQUEST")
        return None
    claim = Never(caller=never[0], server=never[1], request=" ".join(request), namespace=namespace)
    try:
        check_claim(claim)
    except InvalidCheck as error:
        raise usage_error(str(error), option="--never") from None
    return claim


def _offline(
    before: Manifests,
    changed: Manifests,
    spec: PlanSpec,
    *,
    prune: bool,
    settings: Settings,
    sidecars: InjectionMode,
) -> PlanStatus:
    new = {manifest.key: manifest for manifest in changed.objects}
    kept = {manifest.key: manifest for manifest in before.objects}
    for key in spec.deleted:
        if kept.pop(key, None) is None:
            raise NotFound(f"{key} is not in --base, so it can't be deleted; correct the name, or give -n NAMESPACE")
    kept = {} if prune else {key: manifest for key, manifest in kept.items() if not _is_deleted_with(key, spec.deleted)}
    after = Manifests(changed.roots, tuple((kept | new).values()))
    # a Service whose pods only one side has is without pods on the other side
    unserved = frozenset[Key]().union(*(with_pods(objects_in(manifests)) for manifests in (before, after)))
    old, now = (compile_manifests(manifests, settings, sidecars, unserved) for manifests in (before, after))
    first, second = ({manifest.key: manifest.object for manifest in manifests.objects} for manifests in (before, after))
    differing = frozenset(key for key in first.keys() | second.keys() if first.get(key) != second.get(key))
    snapshots = old.snapshot, now.snapshot
    makers = {key: maker for snapshot in snapshots for key, maker in _made(snapshot)}
    differing |= {key for key, maker in makers.items() if maker in differing}
    world = World(old.compiled, now.compiled, differing, second.keys(), snapshots, makers, first.keys() - second.keys())
    return checked_plan(world, spec)


def _is_deleted_with(key: Key, deleted: Collection[Key]) -> bool:
    """Return whether an object is in a deleted namespace."""
    return any(deleted_key.kind == "Namespace" and deleted_key.name == key.namespace for deleted_key in deleted)


def _made(snapshot: Snapshot) -> Iterator[tuple[Key, Key]]:
    """Yield the objects that Canaries and workloads own, each with its owner."""
    makers = {kind.kind: kind for kind in (CANARY, *WORKLOADS)}
    for key, resource in snapshot.objects.items():
        for reference in resource.metadata.owner_references:
            if kind := makers.get(reference.kind):
                yield key, kind.key(key.namespace, reference.name)


async def _live(client: InspectClient, changed: Manifests, spec: PlanSpec) -> tuple[PlanStatus, ServiceRates]:
    objects = tuple(
        manifest.object
        for manifest in changed.objects
        if not manifest.kind.without_effect or template_path(manifest.object)
    )
    result = await client.plan(spec.with_objects(objects))
    if result.ignored:
        kinds = (key.kind for key in result.ignored)
        note(without_effect.counted(kinds, "left out, because such objects change no requests by themselves"))
    return result, await read_rates(client)


def _position(files: Mapping[Key, Manifest], key: Key, field: str) -> tuple[str, int]:
    manifest = files.get(key)
    if manifest is None:
        return "", 0
    problem = manifest.problem(field, "")
    return problem.file, problem.line
