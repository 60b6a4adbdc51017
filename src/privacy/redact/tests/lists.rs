use super::*;

#[test]
fn all_elements_of_a_list_behind_the_name_of_a_secret_are_replaced() {
    let redactor = secrets();
    let list = [1, 2, 3].map(|seed| drawn(LETTERS_AND_DIGITS, 24, seed));
    for form in [
        "api_keys:\n  - …\n  - …\n  - …\nname: x",
        "api_keys:\n- \"…\"\n- \"…\"\n- \"…\"\n",
        "API_KEYS = [\n    \"…\",\n    \"…\",\n    \"…\",\n]\n",
        "tokens = ['…', '…', '…']",
        "apiKeys := []string{\n\t\"…\",\n\t\"…\",\n\t\"…\",\n}",
        "see:\n{\n  \"passwords\": [\n    \"…\",\n    \"…\",\n    \"…\"\n  ],\n  \"commit\": \"x\"\n}",
        "data: {\"text\": \"tokens = [\\n  \\\"…\\\",\\n  \\\"…\\\",\\n  \\\"…\\\"\\n]\"}",
        "data: {\"text\": \"tokens := []string{\\n\\t\\\"…\\\",\\n\\t\\\"…\\\",\\n\\t\\\"…\\\",\\n}\"}",
        "The API tokens:\n…\n…\n…\n\nKeep them.",
        "API keys:\n```\n…\n…\n…\n```",
        "api_keys:\n  - …  # one\n  - …  # two\n  - …\n",
        "passwords:\n  - \"…\" # first\n  - \"…\" # second\n  - \"…\" # third\n",
        "passwords = [\n  \"…\", # first\n  \"…\", # second\n  \"…\", # third\n]",
        "const tokens = [\n  '…', // first\n  '…', // second\n  '…'  // third\n];",
        "passwords\n  - \"…\" # first\n  - \"…\" # second\n  - \"…\"\n",
        "api_keys:\n  # one\n  - …\n\n  # two\n  - …\n  - …\n",
        "API_KEYS = [\n    # one\n    '…',  # first\n    # two\n    '…',\n    '…',\n]\n",
        "const API_KEYS: [&str; 3] = [\n    \"…\",\n    \"…\",\n    \"…\",\n];",
        "var tokens = new List<string>\n{\n    \"…\",\n    \"…\",\n    \"…\"\n};",
        "API_KEYS=(\n  \"…\"\n  \"…\"\n  \"…\"\n)\n",
        "pub const API_KEYS: &[&str] = &[\n    \"…\",\n    \"…\",\n    \"…\",\n];",
        "let api_keys = vec![\n    \"…\",\n    \"…\",\n    \"…\",\n];",
        "api_keys: [\n  …,\n  …,\n  …\n]\n",
        "API keys:\n* …\n* …\n* …\n",
        "Recovery tokens:\n\n1. `…`\n2. `…`\n3. `…`\n",
        "     8→api_keys:\n     9→  - …\n    10→  - …\n    11→  - …\n    12→name: x",
        "     8→tokens:\n     9→- …\n    10→- …\n    11→- …\n    12→name: x",
        "+api_keys:\n+  - …\n+  - …\n+  - …\n",
        "+API_KEYS = [\n+    # prod\n+    \"…\",\n+    # test\n+    \"…\",\n+    \"…\",\n+]\n",
        "+# api_keys:\n+#   - …\n+#   - …\n+#   - …\n",
        "8:api_keys:\n9:  - …\n10:  - …\n11:  - …\n",
        "# tokens:\n#   - …\n#   - …\n#   - …\n",
        "var apiKeys = []string{\n\t// prod\n\t\"…\",\n\t\"…\",\n\t// test\n\t\"…\",\n}",
        "var apiKeys = [...]string{ // all\n\t\"…\",\n\t\"…\",\n\t\"…\",\n}",
        "val apiKeys: List<String> = listOf(\n    // prod\n    \"…\",\n    \"…\",\n    \"…\"\n)",
        "String[] apiKeys = new String[] {\n    // prod\n    \"…\",\n    \"…\",\n    \"…\"\n};",
        "string[] tokens = new[]\n{\n    \"…\",\n    \"…\",\n    \"…\"\n};",
        "List<string> tokens = new()\n{\n    \"…\",\n    \"…\",\n    \"…\"\n};",
        "static API_KEYS: &'static [&'static str] = &[\n    // prod\n    \"…\",\n    \"…\",\n    \"…\",\n];",
        "const API_KEYS: [&'static str; 3] = [\n    \"…\",\n    \"…\",\n    \"…\",\n];",
        "static TOKENS: LazyLock<HashSet<&str>> = LazyLock::new(|| HashSet::from([\n    \"…\",\n    \"…\",\n    \"…\",\n]));",
        "variable \"api_keys\" {\n  type = list(string)\n  default = [\n    \"…\",\n    \"…\",\n    \"…\",\n  ]\n}",
        "final apiKeys = <String>[\n  // prod\n  '…',\n  '…',\n  '…',\n];",
        "API_KEYS: frozenset[str] = frozenset({\n    # prod\n    \"…\",\n    \"…\",\n    \"…\",\n})",
        "$apiKeys = array(\n    // prod\n    '…',\n    '…',\n    '…',\n);",
        "~ api_keys = [\n    ~ \"…\" -> \"…\",\n    + \"…\",\n]\n",
        "~ api_keys = [\n    - \"…\" -> null,\n      # (2 unchanged elements hidden)\n    ~ \"…\" -> \"…\",\n]\n",
        "INFO {\"content\": \"API_KEYS = [\\n  # prod\\n  \\\"…\\\",\\n  # test\\n  \\\"…\\\",\\n  \\\"…\\\"\\n]\"}",
        "INFO {\"content\": \"var apiKeys = []string{\\n\\t// prod\\n\\t\\\"…\\\",\\n\\t\\\"…\\\",\\n\\t// test\\n\\t\\\"…\\\",\\n}\"}",
        "INFO {\"content\": \"api_keys:\\n  # prod\\n  - …\\n  # test\\n  - …\\n  - …\\nb: 2\"}",
        "got {\"content\": \"api_keys:\\n  - …\\n  - …\\n  - …\\nb: 2\"}",
    ] {
        let text = list.iter().fold(form.to_owned(), |text, value| text.replacen('…', value, 1));
        assert_eq!(redacted(&redactor, &text), form.replace('…', "[redacted:secrets]"));
    }
    // What was replaced before may stand in a list beside what is new.
    for form in [
        "API_KEYS = [\n    \"x\",\n    \"…\",\n]\n",
        "api_keys:\n  - x\n  - …\n",
        "tokens = [\"…\", \"x\", \"…\"]",
    ] {
        let form = form.replace('x', "[redacted:secrets]");
        assert_eq!(
            redacted(&redactor, &form.replace('…', &list[0])),
            form.replace('…', "[redacted:secrets]")
        );
    }
    // What is not alone in its line is no element.
    let text = format!("token:\n  {}\n2f7c1b9e0a4d done\n", list[0]);
    assert_eq!(redacted(&redactor, &text), "token:\n  [redacted:secrets]\n2f7c1b9e0a4d done\n");
}

