"""hpc-llm: run the same LLM experiment on any Slurm/module cluster."""

__version__ = "0.1.0"
