"""The processes of a cluster: what each is built from, and how it starts and stops."""
