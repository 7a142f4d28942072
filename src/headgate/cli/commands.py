"""The table of the `headgate` commands, in the groups of `headgate --help`."""

from collections.abc import Mapping
from typing import NamedTuple

from headgate.cli.help_page import UNREACHABLE
from headgate.cli.output import (
    EXIT_FAILURE,
    EXIT_NOT_EXECUTABLE,
    EXIT_NOT_FOUND,
    EXIT_SUCCESS,
    EXIT_TIMED_OUT,
    EXIT_UNDECIDED,
)

MACHINE = "Run a mesh on this machine"
FILES = "Check and translate manifests"
QUESTIONS = "See what the mesh does"
CHANGES = "Change a running mesh"
KUBERNETES = "Install on Kubernetes"
_TIMEOUT = {EXIT_TIMED_OUT: "timeout"}


class Command(NamedTuple):
    """A command: its function, as `module:function` below `headgate.cli`, and what the help pages say about it.

    `codes` has the exit codes that differ from those of every command. The list of commands omits those without a group,
    which only containers run.
    """

    function: str
    summary: str
    group: str = ""
    examples: tuple[str, ...] = ()
    codes: Mapping[int, str] = {}


COMMANDS: Mapping[str, Command] = {
    "up": Command(
        "up:up",
        "Run a directory of manifests on this machine.",
        MACHINE,
        ("headgate up manifests", "headgate up manifests --watch"),
        UNREACHABLE,
    ),
    "run": Command(
        "run:run",
        "Run a program with its own identity and sidecar.",
        MACHINE,
        ("headgate run --label app=website --port 8080 -- python3 server.py",),
        UNREACHABLE
        | _TIMEOUT
        | {
            EXIT_NOT_EXECUTABLE: "the program is not executable",
            EXIT_NOT_FOUND: "the program does not exist; any other code is the program's",
        },
    ),
    "down": Command(
        "down:down",
        "Stop the processes that a killed headgate left running.",
        MACHINE,
        ("headgate down",),
        {EXIT_FAILURE: "a process did not stop, or a headgate runs"},
    ),
    "check": Command(
        "check:check",
        "Check manifests offline, or the running mesh.",
        FILES,
        ("headgate check manifests", "helm template chart | headgate check -", "headgate check -n shop"),
        UNREACHABLE | {EXIT_FAILURE: "errors were found, with --strict also warnings"},
    ),
    "plan": Command(
        "plan:plan_",
        "Show what a change does to requests and access.",
        FILES,
        (
            "headgate plan -f change.yaml",
            "headgate plan --base old -f new --no-new-access",
            "headgate plan -f new --never serviceaccount/web deployment/db",
        ),
        UNREACHABLE
        | {
            EXIT_SUCCESS: "nothing changes, or the check holds for all requests",
            EXIT_FAILURE: "something changes, or there is a counterexample",
            EXIT_UNDECIDED: "the check is not decided",
        },
    ),
    "compile": Command(
        "compile:compile_",
        "Compile manifests; print the mesh, findings or Envoy resources.",
        FILES,
        ("headgate compile manifests --stage report", "headgate compile manifests --stage xds -o json"),
        {EXIT_FAILURE: "errors were found; valid objects are compiled nevertheless"},
    ),
    "render": Command(
        "render:render",
        "Print the routing as a configuration of another proxy.",
        FILES,
        (
            "headgate render nginx -f manifests",
            "headgate render haproxy --service website --output-dir proxy --watch",
        ),
        UNREACHABLE | {EXIT_FAILURE: "an error, with --strict also an omission"},
    ),
    "status": Command(
        "status:status",
        "Summarize the running mesh on one screen.",
        QUESTIONS,
        ("headgate status", "headgate status -o json"),
        UNREACHABLE | {EXIT_SUCCESS: "the mesh is healthy", EXIT_FAILURE: "it has problems, or an error"},
    ),
    "dashboard": Command(
        "dashboard:dashboard",
        "Open a page about the running mesh in the browser.",
        QUESTIONS,
        ("headgate dashboard", "headgate dashboard --context kind-shop -n shop", "headgate dashboard --no-browser"),
        UNREACHABLE,
    ),
    "explain": Command(
        "explain:explain_",
        "Explain which route and which backends a request would take.",
        QUESTIONS,
        (
            "headgate explain GET http://website:8080/cart --from deployment/client",
            "headgate explain pod/website-v1-7f9c",
        ),
        UNREACHABLE | {EXIT_FAILURE: "the request would fail, or the pod misses its sidecar"},
    ),
    "try": Command(
        "try_command:try_",
        "Send requests; compare their distribution with the weights.",
        QUESTIONS,
        (
            "headgate try http://website:8080/ --number 1000",
            "headgate try http://website/ --from deployment/client -n shop",
        ),
        UNREACHABLE | {EXIT_FAILURE: "a share is outside its band, or requests failed"},
    ),
    "logs": Command(
        "logs:logs",
        "Print the logs of a pod.",
        QUESTIONS,
        ("headgate logs deployment/website-v1 --follow", "headgate logs website-v1-7f9c -p --tail 20"),
        UNREACHABLE,
    ),
    "proxies": Command(
        "proxies:proxies",
        "Show the resources that each proxy has acknowledged and rejected.",
        QUESTIONS,
        (
            "headgate proxies",
            "headgate proxies shop/website-v1-7f9c",
            "headgate proxies gateway --log-level debug --for 30s",
            "headgate proxies --outdated -n shop",
        ),
        UNREACHABLE | {EXIT_FAILURE: "with --outdated: a workload is outdated; else an error"},
    ),
    "config": Command(
        "config:config",
        "Show the Envoy resources that a proxy was sent, and their state.",
        QUESTIONS,
        ("headgate config gateway clusters", "headgate config shop/website-v1-7f9c routes -o yaml"),
        UNREACHABLE,
    ),
    "history": Command(
        "history:history",
        "List the changes to objects, their writers, and what they did.",
        QUESTIONS,
        ("headgate history", "headgate history 12", "headgate history trafficsplit/website -n shop"),
        UNREACHABLE,
    ),
    "generate": Command(
        "generate:generate",
        "Write access rules that allow the recorded traffic.",
        FILES,
        (
            "headgate generate traffictargets --from-traffic 168h --output-dir rules",
            "headgate generate xauthorizationpolicies --from-traffic 168h -n shop",
        ),
        UNREACHABLE,
    ),
    "version": Command(
        "version:version",
        "Show versions and the addresses of the running headgate.",
        QUESTIONS,
        ("headgate version", "headgate version -o json"),
    ),
    "wait": Command(
        "wait:wait",
        "Wait until every proxy has acknowledged an object.",
        CHANGES,
        ("headgate wait trafficsplit/website", "headgate wait deployment/website-v2 -n shop --timeout 1m30s"),
        UNREACHABLE | _TIMEOUT | {EXIT_FAILURE: "the object is not accepted, or an error"},
    ),
    "rollout": Command(
        "rollout:rollout",
        "Show, pause, promote or abort the rollout of a Canary.",
        CHANGES,
        ("headgate rollout status website", "headgate rollout promote website -n shop"),
        UNREACHABLE | _TIMEOUT | {EXIT_FAILURE: "an error; with watch: it is rolled back"},
    ),
    "rollback": Command(
        "rollback:rollback",
        "Restore the objects of an earlier revision.",
        CHANGES,
        ("headgate rollback 12 --dry-run", "headgate rollback 12 trafficsplit/website"),
        UNREACHABLE,
    ),
    "restart": Command(
        "restart:restart",
        "Replace pods, one workload after the other, for new sidecars.",
        CHANGES,
        ("headgate restart --outdated -n shop --dry-run", "headgate restart deployment/website -n shop --timeout 10m"),
        UNREACHABLE | _TIMEOUT | {EXIT_FAILURE: "outdated pods remain, or an error"},
    ),
    "ca": Command(
        "ca:ca",
        "Show the certificate authority of the mesh, or rotate its root.",
        CHANGES,
        ("headgate ca", "headgate ca rotate --wait --timeout 10m", "headgate ca roots > roots.pem"),
        UNREACHABLE | _TIMEOUT,
    ),
    "install": Command(
        "install:install",
        "Install headgate on a Kubernetes cluster, or change its options.",
        KUBERNETES,
        ("headgate install --context kind-shop", "headgate install --mtls strict --dry-run > headgate.yaml"),
        UNREACHABLE | _TIMEOUT,
    ),
    "upgrade": Command(
        "upgrade:upgrade",
        "Upgrade headgate on a Kubernetes cluster, with checks.",
        KUBERNETES,
        ("headgate upgrade --dry-run", "headgate upgrade --context kind-shop"),
        UNREACHABLE | _TIMEOUT | {EXIT_FAILURE: "an error, or a check failed"},
    ),
    "uninstall": Command(
        "install:uninstall",
        "Remove headgate from a Kubernetes cluster.",
        KUBERNETES,
        ("headgate uninstall --context kind-shop",),
        UNREACHABLE | _TIMEOUT | {EXIT_FAILURE: "an error, or pods still have sidecars"},
    ),
    "inject": Command(
        "inject:inject",
        "Add sidecars to manifests of workloads for a cluster.",
        KUBERNETES,
        ("headgate inject -f deployment.yaml | kubectl apply -f -",),
    ),
    "redirect": Command(
        "redirect:redirect",
        "Redirect the TCP connections of a pod to its sidecar.",
        KUBERNETES,
        ("headgate redirect print", "headgate redirect apply --excluded-outbound-ports 5432"),
    ),
    "control-plane": Command("control_plane:control_plane", "Run the control plane on Kubernetes."),
}
