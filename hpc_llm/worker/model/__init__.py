"""A Hugging Face causal language model: its shape, its values, and what prepares it for training."""
