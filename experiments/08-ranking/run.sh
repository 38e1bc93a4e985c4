# What makes a PRM rank actions at one state? The same number of episodes in four shapes (without branched states, whose
# plays would stay the same), numbers of branched states, starts, keys.
# Read: ranking in data/metrics/stages/prm-1.json, and Best-of-16 against sample in data/metrics/evaluate-0.json.
for shape in 300x12 600x6 1200x3 3600x1; do
  sh experiments/run "ranking-$shape" rollout.branch.train_states=0 rollout.branch.random_states=0 \
    rollout.games=${shape%x*} rollout.episodes_per_game=${shape#*x} -- evaluate@0
done
for states in 0 200 1800; do
  sh experiments/run "ranking-branched-$states" rollout.branch.train_states=$states rollout.branch.random_states=0 -- evaluate@0
done
for start in sft scratch; do
  sh experiments/run "ranking-from-$start" critic.init_from=$start -- evaluate@0
done
sh experiments/run ranking-by-history critic.visit_key=history -- evaluate@0
