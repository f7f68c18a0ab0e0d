"""Log files of the cluster's processes."""
