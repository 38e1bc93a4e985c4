# Policy gradients beside imitation of a search under the PRM, at equal budgets: one first policy, one update, about 7,000
# episodes played and 1.6 million tokens trained on. The policy gradients play 256 fresh episodes every 15 steps of AdamW. No
# branched states: only the critic monte_carlo could learn from them.
#
#     sh experiments/29-rivals/run.sh             # one seed
#     SEEDS="1 2 3" sh experiments/29-rivals/run.sh
#
# Read: the table that is printed last; the control by demonstrations alone, which is printed after `search`.
kept=.scratch/experiments/rivals
equal="no_memory compute.threads=1 rollout.branch.train_states=0 rollout.branch.random_states=0 critic.require=nothing
  evaluate.decoding=[greedy,sample]"
groups="rollout.games=450 rollout.episodes_per_game=8"
online="method.optimizer=adamw method.learning_rate=1.0e-4 method.steps=420" # what the profiles of the others have
fresh="method.refresh={every: 15, games: 32}"
one() { # NAME WORD…: this experiment, and what it measured kept under its name
  name=$1 folder=$kept/$1-$seed
  shift
  case " ${ONLY:-rivals-$name-$seed} " in *" rivals-$name-$seed "*) ;; *) return 0 ;; esac # what another one measured stays
  rm -rf "${folder:?}" && mkdir -p "$folder/data"
  THEN="${before:-:} && cp params.yaml $folder/ && cp -rL data/evaluations data/metrics $folder/data/ && ${also:-:}" \
    sh experiments/run "rivals-$name-$seed" "$@" $equal seed=$seed -- evaluate@0 ${last-evaluate@1}
}
by() { # COMMAND NAME WORD…: the same, where the update follows the PRM that the command makes
  before="rm -rf data/checkpoints/prm/1 && $1 && python -m tasks.collect --iteration 1 && python -m tasks.policy --iteration 1 &&
    python -m tasks.evaluate --iteration 1" last=
  shift
  one "$@"
  unset before last
}
for seed in ${SEEDS:-1}; do
  one grpo grpo rollout.games=32 $online "$fresh"
  one gigpo gigpo rollout.games=32 $online "$fresh"
  one loop loop rollout.games=32
  one istar istar rollout.games=32
  one istar_30_steps istar rollout.games=32 method.implicit.steps=30 method.implicit.learning_rate=2.0e-4
  one tree_grpo tree_grpo rollout.games=32
  one ppo ppo rollout.games=256
  also="python -m benchmarks.updates --campaign . --keep data/longer --steps 840 --arms demonstrations" one search $groups
  also=
  one rft rft rollout.games=900 rollout.episodes_per_game=8
  one rft_many_games rft rollout.games=7200 rollout.episodes_per_game=1
  one rft_few_games rft rollout.games=450 rollout.episodes_per_game=16
  one preferences online_dpo $groups # paper A's update, from the search's rollouts and PRM
  one preferences_winner online_dpo $groups method.preference=winner
  # Preferences by PRM 1 of 3,600 games with one rollout each, and by its placebo. The same PRM 1 for GiGPO, where a state came once.
  prm=$kept/prms/$seed
  also="rm -rf $prm && mkdir -p $kept/prms && cp -rL data/checkpoints/prm/1 $prm" one preferences_many_games online_dpo
  also=
  by "python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/checkpoints/prm/1" preferences_placebo online_dpo
  by "cp -rL $prm data/checkpoints/prm/1" gigpo_prm gigpo rollout.games=32 method.alone=prm $online "$fresh"
done
folders=$(for folder in "$kept"/*-*; do name=${folder##*/}; echo "${name%-*}=$folder"; done)
python -m benchmarks.side_by_side $folders --over search
