"""The web pages, which read all data from the API `/v1`."""
