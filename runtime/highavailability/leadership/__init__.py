"""The leader election, the registrations of processes, and the cluster's uuid."""
