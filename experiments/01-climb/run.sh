# Does the policy climb over three iterations? Also by fine-tuning on its own successes, and by paper A's update.
# Read: data/metrics/iterations.json of each.
sh experiments/run climb
sh experiments/run climb-2 seed=2
sh experiments/run climb-rft rft
sh experiments/run climb-dpo online_dpo
