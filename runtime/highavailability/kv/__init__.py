"""The key-value store that everything durable lies in, and its leases."""
