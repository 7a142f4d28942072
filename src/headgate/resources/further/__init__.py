"""The kinds of Kubernetes that headgate stores and lists without effect, as data."""
