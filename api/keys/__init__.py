"""API keys and browser sessions."""
