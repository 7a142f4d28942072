"""The installation of headgate on a cluster: its objects, and applying them."""
