"""Files that processes of a cluster log to."""
