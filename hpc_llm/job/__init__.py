"""From the plan to the batch script."""
