"""Durable state: leader election, leases, registrations and the job store, over one small key-value protocol.

`kv` has the protocol (etcd's v3 semantics), its implementation in memory, leases and the follower of a prefix. `etcd`
is the driver of a real etcd. `leadership` (who leads, who is registered) and `jobs` are written once, above `kv`.
`services` puts them together for a process. `keys` and `records` say what is stored where (protocol.md 1 and 2).
"""
