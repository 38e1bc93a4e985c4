"""Playing in shards: portions of a piece of work, in this process, in several, or on the machines of a Ray cluster."""
