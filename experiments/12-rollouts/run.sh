# When does a policy learn to please its PRM instead of winning? A long update after 1,000 and after 10,000 rollouts, without
# branched states.
# Read: the monitor in data/metrics/stages/policy-1.json, success in data/metrics/evaluate-1.json.
long="online_dpo method.steps=400 evaluate.decoding=[greedy,sample] critic.require=nothing"
long="$long rollout.episodes_per_game=3 rollout.branch.train_states=0 rollout.branch.random_states=0"
monitor="method.monitor={every: 40, episodes: 48, auditor: true, games: 40, stop: false}"
sh experiments/run rollouts-1k no_memory $long "$monitor" rollout.games=334 -- evaluate@1
sh experiments/run rollouts-10k no_memory $long "$monitor" rollout.games=3334 -- evaluate@1
