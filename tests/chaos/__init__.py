"""Chaos on real processes: a cluster, jobs that keep a ledger, faults at random, and a judge (`bin/chaos.sh`)."""
