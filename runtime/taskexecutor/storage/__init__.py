"""Files of exchange and outputs, on local disks and behind fsspec, for the TaskManager and for its slot processes."""
