"""What is looked at during training."""
