"""The code behind the scripts in bin/: starts and stops the cluster's processes, on this host and by ssh on others."""
