"""Stand-ins for the cluster behind REST, and for its clients."""
