"""The log files of attempts: where they are, how they are read and bounded, and how long they are kept."""
