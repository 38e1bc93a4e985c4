# Does what is learnt carry over to a type of task that was kept out of training? One campaign without pick_two_obj_and_place in its
# demonstrations, rollouts and searches, and one with all six types, both measured on games of that type alone.
#
#     sh experiments/33-held-out-type/run.sh
#
# Read: data/metrics/evaluate-0.json and evaluate-1.json of the first; the lines that are printed of the second.
kept=.scratch/experiments/held-out-type
mkdir -p $kept
equal="no_memory compute.threads=1 critic.require=nothing seed=2"
ways="evaluate.decoding=[greedy,sample,best_of_16,best_of_16_by_untrained_likelihood]"
without="env.world=benchmarks.held_out_types:NO_PICK_TWO env.code=benchmarks/held_out_types.py"
THEN="rm -rf $kept/games && cp -rL data/games $kept/games" \
  sh experiments/run held-out-type $equal "$ways" $without -- evaluate@0 evaluate@1
sh experiments/run held-out-type-all $equal -- policy@1 && for policy in 0 1; do
  for split in seen unseen; do
    for method in greedy sample "best_of_16 --prm data/checkpoints/prm/1"; do
      python -m tasks.evaluate --policy data/checkpoints/policy/$policy --games $kept/games --split $split --method $method --json
    done
  done
done
