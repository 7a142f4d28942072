"""The routing model: who may send what where, by which weights. No Kubernetes words, no Envoy words."""
