"""Search spaces, named models, algorithms, and costs of architectures."""
