# What the PRM of the first iteration adds to searches of the policy that it was trained on, by scorer.
# A run that was stopped goes on from data/placebo/kept.
sh experiments/run adds no_memory seed=1 -- prm@1 &&
  python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games \
    --split seen,unseen --limit 200 --searches best_of_16,beam_1x16 --prior 0.1,0 --threads 1 --keep data/placebo/kept --json
# Then the update, by each scorer: a campaign of one thread.
THEN='python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/1 &&
  python -m benchmarks.updates --campaign . --keep data/updates --placebo data/placebo/1 \
    --arms prm,untrained_likelihood,constant,placebo,rft,demonstrations --json' \
  sh experiments/run adds-update no_memory compute.threads=1
# The same search with a second seed.
THEN='python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/1 &&
  python -m benchmarks.updates --campaign . --keep data/updates --placebo data/placebo/1 --arms prm,untrained_likelihood,placebo --json' \
  sh experiments/run adds-second no_memory seed=2 compute.threads=1 -- prm@1
# The same search with a third seed.
THEN='python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/third &&
  python -m benchmarks.updates --campaign . --keep data/updates-third --placebo data/placebo/third --arms prm,untrained_likelihood,placebo --json' \
  sh experiments/run adds-third no_memory seed=3 compute.threads=1 -- prm@1
# The same with a fourth seed, and the demonstrations for as many steps.
THEN='python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/fourth &&
  python -m benchmarks.updates --campaign . --keep data/updates-fourth --placebo data/placebo/fourth \
    --arms prm,untrained_likelihood,placebo,demonstrations --json' \
  sh experiments/run adds-fourth no_memory seed=4 compute.threads=1 -- prm@1
# The same with a fifth seed, and the demonstrations for as many steps.
THEN='python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/fifth &&
  python -m benchmarks.updates --campaign . --keep data/updates-fifth --placebo data/placebo/fifth \
    --arms prm,untrained_likelihood,placebo,demonstrations --json' \
  sh experiments/run adds-fifth no_memory seed=5 compute.threads=1 -- prm@1
# All seeds together, where the last line of each of these runs of benchmarks.updates was kept in a file:
# python -m benchmarks.over_seeds updates-1.json updates-2.json updates-3.json updates-4.json updates-5.json
# Three iterations by each scorer, with the third seed: a campaign under the PRM (that of experiment 01), and one under the
# likelihood. Then policy over policy on the same games.
loops=.scratch/experiments/loops
keep() { # NAME: a command that keeps what was played, with parameters beside it
  echo "rm -rf $loops/$1 && mkdir -p $loops/$1/data && cp params.yaml $loops/$1"
  echo "if [ -d data/evaluations ]; then cp -rL data/evaluations $loops/$1/data; fi"
}
THEN=$(keep prm) sh experiments/run adds-loop no_memory seed=3 compute.threads=1
THEN=$(keep likelihood) sh experiments/run adds-loop-likelihood no_memory seed=3 compute.threads=1 critic.require=nothing \
  method.search=beam_1x16_by_untrained_likelihood "evaluate.decoding=[greedy,sample]"
for split in "" "--split seen" "--split unseen"; do
  python -m benchmarks.side_by_side "prm=$loops/prm" "likelihood=$loops/likelihood" --over likelihood $split
done
