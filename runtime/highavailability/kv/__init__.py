"""The key-value protocol, its implementation in memory, leases, group commit, and the follower of a prefix."""
