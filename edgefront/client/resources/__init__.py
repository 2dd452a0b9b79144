"""Resources of `Client`, one per resource of the API."""
