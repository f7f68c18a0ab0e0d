"""What the scripts in bin/ do: start and stop the processes of a cluster on this host and, by ssh, on others."""
