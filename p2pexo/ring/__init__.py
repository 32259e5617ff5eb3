"""How a model runs as a ring of stage processes: plan, messages, links, process, supervisor."""
