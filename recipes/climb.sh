# Does the policy climb over three iterations, also against fine-tuning on its own successes?
# Read: data/metrics/iterations.json of each (success with intervals, paired tests against the iteration before).
sh recipes/experiment climb
sh recipes/experiment climb-rft -S policy.method=rft
