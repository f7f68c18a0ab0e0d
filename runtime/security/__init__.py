"""The cluster's token."""
