"""An agent's loop with Gleaner, with the standard library only: python3 examples/agent_loop.py"""
import json, os, urllib.parse, urllib.request

URL = os.environ.get("GLEANER_URL", "http://127.0.0.1:8080")
HEADERS = {"Content-Type": "application/json"}
if os.environ.get("GLEANER_KEY"):
    HEADERS["Authorization"] = "Bearer " + os.environ["GLEANER_KEY"]

def call(path, body=None):
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(URL + path, data, HEADERS)) as answer:
        return answer.read().decode()

def model(messages, attempt):  # Stands in for a call of your model.
    return ['(cbu.make :name "Hedge Fund")', '(cbu.create :name "Hedge Fund")'][attempt - 1]

def lint(program):  # Stands in for your parser, linter or compiler.
    return [] if program.startswith("(cbu.create") else ["Unknown verb: cbu.make"]

intent = "Create a hedge fund"
log = json.loads(call("/v1/generations", {"user_intent": intent, "domain_name": "cbu"}))["id"]
query = urllib.parse.urlencode({"intent": intent, "format": "messages"})
solved = json.loads(call("/v1/generations/similar?" + query))["messages"]
for attempt in (1, 2):
    program = model(solved + [{"role": "user", "content": intent}], attempt)
    errors = lint(program)
    call(f"/v1/generations/{log}/attempts", {
        "attempt": attempt, "extracted_dsl": program, "parse_result": {"success": True},
        "lint_result": {"valid": not errors, "errors": errors}})
    if not errors:
        break
call(f"/v1/generations/{log}/finalize", {"success": not errors})
print(call("/v1/exports/correction-pairs"), end="")
