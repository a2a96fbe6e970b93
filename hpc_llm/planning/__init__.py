"""From the request to the plan: experiments, methods, models and what each decides. This file imports nothing, for a part of the package travels."""
