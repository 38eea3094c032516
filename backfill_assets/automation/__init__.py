"""automation: jobs and schedules."""
