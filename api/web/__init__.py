"""The web pages: the job list and a job's live page. Their data comes from `/v1`."""
