"""Pure decisions of one job: events in, effects out."""
