"""One machine as the host: the embedded API and store, manifests, workloads as processes, their Envoys."""
