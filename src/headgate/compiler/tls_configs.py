"""Which pods TLSConfigs select, and which names their certificates carry for it (004; R73, R75, R78, D17)."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from headgate.compiler.reasons import Reason
from headgate.compiler.report import Finding
from headgate.compiler.snapshot import Snapshot
from headgate.compiler.unenforced import listed
from headgate.resources.mesh import TLSConfig
from headgate.resources.meta import Key

SELECTOR = "spec.selector"


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
        return Finding(
            about=key, reason=Reason.SUBJECTS_MERGED, field="spec.subjectNames", message=message, related=(other,)
        )
