#!/bin/sh
# Installs what the comparisons link and run (Debian and its kin): the C libraries of
# Tokyo Cabinet and RocksDB, and the servers that tyrant is measured beside.
set -eu
as_root=""
[ "$(id -u)" = 0 ] || as_root=sudo
$as_root apt-get update
$as_root apt-get install -y --no-install-recommends \
    build-essential libtokyocabinet-dev librocksdb-dev memcached redis-server \
    mariadb-server
