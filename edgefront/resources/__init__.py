"""The parts of `Client`, one a resource of the API."""
