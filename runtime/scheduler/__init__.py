"""The default scheduler: from the execution graph, slots and reports to deployments, events and the result."""
