#!/bin/bash
# Plugin for node-problem-detector: says of this node's AMD GPUs what amdgpu-exporter's health rules say.
# usage: amdgpu-health.sh unhealthy|degraded [URL]
# Exit 0: it is not so. 1: it is so, and the line printed says which GPU and why. 2: not known.
# With URL it asks the daemon there (http only); without, it runs `amdgpu-exporter health --json` on this host.
set -u
asked=${1:-unhealthy}
url=${2:-}

fetch() {
  if [ -z "$url" ]; then
    amdgpu-exporter health --json
    return 0
  fi
  local rest=${url#http://} host port
  local path=/${rest#*/}
  host=${rest%%/*}
  port=${host##*:}
  host=${host%:*}
  exec 3<>"/dev/tcp/$host/$port" || return 1
  printf 'GET %s HTTP/1.0\r\nHost: %s\r\nConnection: close\r\n\r\n' "$path" "$host" >&3
  cat <&3
}

json=$(fetch 2>/dev/null | tr -d '\r\n' | tr -s ' ')
status=$(sed -n 's/.*"version": *1, *"status": *"\([a-z]*\)".*/\1/p' <<<"$json")
# The first GPU of that status, and the first of its reasons.
gpu=$(grep -o "\"gpu\": *[^,]*, *\"pci\": *\"[^\"]*\", *\"status\": *\"$asked\"[^}]*" <<<"$json" | head -n 1)
pci=$(sed -n 's/.*"pci": *"\([^"]*\)".*/\1/p' <<<"$gpu")
why=$(sed -n 's/.*"id": *"\([a-z_]*\)".*/\1/p' <<<"$gpu")

case $status in
  healthy) echo "all AMD GPUs are healthy" ;;
  unhealthy | degraded)
    if [ -n "$pci" ]; then
      echo "GPU $pci is $asked: $why"
      exit 1
    fi
    if [ "$status" = "$asked" ]; then
      echo "AMD GPUs of this node are $asked"
      exit 1
    fi
    echo "no AMD GPU is $asked"
    ;;
  *)
    echo "not known: ${status:-the exporter does not answer}"
    exit 2
    ;;
esac
