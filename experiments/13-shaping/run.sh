# With few rollouts, does a reference policy's advantage help? The reference is the policy that played. No branched states:
# what was tried there is not shaped. Half of a usual update.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
half="method.games=1800 method.steps=420 evaluate.decoding=[greedy,sample,best_of_16]"
few="rollout.games=200 rollout.episodes_per_game=3 rollout.branch.train_states=0 rollout.branch.random_states=0"
sh experiments/run shaping-none no_memory $half $few critic.require=nothing -- evaluate@1
for kind in blend potential; do
  sh experiments/run "shaping-$kind" no_memory $half $few critic.require=nothing \
    "critic.shaping={kind: $kind, alpha: 0.5, reference: null}" -- evaluate@1
done
