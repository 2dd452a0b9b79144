"""Search spaces, named models, algorithms, and what an architecture costs."""
