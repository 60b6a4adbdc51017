// An agent's loop with Gleaner: npx tsx examples/agent_loop.ts (or node from 22.18 on, deno run -A, bun)
const url: string = process.env.GLEANER_URL ?? "http://127.0.0.1:8080";
const key: string | undefined = process.env.GLEANER_KEY;
const headers = { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) };

async function call(path: string, body?: object): Promise<string> {
  const method: string = body ? "POST" : "GET";
  const answer = await fetch(url + path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.text();
}

type Message = { role: string; content: string };
// Stand for the call of your model, and for your parser, linter or compiler.
const model = (_messages: Message[], attempt: number): string =>
  ['(cbu.make :name "Hedge Fund")', '(cbu.create :name "Hedge Fund")'][attempt - 1];
const lint = (program: string): string[] => (program.startsWith("(cbu.create") ? [] : ["Unknown verb: cbu.make"]);

async function main(): Promise<void> {
  const intent = "Create a hedge fund";
  const { id } = JSON.parse(await call("/v1/generations", { user_intent: intent, domain_name: "cbu" }));
  const query = new URLSearchParams({ intent, format: "messages" });
  const solved: Message[] = JSON.parse(await call(`/v1/generations/similar?${query}`)).messages;
  let valid = false;
  for (let attempt = 1; attempt <= 2 && !valid; attempt++) {
    const program = model([...solved, { role: "user", content: intent }], attempt);
    const errors = lint(program);
    valid = errors.length === 0;
    await call(`/v1/generations/${id}/attempts`, {
      attempt, extracted_dsl: program, parse_result: { success: true }, lint_result: { valid, errors },
    });
  }
  await call(`/v1/generations/${id}/finalize`, { success: valid });
  process.stdout.write(await call("/v1/exports/correction-pairs"));
}

main();
