#!/bin/sh
# Stands in for Envoy: called as `fake-envoy.sh -c BOOTSTRAP …`, it runs the bootstrap as a script.
exec sh "$2" "$@"
