# Does a preference for actions rarely tried at a state help? Scored and trained as ever. Half of a usual update.
# Read: coverage in data/metrics/stages/label-1.json, ranking in prm-1.json, success in data/metrics/evaluate-1.json.
half="method.games=1800 method.steps=420 evaluate.decoding=[greedy,sample]"
episodes="rollout.games=1200 rollout.episodes_per_game=3 critic.require=nothing compute.threads=1"
kept=.scratch/experiments/exploration
mkdir -p $kept
for bonus in 0.0 1.0 0.5; do
  [ $bonus = 0.0 ] && set -- || set -- "rollout.explore={bonus: $bonus}"
  one=$kept/$bonus
  THEN="rm -rf $one && mkdir -p $one/data && cp params.yaml $one
if [ -d data/evaluations ]; then cp -rL data/evaluations data/metrics $one/data; fi" sh experiments/run "exploration-$bonus" no_memory $half $episodes "$@" -- evaluate@1
done
python -m benchmarks.side_by_side none=$kept/0.0 half=$kept/0.5 one=$kept/1.0 --over none
