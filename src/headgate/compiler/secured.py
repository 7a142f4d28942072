"""Workloads with what is wanted of them: mutual TLS (R72 to R78), and who may call them (R68 to R70, D21)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from headgate.compiler import unenforced
from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding, Selected, listed
from headgate.compiler.snapshot import Snapshot, account_of
from headgate.compiler.targets import DESTINATION, Targets
from headgate.compiler.unenforced import Words
from headgate.compiler.workloads import PodPort
from headgate.model.routing import Stage, Workload
from headgate.resources.mesh import TLSConfig
from headgate.resources.meta import Key
from headgate.resources.pods import INJECT
from headgate.settings import Settings

SELECTOR = "spec.selector"
_REPLACE = (
    "Replace the pods (kubectl rollout restart): new pods that a TLSConfig selects get a sidecar, unless they say "
    f'{INJECT}: "false" or headgate runs with --sidecars none'
)
_STAGES = {"off": Stage.PLAIN, "permissive": Stage.PERMISSIVE, "strict": Stage.STRICT}


class TlsConfigs:
    """All TLSConfigs. `pods` are those that each selects (`namespace/pod`), with a sidecar or without."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._configs: Mapping[Key, TLSConfig] = dict(snapshot.of(TLSConfig))
        self.pods = {
            key: snapshot.selected(key.namespace, item.spec.selector.match_labels)
            for key, item in self._configs.items()
        }
        left = [(key, item) for key, item in snapshot.remains.items() if isinstance(item, TLSConfig)]
        self._strict = {
            name for key, item in left for name in snapshot.selected(key.namespace, item.spec.selector.match_labels)
        }
        self._of_pod: dict[str, list[Key]] = defaultdict(list)
        for key, names in self.pods.items():
            for name in names:
                self._of_pod[name].append(key)

    def is_selected(self, pod: str) -> bool:
        """Say whether a pod is to talk through mutual TLS only (R73, R74)."""
        return pod in self._of_pod or pod in self._strict

    def subjects(self, pod: str) -> tuple[str, ...]:
        """Return the names that the certificate of a pod carries: those of all TLSConfigs that select it (R78)."""
        return tuple(
            sorted({name for key in self._of_pod.get(pod, ()) for name in self._configs[key].spec.subject_names})
        )

    def merged(self, workloads: Iterable[str]) -> Iterator[Finding]:
        """Tell TLSConfigs about names of others in the certificates of the pods that they select."""
        more: dict[Key, dict[Key, list[str]]] = defaultdict(lambda: defaultdict(list))
        for pod in workloads:
            for key in (selecting := self._of_pod.get(pod, ())):
                own = set(self._configs[key].spec.subject_names)
                for other in selecting:
                    if not own.issuperset(self._configs[other].spec.subject_names):
                        more[key][other].append(pod)
        for key, others in more.items():
            for other, pods in others.items():
                yield self._merged(key, other, pods)

    def _merged(self, key: Key, other: Key, pods: list[str]) -> Finding:
        own = self._configs[key].spec.subject_names
        names = ", ".join(name for name in self._configs[other].spec.subject_names if name not in own)
        message = (
            f"{other} selects {listed(pods)} too, so the certificate there carries its names as well: {names}. Make one of "
            "the selectors narrower if that is not meant"
        )
        return Finding(key, Reason.SUBJECTS_MERGED, "spec.subjectNames", message, related=(other,))


class Secured(NamedTuple):
    """The workloads, and what is told about the objects that are about them."""

    workloads: tuple[Workload, ...]
    findings: tuple[Finding, ...]
    selected: tuple[Selected, ...]


def secure(
    snapshot: Snapshot,
    led: Iterable[Iterable[PodPort]],
    settings: Settings,
    workloads: tuple[Workload, ...],
    stages: Mapping[str, Stage],
) -> Secured:
    """Return the workloads with their stage and access; `stages` has those that are not what is wanted yet.

    `led` is what each Service leads to.
    """
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
    past = unenforced.bypasses(snapshot, led, [item for name, item in done.items() if name in selecting], settings)
    findings = [*targets.findings, *targets.not_applicable(found), *configs.merged(done)]
    for chosen in about_targets:
        findings += unenforced.findings(chosen, DESTINATION, past, _of_target(targets.accounts[chosen.about]))
    for chosen in about_configs:
        findings += unenforced.findings(chosen, SELECTOR, past, _of_config(chosen.about.namespace))
    selected = sorted([*about_targets, *about_configs], key=lambda item: item.about)
    return Secured(tuple(done.values()), tuple(findings), tuple(selected))


def _of_target(account: str) -> Words:
    return Words(
        f"no pod runs as ServiceAccount {account}; set serviceAccountName in the pod template, or correct the name",
        unguarded="every client may do everything",
        past="every client may do everything",
    )


def _of_config(namespace: str) -> Words:
    return Words(
        f"no pod of the namespace {namespace} has all of these labels",
        unguarded="these pods take plaintext and send plaintext",
        past="every client may send plaintext",
        remedy=_REPLACE,
    )


def _target(pod: str, account: str, configs: TlsConfigs, *, targets: Targets, settings: Settings) -> Stage:
    """Return what is wanted of a workload: who calls is known by certificate only, so a TrafficTarget needs TLS."""
    if configs.is_selected(pod):
        return Stage.STRICT
    stage = _STAGES[settings.mtls]
    return Stage.PERMISSIVE if stage is Stage.PLAIN and targets.is_selected(account) else stage
