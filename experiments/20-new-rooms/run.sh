# Published and generated games together, measured on floor plans that nothing is trained on; then what the PRM adds there.
# ALFWORLD_DATA is the folder that alfworld-download filled.
: "${ALFWORLD_DATA:?the folder that alfworld-download filled}"
rooms="alfworld_rooms games.published.root=$ALFWORLD_DATA"
THEN="python -m benchmarks.placebo_prm --campaign . --iteration 1 --out data/placebo/1" sh experiments/run rooms no_memory $rooms &&
  python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --placebo data/placebo/1 \
    --games data/games --split unseen --limit 400 --searches best_of_16 --prior 0.1,0 --threads 1 --json
sh experiments/run rooms-2 no_memory $rooms seed=2 \
  "evaluate.decoding=[greedy,best_of_16,best_of_16_by_untrained_likelihood,best_of_16_by_constant]" -- evaluate@0 &&
  python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm data/checkpoints/prm/1 --games data/games --seed 2 \
    --split unseen --limit 400 --searches best_of_16 --prior 0.1,0 --threads 1 --json
# The same over more seeds, in known rooms too, and halfway to its start. With seeds 3 and 4 also without the likelihood (the papers'
# PRM), an implicit PRM of turns and of outcomes, and permuted labels. Read: the tables of all seeds, and the lines in $adds.
adds=.scratch/experiments/rooms-adds
mkdir -p $adds
equal="$rooms compute.threads=1 critic.require=nothing"
play() { # NAME SEED PRM SCORERS: a command that plays Best-of-16 and a beam under this PRM, and keeps the figures
  echo "python -m benchmarks.placebo --policy data/checkpoints/policy/0 --prm $3 --games data/games --seed $2 --split seen,unseen --limit 400 \
    --searches best_of_16,beam_1x16 --scorers $4 --prior 0.1,0 --threads 1 --json >$adds/$1-$2.json"
}
for seed in 3 4 5 6 7; do
  then=$(play prm $seed data/checkpoints/prm/1 prm,trained_likelihood,untrained_likelihood,constant,random)
  case $seed in 3 | 4)
    for labels in turns outcome; do
      then="$then && python -m benchmarks.implicit_prm --campaign . --labels $labels --out $adds/$labels-$seed &&
        $(play $labels $seed $adds/$labels-$seed prm,implicit)"
    done
    then="$then && python -m benchmarks.placebo_prm --campaign . --out $adds/permuted-$seed && $(play permuted $seed $adds/permuted-$seed prm)"
    ;;
  esac
  for way in best_of_16 sample; do # trained on where its search goes too, and on as many more rollouts
    then="$then && python -m benchmarks.relabel --campaign . --visited-by $way --out $adds/relabel-$way-$seed &&
      $(play relabel-$way $seed $adds/relabel-$way-$seed "prm,placebo --placebo data/checkpoints/prm/1")"
  done
  THEN=$then sh experiments/run rooms-adds-$seed no_memory $equal seed=$seed -- prm@1
  THEN=$(play halfway $seed data/checkpoints/prm/1 prm,untrained_likelihood) \
    sh experiments/run rooms-halfway-$seed no_memory $equal seed=$seed "critic.init_from={weights: prm, mixing: 0.5}" -- prm@1
  case $seed in 3 | 4)
    THEN=$(play head $seed data/checkpoints/prm/1 prm) sh experiments/run rooms-head-$seed no_memory $equal seed=$seed critic.likelihood=0.0 -- prm@1
    ;;
  esac
done
python -m benchmarks.over_seeds $adds/prm-*.json --picture $adds/adds.png
python -m benchmarks.over_seeds $adds/prm-*.json --against $adds/halfway-*.json
python -m benchmarks.over_seeds $adds/prm-3.json $adds/prm-4.json --against $adds/head-3.json $adds/head-4.json
python -m benchmarks.over_seeds $adds/relabel-best_of_16-*.json --against $adds/relabel-sample-*.json
knowing="$rooms compute.threads=1 demos.knowledge=1.0 demos.games=9000 sft.epochs=4 method.search=beam_4x4 critic.require=nothing"
ways="evaluate.decoding=[greedy,best_of_16,best_of_16_by_untrained_likelihood]"
sh experiments/run rooms-knowing no_memory $knowing "$ways" -- evaluate@0
sh experiments/run rooms-mixed no_memory $knowing "$ways" games.published.generated=0 games.published.mixed=11199 games.train=14000 -- evaluate@0 evaluate@1
# With the default's memory, and half of the games in mixed rooms. Each policy plays with the memory and without it.
both='for world in alfworld alfworld-training; do for split in seen unseen; do for policy in data/checkpoints/policy/*; do
python -m tasks.evaluate --policy $policy --world $world --games data/games --split $split --method greedy --json
done; done; done'
THEN=$both sh experiments/run rooms-memory-2 $rooms seed=2 compute.threads=1 critic.require=nothing games.published.generated=3199 \
  games.published.mixed=6000 games.train=12000 -- evaluate@0 evaluate@3
# The same with 24,000 rollouts and 6,000 searches in an iteration, of more games: the control of a larger policy on a GPU.
THEN=$both sh experiments/run rooms-rollouts-2 $rooms seed=2 compute.threads=1 critic.require=nothing games.published.generated=3199 \
  games.published.mixed=10000 games.train=16000 rollout.games=8000 rollout.episodes_per_game=3 method.games=6000 -- policy@1
# And from an expert that knows where things lie.
beams='for world in alfworld alfworld-training; do python -m tasks.evaluate --policy data/checkpoints/policy/1 \
--prm data/checkpoints/prm/1 --world $world --games data/games --split unseen --method beam_4x4 --json; done'
THEN="$both
$beams" sh experiments/run rooms-knowing-rollouts-2 $rooms seed=2 compute.threads=1 critic.require=nothing games.published.generated=3199 \
  games.published.mixed=10000 games.train=16000 rollout.games=8000 rollout.episodes_per_game=3 method.games=6000 demos.knowledge=1.0 \
  critic.epochs=0.25 -- policy@1
# What the policy owes to the PRM there: from one π₀ three iterations under the PRM, and three under the policy's own likelihood.
loops=.scratch/experiments/rooms-loops
keep() { # NAME: a command that keeps what was played, with parameters beside it
  echo "rm -rf $loops/$1 && mkdir -p $loops/$1/data && cp params.yaml $loops/$1"
  echo "if [ -d data/evaluations ]; then cp -rL data/evaluations $loops/$1/data; fi"
}
held=
for seed in 2 3 4 5 6; do
  loop="$rooms seed=$seed compute.threads=1 critic.require=nothing evaluate.decoding=[greedy]"
  also= # or the expert takes over π₀'s rollouts, or the demonstrations alone for as many steps
  [ $seed != 2 ] || also="python -m benchmarks.updates --campaign . --keep data/takeover --arms takeover,demonstrations --all --steps 1500"
  THEN="$(keep prm-$seed)
$also" sh experiments/run rooms-loop-$seed no_memory $loop -- evaluate@0 evaluate@1 evaluate@2 evaluate@3
  THEN=$(keep likelihood-$seed) sh experiments/run rooms-likelihood-$seed no_memory $loop method.search=beam_1x16_by_untrained_likelihood \
    -- evaluate@0 evaluate@1 evaluate@2 evaluate@3
  held="$held prm=$loops/prm-$seed likelihood=$loops/likelihood-$seed"
done
for split in seen unseen; do
  python -m benchmarks.side_by_side $held --over likelihood --split $split
done
