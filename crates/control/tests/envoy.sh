#!/bin/sh
# A stand-in for Envoy, whose xDS stream the test speaks: it runs until it is stopped.
exec sleep 600
