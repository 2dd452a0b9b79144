"""Evaluation of trained models: perplexity, translation and BLEU, generation, tasks of lm-evaluation-harness."""
