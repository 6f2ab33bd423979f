"""What is learnt. One file a task."""
