"""From a body in a provider's dialect to a Request: what counts, what does not, what an engine here cannot do."""
