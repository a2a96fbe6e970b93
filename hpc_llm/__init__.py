"""hpc-llm."""
