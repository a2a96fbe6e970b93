"""From the request to the plan: experiments, methods, models and what each decides. Imports nothing here: part of it travels."""
