"""Quality laws."""
