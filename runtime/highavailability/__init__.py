"""What must survive: election, leases, registrations and the job store, over one small key-value protocol.

`kv` is the protocol (etcd's v3 semantics); `etcd/` drives a real etcd, `memory` has the same semantics in one
process. Everything else is written once, above `kv`. Keys and transactions are those of protocol.md 1 and 2.
"""
