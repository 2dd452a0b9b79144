"""The resources of `Client` (jobs, trainings, devices …), one for each resource of the API."""
