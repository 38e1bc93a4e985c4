# What labels cost: TD + GAE, Monte Carlo by visits, Monte Carlo by 4 and by 16 rollouts from every turn.
# No branched states: TD + GAE could not learn from them.
# Read: ranking in data/metrics/stages/prm-1.json, plays in label-1.json, seconds of label@1 and prm@1 in MLflow.
equal="-S rollout.branch.train_states=0 -S rollout.branch.random_states=0"
sh recipes/experiment labels-gae $equal -S label.credit=gae -S prm.loss=promise_progress prm@1
sh recipes/experiment labels-visits $equal prm@1
for plays in 4 16; do
  sh recipes/experiment "labels-plays-$plays" $equal -S label.credit=branching -S label.continuations=$plays prm@1
done
python -m benchmarks.credit --json
