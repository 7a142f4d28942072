"""Compile manifests without a cluster, with placeholders for values that a cluster sets, such as addresses.

A Service without clusterIP and a Gateway without address get a loopback address. `placeholders` adds pods and
endpoints. The result is the same on every machine.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from headgate.admission.workloads import DEFAULTERS
from headgate.cli import placeholders
from headgate.cli.arguments import check_paths
from headgate.cli.output import note
from headgate.cli.placeholders import SLICE, selector
from headgate.compiler.compile import compile_mesh
from headgate.compiler.report import Compiled
from headgate.compiler.snapshot import SERVICE_NAME_LABEL, Snapshot
from headgate.errors import HeadgateError, Invalid
from headgate.manifests.files import Manifests, read
from headgate.options import InjectionMode
from headgate.plane.feed import snapshot_of
from headgate.resources.gateway_api.gateway import GROUP as GATEWAY_GROUP
from headgate.resources.gateway_api.gateway import IP_ADDRESS
from headgate.resources.meta import Key, Object, labels_of, part, rows
from headgate.resources.registry import SERVICE
from headgate.settings import Settings
from headgate.standalone.address_pool import FIRST_RANGE, AddressPool
from headgate.standalone.controllers.services import complete_service, service_user


class CompiledFiles(NamedTuple):
    """Manifests, the snapshot of their objects with placeholders, and the compiled mesh with its report."""

    manifests: Manifests
    snapshot: Snapshot
    compiled: Compiled


def compile_files(paths: Sequence[Path], settings: Settings = Settings()) -> CompiledFiles:
    """Read and compile files. Raises HeadgateError when they have no objects, BadParameter for a missing path."""
    manifests = read(check_paths(paths))
    if not (manifests.objects or manifests.left_out or manifests.problems):
        named = ", ".join(map(str, paths))
        raise HeadgateError(f"found no objects in {named}; manifests are files with the suffix .yaml, .yml or .json")
    return compile_manifests(manifests, settings)


def reject_mistakes(manifests: Manifests, result: str) -> None:
    """Raise HeadgateError for mistakes in manifests, and print them: a part of the objects would give a wrong `result`."""
    for problem in manifests.problems:
        note(str(problem))
    if manifests.problems:
        raise HeadgateError(
            f"the manifests have mistakes, so there is no {result}; correct them, or see `headgate check`"
        )


def compile_manifests(
    manifests: Manifests,
    settings: Settings = Settings(),
    sidecars: InjectionMode = "all",
    unserved: Collection[Key] = (),
) -> CompiledFiles:
    """Compile the objects of files that were read. The Services in `unserved` have only the pods of the files."""
    snapshot = snapshot_of(with_placeholders(objects_in(manifests), settings.domain, sidecars, unserved))
    return CompiledFiles(manifests, snapshot, compile_mesh(snapshot, settings))


def objects_in(manifests: Manifests) -> Mapping[Key, Object]:
    """Return the objects of files with the values that an API server completes."""
    objects = {manifest.key: manifest.object for manifest in manifests.objects}
    completing = {key: DEFAULTERS.get((obj["apiVersion"], obj["kind"])) for key, obj in objects.items()}
    return objects | {key: complete(objects[key]) for key, complete in completing.items() if complete}


def with_placeholders(
    objects: Mapping[Key, Object], domain: str, sidecars: InjectionMode = "all", unserved: Collection[Key] = ()
) -> Mapping[Key, Object]:
    """Return the objects with placeholders for missing pods, addresses and endpoints; without endpoints for Services in `unserved`."""
    addresses = AddressPool(FIRST_RANGE)
    objects = {**placeholders.splits(objects, domain), **objects}
    completed = {**objects, **placeholders.pods(objects, addresses, sidecars)}
    with_slices = set(_services_with_slices(objects))
    for key in sorted(key for key in objects if (key.group, key.kind) == (SERVICE.group, SERVICE.kind)):
        completed[key] = service = _with_service_address(objects[key], addresses)
        if selector(service) and (key.namespace, key.name) not in with_slices:
            made = placeholders.slices(completed, service, addresses, is_served=key not in unserved)
            completed = {**made, **completed}
    for key in sorted(key for key in objects if (key.group, key.kind) == (GATEWAY_GROUP, "Gateway")):
        completed[key] = _with_gateway_address(objects[key], addresses.allocate(str(key), "services"))
    return completed


def _with_gateway_address(gateway: Object, address: str) -> Object:
    status = gateway.get("status") or {}
    requested = part(gateway, "spec").get("addresses")
    values = (
        requested_address.get("value")
        for _, requested_address in rows(requested)
        if requested_address.get("type", IP_ADDRESS) == IP_ADDRESS
    )
    given = next((value for value in values if value), address)
    return {**gateway, "status": {"addresses": [{"type": IP_ADDRESS, "value": given}], **status}}


def _services_with_slices(objects: Mapping[Key, Object]) -> Iterator[tuple[str, str]]:
    """Yield namespace and name of each Service that has EndpointSlices in the files."""
    for key, obj in objects.items():
        if key.kind == SLICE:
            yield key.namespace, labels_of(obj).get(SERVICE_NAME_LABEL, "")


def _with_service_address(service: Object, addresses: AddressPool) -> Object:
    try:
        return complete_service(
            service, None, choose=lambda requested: requested or addresses.allocate(service_user(service), "services")
        )
    except Invalid:  # the compiler reports the invalid object
        return service
