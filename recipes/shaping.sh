# With few rollouts, does a reference policy's advantage help? The reference is the policy that played.
# Read: ranking in data/metrics/stages/prm-1.json, success in data/metrics/evaluate-1.json.
for shaping in none blend potential; do
  sh recipes/experiment "shaping-$shaping" -S rollout.games=200 -S label.shaping=$shaping evaluate@1
done