#[test]
fn a_value_below_what_names_it_in_a_sentence_or_in_a_comparison_is_replaced() {
    let redactor = secrets();
    let value = drawn(LETTERS_AND_DIGITS, 24, 1);
    for sentence in [
        "   - password = <<-EOT\n   -     …\n",
        "@@ -1 +1 @@\n-a\n+b\n # api_key:\n #   …\n",
        "@@ -1,2 +1,2 @@\n a: 1\n-api_key:\n-  \"x\"\n+# api_key:\n+#   \"…\"\n",
        "@@ -1,2 +1,4 @@\n x();\n+//const apiKey =\n+//  '…';\n",
        "@@ -1,2 +1,4 @@\n # App\n+> Your API key:\n+>\n+>     …\n",
        "@@ -1,2 +1,4 @@\n BEGIN;\n+-- INSERT INTO users (id, api_token) VALUES\n+-- (1, '…');\n COMMIT;\n",
        "@@ -1,6 +1,6 @@\n     containers:\n-    env:\n-    - name: API_KEY\n-      value: x\n+#    env:\n+#    - name: API_KEY\n+#      value: …\n     ports: []\n",
        "@@ -1 +1 @@\n-a\n+b\n\n     8→db_password:\n     9→  …\n",
        "The password for the admin user: `…`",
        "I found a hardcoded password in the config file: \"…\"",
        "I generated a new secret for you:\n\n```\n…\n```",
        "**API key for production:**\n\n`…`\n",
        "Your API token has been created. Copy it now:\n…\n",
        "Set `JWT_SECRET` in `.env` to:\n\n```text\n…\n```\n",
        "生成的 JWT_SECRET 如下：\n\n```\n…\n```\n",
        "SUCCESS! Here is your refresh token:\n============================================================\n…\n",
        "Your new API key is below:\n\n────────────────────\n…\n────────────────────\n",
        "Simple auth manager | Password for user 'admin': …\n",
        "Created API key \"web\" = …\n",
        "Password for 'root'@'localhost': …\n",
    ] {
        let text = sentence.replace('…', &value);
        assert_eq!(redacted(&redactor, &text), sentence.replace('…', "[redacted:secrets]"));
    }
    for text in
        ["password: P4ssSecret9x2K", "JWT_SECRET=MyJwtSecret2024Prod", "api_token = 'myTokenX9q2mZ8v'"]
    {
        assert_ne!(redacted(&redactor, text), text);
    }
}
