"""The control loop: what the store says becomes what the proxies hold, and what they say becomes the objects' status."""
