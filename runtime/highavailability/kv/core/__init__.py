"""Pure parts: etcd's multi-version store in one process, and the arithmetic of leases."""
