# Does a preference for actions rarely tried at a state help? Scored and trained as ever.
# Read: coverage in data/metrics/stages/label-1.json, ranking in prm-1.json, success in data/metrics/evaluate-1.json.
episodes="rollout.games=1200 rollout.episodes_per_game=3 critic.require=nothing"
sh experiments/run exploration-0.0 $episodes -- evaluate@1
for bonus in 0.5 1.0; do
  sh experiments/run "exploration-$bonus" $episodes rollout.explore.bonus=$bonus -- evaluate@1
done
