"""Without I/O: etcd's multi-version store as a data structure, and the arithmetic of leases."""
