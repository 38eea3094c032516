"""Publishing: when what is live is released, and why it is not."""
