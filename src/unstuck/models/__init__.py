"""What learns. One file a model."""
