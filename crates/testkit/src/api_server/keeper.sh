# Removes a test's API server when the test's process ends, even by a crash. $1 is the folder of its files, $2 its process group.
# Only this script kills the group's first process, so the ID can't be reused before.
while read -r _; do :; done
kill -s KILL -- "-$2"
until rm -rf -- "$1" 2>/dev/null; do sleep 0.1; done
