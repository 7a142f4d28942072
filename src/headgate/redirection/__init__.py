"""How a pod's network hands its TCP connections to the pod's own proxy, without the application's knowledge."""
