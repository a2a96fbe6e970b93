"""What is measured while something runs: times, memory, the GPUs' own word."""
