"""A cluster of processes on one machine: `pykbroker start --brokers 3`."""
