# With few rollouts, does a reference policy's advantage help? The reference is the policy that played. No branched states: what
# was tried there is not shaped.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
for shaping in none blend potential; do
  sh recipes/experiment "shaping-$shaping" -S rollout.games=200 -S rollout.episodes_per_game=3 -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 -S prm.require_ranking=false \
    -S label.shaping=$shaping evaluate@1
done
