# Takes a test's API server away when the test's process is over, however that ends. $1 is the folder of its files, $2 the group
# of its processes. The process that gave the group its number is ended here alone, so that nobody else can have the number.
while read -r _; do :; done
kill -s KILL -- "-$2"
until rm -rf -- "$1" 2>/dev/null; do sleep 0.1; done
