# What labels cost: TD + GAE, Monte Carlo by visits, Monte Carlo by 4 and by 16 rollouts from every turn.
# Read: ranking in data/metrics/stages/prm-1.json, plays in label-1.json, seconds of label@1 and prm@1 in MLflow.
sh recipes/experiment labels-gae -S label.credit=gae -S prm.loss=promise_progress prm@1
sh recipes/experiment labels-visits prm@1
for plays in 4 16; do
  sh recipes/experiment "labels-plays-$plays" -S label.credit=branching -S label.continuations=$plays prm@1
done
python -m benchmarks.credit --json
