# Does the policy climb over three iterations, also against fine-tuning on its own successes, and by paper A's update?
# Read: data/metrics/iterations.json of each (success with intervals, paired tests against the iteration before).
dpo=$(python -m tasks.frame.profile online_dpo) || exit
sh recipes/experiment climb
sh recipes/experiment climb-rft -S policy.method=rft
sh recipes/experiment climb-dpo $dpo
