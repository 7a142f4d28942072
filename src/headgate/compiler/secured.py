"""Workloads with what is wanted of them: mutual TLS (R72 to R78), and who may call them (R68 to R70, D21)."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.compiler import bypasses, unenforced
from headgate.compiler.bypasses import Bypasses
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, Selected
from headgate.compiler.snapshot import Snapshot, account_of
from headgate.compiler.targets import DESTINATION, Targets
from headgate.compiler.tls_configs import SELECTOR, TlsConfigs
from headgate.model.routing import Stage, Workload
from headgate.resources.meta import Key
from headgate.resources.pods import INJECT
from headgate.settings import Settings

_REPLACE = (
    "Replace the pods (kubectl rollout restart): new pods that a TLSConfig selects get a sidecar, unless they say "
    f'{INJECT}: "false" or headgate runs with --sidecars none'
)
_STAGES = {"off": Stage.PLAIN, "permissive": Stage.PERMISSIVE, "strict": Stage.STRICT}


class Secured(NamedTuple):
    """The workloads, and what is told about the objects that are about them."""

    workloads: tuple[Workload, ...]
    findings: tuple[Finding, ...]
    selected: tuple[Selected, ...]


def secure(
    snapshot: Snapshot, settings: Settings, workloads: tuple[Workload, ...], stages: Mapping[str, Stage]
) -> Secured:
    """Return the workloads with their stage and access; `stages` has those that are not what is wanted yet."""
    configs, targets = TlsConfigs(snapshot), Targets(snapshot, settings)
    done = {}
    for item in workloads:
        account = account_of(item.name, snapshot.pods[item.name])
        target = _target(item.name, account, configs, targets=targets, settings=settings)
        done[item.name] = structs.replace(
            item,
            target=target,
            stage=stages.get(item.name, target),
            subjects=configs.subjects(item.name),
            access=targets.access(account),
        )
    pods = {key: snapshot.pods_of_account.get(account, ()) for key, account in targets.accounts.items()}
    about_targets = [unenforced.selected(snapshot, key, names) for key, names in pods.items()]
    about_configs = [unenforced.selected(snapshot, key, names) for key, names in configs.pods.items()]
    found = {key: [done[name] for name in names if name in done] for key, names in pods.items()}
    selecting = {name for item in (*about_targets, *about_configs) for name in item.workloads}
    past = bypasses.bypasses(snapshot, [item for name, item in done.items() if name in selecting], settings)
    findings = [
        *targets.findings,
        *targets.not_applicable(found),
        *configs.merged(done),
        *_about_targets(about_targets, targets.accounts, past),
        *_about_configs(about_configs, past),
    ]
    selected = sorted([*about_targets, *about_configs], key=lambda item: item.about)
    return Secured(tuple(done.values()), tuple(findings), tuple(selected))


def _target(pod: str, account: str, configs: TlsConfigs, *, targets: Targets, settings: Settings) -> Stage:
    """Return what is wanted of a workload: who calls is known by certificate only, so a TrafficTarget needs TLS."""
    if configs.is_selected(pod):
        return Stage.STRICT
    stage = _STAGES[settings.mtls]
    return Stage.PERMISSIVE if stage is Stage.PLAIN and targets.is_selected(account) else stage


def _about_targets(found: Iterable[Selected], accounts: Mapping[Key, str], past: Bypasses) -> Iterator[Finding]:
    for item in found:
        account = accounts[item.about]
        unselected = (
            f"no pod runs as ServiceAccount {account}; set serviceAccountName in the pod template, or correct the name"
        )
        effect = "every client may do everything"
        yield from unenforced.findings(item, DESTINATION, unselected=unselected, effect=effect)
        yield from _bypassed(item, DESTINATION, past, effect)


def _about_configs(found: Iterable[Selected], past: Bypasses) -> Iterator[Finding]:
    for item in found:
        unselected = f"no pod of the namespace {item.about.namespace} has all of these labels"
        effect = "these pods take plaintext and send plaintext"
        yield from unenforced.findings(item, SELECTOR, unselected=unselected, effect=effect, remedy=_REPLACE)
        yield from _bypassed(item, SELECTOR, past, "every client may send plaintext")


def _bypassed(item: Selected, field: str, past: Bypasses, effect: str) -> Iterator[Finding]:
    for message in bypasses.messages(past, item.workloads, effect):
        yield Finding(about=item.about, reason=Reason.NOT_ENFORCED, field=field, message=message)
