"""The ResourceManager: the slots of all TaskManagers, the needs of all jobs, and which job gets which slot."""
