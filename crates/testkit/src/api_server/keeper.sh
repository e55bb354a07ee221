# Removes a test's API server when the test's process ends, even in a crash. $1 is the folder of its files, $2 its
# process group. Only this script kills the group's first process, so the group ID can't be reused earlier.
while read -r _; do :; done
kill -s KILL -- "-$2"
until rm -rf -- "$1" 2>/dev/null; do sleep 0.1; done
