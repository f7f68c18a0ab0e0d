"""JobMasters: the shells around the scheduler's cores, their runners, and the streams to TaskManagers they share."""
