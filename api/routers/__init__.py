"""The endpoints of the REST API, one router for each resource."""
