# Five training signals from the same first policy and the same rollouts, one update each, nothing imitated beside, and the default
# update by the two AgentPRMs: imitation of what their search wins in further games. Eight episodes
# a game, since GRPO learns from their differences; no branched states, which one of the five alone could learn from.
# Read: data/metrics/evaluate-1.json of each.
inverse=$(python -m tasks.frame.profile inverse) || exit
dpo=$(python -m tasks.frame.profile online_dpo) || exit
equal="-S rollout.games=450 -S rollout.episodes_per_game=8 -S rollout.branch.train_states=0 -S rollout.branch.random_states=0"
equal="$equal -S policy.imitation=0 -S prm.require_ranking=false -S evaluate.decoding=[greedy,sample]"
promise="-S label.credit=gae -S prm.loss=promise_progress"
sh recipes/experiment signals-agentprm-a $equal $dpo evaluate@1
sh recipes/experiment signals-agentprm-b $equal $dpo $promise evaluate@1
sh recipes/experiment signals-search-a $equal evaluate@1
sh recipes/experiment signals-search-b $equal $promise evaluate@1
sh recipes/experiment signals-inverse $equal $inverse evaluate@1
for method in grpo gigpo; do
  sh recipes/experiment "signals-$method" $equal $dpo -S policy.method=$method evaluate@1
done
