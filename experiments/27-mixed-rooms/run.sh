# Do rooms that are put together from several help a policy in rooms that it has never seen? A campaign whose own
# play is half in such rooms. Its control plays in the floor plans of the package alone. Another control goes on with
# the demonstrations for as many steps.
# Read: success in the lines of `tasks.evaluate`, ranking in data/metrics/stages/prm-1.json.
sizes="compute.threads=1 games.seen=400 games.unseen=400 evaluate.decoding=[greedy] critic.require=nothing"
both='for world in alfworld alfworld-remembering; do for split in seen unseen; do for policy in data/checkpoints/policy/*; do
python -m tasks.evaluate --policy $policy --world $world --games data/games --split $split --method greedy --json
done; done; done'
for seed in 1 2 3; do
  THEN=$both sh experiments/run rooms-own-play-$seed seed=$seed env.world=alfworld-training $sizes -- policy@3
  THEN=$both sh experiments/run rooms-by-likelihood-$seed seed=$seed env.world=alfworld-training $sizes \
    method.search=beam_1x16_by_untrained_likelihood -- policy@3
  THEN=$both sh experiments/run rooms-control-$seed seed=$seed env.world=alfworld-remembering $sizes -- policy@3
done
# Two more seeds, and what PRM 1 adds to Best-of-16 of π₀.
adds='for split in seen unseen; do for way in best_of_16 best_of_16_by_untrained_likelihood; do case $way in *_by_*) prm= ;; *) prm="--prm data/checkpoints/prm/1" ;; esac
python -m tasks.evaluate --policy data/checkpoints/policy/0 $prm --world alfworld --games data/games --split $split --method $way --json
done; done'
for seed in 4 5; do
  THEN="$both
$adds" sh experiments/run rooms-own-play-$seed seed=$seed env.world=alfworld-training $sizes -- policy@3
  THEN=$both sh experiments/run rooms-by-likelihood-$seed seed=$seed env.world=alfworld-training $sizes \
    method.search=beam_1x16_by_untrained_likelihood -- policy@3
done
longer="python -m benchmarks.updates --campaign . --keep data/updates --arms demonstrations --all --steps 2520 --json"
THEN=$longer sh experiments/run rooms-longer env.world=alfworld-training $sizes -- policy@3
# From the control's π₀ and its demonstrations: the control as far as π₀, then the default's games and three iterations.
from_control='python -m tasks.frame.profile env.world=alfworld-training --write && python -m tasks.games || exit
for i in 1 2 3; do for stage in rollout label prm collect policy; do python -m tasks.$stage --iteration $i || exit; done; done
'$both
for seed in 1 2 3; do
  THEN=$from_control sh experiments/run rooms-control-policy-$seed seed=$seed env.world=alfworld-remembering $sizes -- sft
done
# Half of the demonstrations, twice the epochs, and its control by the demonstrations.
fewer="env.world=alfworld-training demos.games=1500 sft.epochs=7"
four="iterations.4.prev=3 policies.4.prm=4" # a fourth iteration
for seed in 1 2 3; do THEN=$both sh experiments/run rooms-fewer-$seed seed=$seed $fewer $four $sizes -- policy@4; done
THEN=$longer sh experiments/run rooms-fewer-longer $fewer $sizes -- policy@3
# 800 games of new floor plans that no number was chosen on. They lie in data/games then: `tasks.evaluate` as above, split unseen.
sh experiments/run rooms-fresh seed=21 demos.games=100 games.train=3700 games.seen=20 games.unseen=800 -- games
