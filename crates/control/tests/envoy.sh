#!/bin/sh
# Stands for an Envoy whose stream is spoken by the test itself: it runs until it is told to end.
exec sleep 600
