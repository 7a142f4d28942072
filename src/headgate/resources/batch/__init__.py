"""Jobs and CronJobs: a room for each. `further.kinds` has their names and schemas."""
