#!/usr/bin/env bash
# Scripts that people put before the start call it. There is nothing to set up: run.sh does it all.
