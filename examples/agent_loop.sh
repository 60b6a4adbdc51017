#!/usr/bin/env bash
# An agent's loop with Gleaner, with curl only: bash examples/agent_loop.sh
set -euo pipefail
url=${GLEANER_URL:-http://127.0.0.1:8080}
call() { # path [body]
  curl --silent --show-error --fail-with-body "$url$1" ${GLEANER_KEY:+-H "Authorization: Bearer $GLEANER_KEY"} \
    ${2:+-H 'Content-Type: application/json' --data "$2"}
}
# Stands in for a call of your model, which gets the solved examples.
model() { [ "$1" = 1 ] && echo '(cbu.make :name \"Hedge Fund\")' || echo '(cbu.create :name \"Hedge Fund\")'; }
# Stands in for your parser, linter or compiler.
lint() { case $1 in '(cbu.create'*) ;; *) echo '"Unknown verb: cbu.make"' ;; esac; }

intent='Create a hedge fund'
id=$(cat /proc/sys/kernel/random/uuid 2>/dev/null || uuidgen | tr A-Z a-z)
call /v1/generations "{\"id\": \"$id\", \"user_intent\": \"$intent\", \"domain_name\": \"cbu\"}" >/dev/null
solved=$(call "/v1/generations/similar?format=messages&intent=${intent// /+}")
for attempt in 1 2; do
  program=$(model "$attempt" "$solved")
  errors=$(lint "$program")
  valid=$([ -z "$errors" ] && echo true || echo false)
  call "/v1/generations/$id/attempts" "{\"attempt\": $attempt, \"extracted_dsl\": \"$program\",
    \"parse_result\": {\"success\": true}, \"lint_result\": {\"valid\": $valid, \"errors\": [$errors]}}" >/dev/null
  if [ "$valid" = true ]; then break; fi
done
call "/v1/generations/$id/finalize" "{\"success\": $valid}" >/dev/null
call /v1/exports/correction-pairs
