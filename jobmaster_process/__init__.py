"""The JobMaster process."""
