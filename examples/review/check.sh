#!/bin/sh
# What a CI job runs for a pull request: check.sh BASE CHANGE
#
# BASE has the manifests of the main branch, CHANGE those that the pull request changes; each is a file or a directory.
# The first command says what the change does. The second one fails, with exit code 1, if the change gives any caller new
# access, or lets the thief reach the database, and with exit code 4 if neither this nor the contrary is proven.
set -u
headgate plan --base "$1" -f "$2"
[ $? -le 1 ] || exit 2 # 1: there are differences, or mistakes, which the second command reports again
headgate plan --base "$1" -f "$2" --no-new-access --never serviceaccount/thief serviceaccount/database
