"""case_reports: daily case counts by place, a file a day, republished and reshaped; with a bundled
sample.
"""
