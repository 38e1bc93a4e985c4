# Five training signals from the same first policy and the same rollouts, one update each, nothing imitated beside.
# Read: data/metrics/evaluate-1.json of each.
sh recipes/experiment signals-agentprm-a -S policy.imitation=0 evaluate@1
sh recipes/experiment signals-agentprm-b -S policy.imitation=0 -S label.credit=gae -S prm.loss=promise_progress evaluate@1
sh recipes/experiment signals-inverse $(python -m tasks.profile inverse) evaluate@1
for method in grpo gigpo; do
  sh recipes/experiment "signals-$method" -S policy.method=$method evaluate@1
done
