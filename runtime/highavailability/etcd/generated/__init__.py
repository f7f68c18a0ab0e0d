"""Made by `python -m runtime.highavailability.etcd.generate`; a test compares."""
