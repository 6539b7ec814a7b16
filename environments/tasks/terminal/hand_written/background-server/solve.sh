#!/bin/bash
set -e
rm -f port
if command -v tmux > /dev/null; then
  tmux -L tickets new-session -d 'exec python3 server.py'
  trap 'tmux -L tickets kill-server' EXIT
else
  python3 server.py > server.log 2>&1 &
  trap "kill $!" EXIT
fi
for _ in $(seq 100); do
  test -s port && break
  sleep 0.1
done
python3 - "$(cat port)" <<'END'
import sys
from urllib.request import urlopen

url = f"http://127.0.0.1:{sys.argv[1]}"
ticket = urlopen(f"{url}/ticket").read().decode()
receipt = urlopen(f"{url}/receipt?ticket={ticket}").read().decode()
with open("receipt.txt", "w") as file:
    file.write(f"{ticket} {receipt}\n")
END
