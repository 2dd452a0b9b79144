"""Training of an architecture on a data set by a recipe: recipes, optimisers, the training loop, evaluation."""
