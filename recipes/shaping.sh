# With few rollouts, does a reference policy's advantage help? The reference is the policy that played. No branched states: what
# was tried there is not shaped. Half of a usual update.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
half="-S search.games=1800 -S policy.steps=420 -S evaluate.decoding=[greedy,sample,best_of_n]"
few="-S rollout.games=200 -S rollout.episodes_per_game=3 -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 -S prm.require_ranking=false"
for shaping in none blend potential; do
  sh recipes/experiment "shaping-$shaping" $half $few -S label.shaping=$shaping evaluate@1
done
