"""Networks of pods on one machine: a network namespace for each pod, joined by a bridge, and a resolver for names of Services."""
