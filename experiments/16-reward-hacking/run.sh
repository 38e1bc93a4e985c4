# Does the monitor see a policy that pleases its PRM and wins less? A small PRM and a loose leash provoke it. A mild case beside.
# It takes the first policy of the default run. Read: the last line of each.
command="python -m benchmarks.hacking --policy data/checkpoints/policy/0 --games data/games --json"
$command
$command --steps 40 --prm-epochs 3 --beta 0.005 --learning-rate 3e-4
