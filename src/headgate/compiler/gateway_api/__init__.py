"""The Gateway API: Gateways, and the routes that attach to them and to Services."""
