"""The Dispatcher of a leadership term: jobs from submit to clean-up, in-process or in JobMaster processes."""
