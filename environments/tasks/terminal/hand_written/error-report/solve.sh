#!/bin/bash
set -e
echo path,errors > errors.csv
cat logs/*.log | mawk '$5 >= 500 { sub(/\?.*/, "", $4); count[$4]++ } END { for (path in count) print path "," count[path] }' |
  LC_ALL=C sort -t , -k 2,2nr -k 1,1 >> errors.csv
