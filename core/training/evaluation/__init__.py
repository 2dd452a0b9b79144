"""What a trained model is worth: perplexity, translations and their BLEU, fine-tuning, and other people's tasks."""
