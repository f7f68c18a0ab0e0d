"""The way from a stand-by JobManager to the leader."""
