# Training signals from the same first policy and the same rollouts, one update each: preferences by three critics, imitation
# of the search by two of them, and policy gradients. Eight episodes a game, since GRPO learns from their differences. No
# branched states: only the critic monte_carlo could learn from them.
# Read: data/metrics/evaluate-1.json of each.
equal="rollout.games=450 rollout.episodes_per_game=8 rollout.branch.train_states=0 rollout.branch.random_states=0"
equal="$equal evaluate.decoding=[greedy,sample]"
any=critic.require=nothing
sh experiments/run signals-agentprm-a online_dpo $equal $any -- evaluate@1
sh experiments/run signals-agentprm-b promise_progress online_dpo $equal $any -- evaluate@1
sh experiments/run signals-search-a $equal $any -- evaluate@1
sh experiments/run signals-search-b promise_progress $equal $any -- evaluate@1
sh experiments/run signals-inverse inverse $equal $any -- evaluate@1
sh experiments/run signals-grpo grpo $equal $any -- evaluate@1
sh experiments/run signals-gigpo gigpo $equal $any -- evaluate@1
