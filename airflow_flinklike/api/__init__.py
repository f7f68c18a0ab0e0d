"""What users write jobs with: pipelines, functions, scripts, and handles on submitted jobs."""
