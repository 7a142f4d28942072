"""Installs headgate on a cluster: the objects of the installation, and a client that applies or deletes them."""
