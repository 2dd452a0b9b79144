"""The embedded service: API, worker and one agent on this machine, with SQLite in a data folder."""
