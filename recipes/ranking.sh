# What makes a PRM rank actions at one state? The same number of episodes in four shapes (no branched states beside, whose plays
# would be a part that stays the same), branched states, starts, keys.
# Read: ranking in data/metrics/stages/prm-1.json, and Best-of-N against sample in data/metrics/evaluate-0.json.
for shape in 300x12 600x6 1200x3 3600x1; do
  sh recipes/experiment "ranking-$shape" -S rollout.branch.train_states=0 -S rollout.branch.random_states=0 \
    -S rollout.games=${shape%x*} -S rollout.episodes_per_game=${shape#*x} evaluate@0
done
for states in 0 200 1800; do
  sh recipes/experiment "ranking-branched-$states" -S rollout.branch.train_states=$states -S rollout.branch.random_states=0 evaluate@0
done
for start in sft scratch; do
  sh recipes/experiment "ranking-from-$start" -S prm.start=$start evaluate@0
done
sh recipes/experiment ranking-by-history -S label.key=history evaluate@0
