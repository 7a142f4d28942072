"""The Kubernetes-shaped objects that headgate reads, and what is known about each kind."""
