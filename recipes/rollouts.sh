# When does a policy learn to please its PRM instead of winning? A long update after 1,000 and after 10,000 rollouts, with no plays
# of branched states beside.
# Read: the monitor in data/metrics/stages/policy-1.json, success in data/metrics/evaluate-1.json.
dpo=$(python -m tasks.frame.profile online_dpo) || exit
long="$dpo -S policy.steps=400 -S policy.monitor.every=40 -S policy.monitor.games=40 -S policy.imitation=0 -S evaluate.decoding=[greedy,sample]"
long="$long -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 -S prm.require_ranking=false"
sh recipes/experiment rollouts-1k $long -S rollout.games=334 -S rollout.episodes_per_game=3 evaluate@1
sh recipes/experiment rollouts-10k $long -S rollout.games=3334 -S rollout.episodes_per_game=3 evaluate@1
