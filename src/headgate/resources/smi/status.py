"""Parts of statuses that several kinds have."""

from headgate.resources.schema.builders import record, whole

PROXIES = record(
    "The progress of the object's configuration on proxies.",
    programmed=whole("The number of proxies that acknowledged the configuration."),
    total=whole("The number of proxies that need the configuration."),
)
SELECTED_PODS = record(
    "The pods that the object selects.",
    total=whole("The number of pods."),
    sidecars=whole("The number of these pods with a sidecar; nothing is enforced at pods without a sidecar."),
)
