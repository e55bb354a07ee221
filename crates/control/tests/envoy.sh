#!/bin/sh
# Stands in for Envoy, whose xDS client is in the test: runs until it is stopped.
exec sleep 600
