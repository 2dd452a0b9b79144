"""The web pages. Their data comes from `/v1`."""
