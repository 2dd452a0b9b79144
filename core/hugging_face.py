"""Names of files in a folder of Hugging Face's, for all layers that read or write them."""

TOKENIZER, TOKENIZER_CONFIG = "tokenizer.json", "tokenizer_config.json"
GENERATION_CONFIG = "generation_config.json"
