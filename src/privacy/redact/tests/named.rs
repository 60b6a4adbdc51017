use super::*;
use crate::privacy::redact::named::KEY_WORDS;

#[test]
fn a_password_with_many_punctuation_marks_goes_as_a_whole_or_stays_as_a_whole() {
    let redactor = secrets();
    let django = "abcdefghijklmnopqrstuvwxyz0123456789!@#$%^&*(-_=+)";
    let with = |marks: &str| format!("{LETTERS_AND_DIGITS}{marks}");
    let (printable, terraform) =
        (with(r##"!"#$%&'()*+,-./:;<=>?@[\]^_`{|}~"##), with("!@#$%&*()-_=+[]{}<>:?"));
    let (wordpress, few) = (with("!@#$%^&*()-_[]{}<>~`+=,.;:/?| "), with("!@#$%^&*"));
    let json = |value: String| serde_json::to_string(&value).expect("JSON");
    let text = |value: String| value;
    let forms: [(_, _, _, &dyn Fn(String) -> String); 20] = [
        ("SECRET_KEY = 'django-insecure-…'\n", django, 50, &text),
        ("DJANGO_SECRET_KEY=…\nDEBUG=1", django, 50, &text),
        ("DJANGO_SECRET_KEY=…  \r\n", django, 50, &text),
        ("SECRET_KEY = \"…\"", django, 50, &text),
        ("{\n  \"username\": \"ann\",\n  \"password\": …,\n  \"port\": 5432}", &printable, 28, &json),
        ("x = json.loads(\"{\\\"password\\\": …}\")", &printable, 28, &|value| {
            let inner = serde_json::to_string(&json(value)).expect("JSON");
            inner[1..inner.len() - 1].to_owned()
        }),
        ("db_password = \"…\"\nx = 1", &terraform, 24, &text),
        ("export DB_PASSWORD=…\n", &terraform, 24, &text),
        ("  password: …\n  user: ann", &terraform, 24, &text),
        ("define( 'AUTH_KEY',         '…' );\n", &wordpress, 64, &text),
        ("define('SECURE_AUTH_SALT', '…');\n", &wordpress, 64, &text),
        ("PASSWORD='…'\n", &few, 20, &text),
        ("docker run -e PASSWORD=… image", &few, 20, &text),
        ("    3→DB_PASSWORD=…\n", &terraform, 24, &text),
        (".env:3:DB_PASSWORD=…\n", &terraform, 24, &text),
        ("+DB_PASSWORD=…\n", &terraform, 24, &text),
        ("    - DB_PASSWORD=…\n", &terraform, 24, &text),
        ("# DB_PASSWORD=…\n", &terraform, 24, &text),
        ("\"Env\": [\"DB_PASSWORD=…\", \"PATH=/bin\"]", &terraform, 24, &text),
        ("SECRET_KEY = config('SECRET_KEY', default='…')", django, 50, &text),
    ];
    for (form, of, length, written) in forms {
        let (before, after) = form.split_once('…').expect("a place");
        let (mut gone, mut rests) = (0, Vec::new());
        for number in 0..200 {
            let value = written(drawn(of, length, number));
            let text = format!("{before}{value}{after}");
            let (redacted, inner) = (redacted(&redactor, &text), value.trim_matches(['"', '\\']));
            let left = redacted
                .strip_prefix(before.trim_end_matches("django-insecure-"))
                .and_then(|text| text.strip_suffix(after));
            if left.is_some_and(|left| left.len() < "\\\"[redacted:secrets]\\\",".len()) {
                gone += 1;
            } else if redacted != text {
                rests.push((inner.to_owned(), redacted));
            }
        }
        assert!(gone >= 185 && rests.len() <= 2, "{form}: {gone} of 200, {rests:?}");
    }
    for text in [
        "const PASSWORD_PATTERN = '^[A-Za-z0-9]{8,}$'",
        "password: ^(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9!@#$%^&*]{8,}$",
        "API_KEY=${STAGING_API_KEY:-none}",
        "apiKey: {{ .Values.x9.apiKey2 | quote }}",
        "API_KEY=<your-token-A1>",
        "token: foo(bar[0]).baz,",
        "token = tokens[i++] && Xk2 || next(Qz9);",
        "token=\"%Y-%m-%dT%H:%M:%S.%fZ\"",
        "SECRET_PATH=/etc/Qx7/k9.pem,/etc/Zk2/q8.pem",
        "token=f\"{self.x9}:{now():%H%M}?z={Qk}&w={J7}\"",
        "password = $(cat /run/x9/Qz) || exit 1",
        "let token = Token::new(TokenKind::Ident, &src[a..b], Span { lo, hi });",
        "key_token: 'Hello, ann! (1) Q&A; (2) FAQ?'",
        "passwd=$(openssl rand -base64 32 | tr -d '+/=' | cut -c1-24)",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn what_only_a_secret_looks_like_is_replaced_wherever_it_is_behind_a_name_in_the_line() {
    let redactor = secrets();
    for form in [
        "credentials: ann@example.org / …",
        "process.env.JWT_SECRET || '…'",
        "process.env.JWT_SECRET ?? '…';",
        "var jwtSecret = []byte(\"…\")",
        "public string ApiKey { get; set; } = \"…\";",
        "$key = getenv('API_KEY') ?: '…';",
        "ENV['API_KEY'] || '…'",
        "env::var(\"API_TOKEN\").unwrap_or_else(|_| \"…\".to_string())",
        "SECRET_KEY = env('SECRET_KEY', default='…')",
        "parser.add_argument('--api-key', default='…')",
        "api_key: str = Field(default=\"…\")",
        "val t = System.getenv(\"TOKEN\") ?: \"…\"",
        "$_ENV['API_KEY'] ?? '…'",
        "String.fromEnvironment('API_KEY', defaultValue: '…')",
        "@click.option('--password', default='…')",
        "std::string password{\"…\"};",
        "local token = [[…]]",
        "USER, PASSWORD = \"u\", \"…\"",
        "{\"name\":\"API_KEY\",\"slotSetting\":false,\"value\":\"…\"}",
        "{\"value\":\"…\",\"name\":\"API_TOKEN\"}",
        "{\n  \"value\": \"…\",\n  \"name\": \"API_TOKEN\"\n}",
        "\"Name\":\"/prod/db/password\",\"Type\":\"SecureString\",\"Value\":\"…\"",
        "{\"Parameter\": {\n  \"Name\": \"/prod/db/password\",\n  \"Type\": \"SecureString\",\n  \"Value\": \"…\"\n}}",
        "[{\"keyName\":\"key1\",\"permissions\":\"FULL\",\"value\":\"……==\"}]",
        "{\n  \"keyName\": \"key1\",\n  \"permissions\": \"FULL\",\n  \"value\": \"……==\"\n}",
        "{\"ParameterKey\":\"DBPassword\",\"ParameterValue\":\"…\"}",
        "Access key ID,Secret access key\nAKIAQWERTYUIOPASDFGH,…",
        "User name,Password\nann,…\n",
        "username,password\nann,…",
        "NAME       API_TOKEN\nstaging    …\n",
        "api_key        …",
        "| `API_TOKEN` | `…` |",
        "API_KEY\t…\n",
        "printf 'API_TOKEN\\t…'",
        "DB_PASS = os.getenv(\"DB_PASS\", \"…\")",
        "the token is …, as you asked",
        "The password for the admin account: `…`",
        "* Password for `admin`: `…`",
        "API key for staging: \"…\"",
        "- **API key** (production): `…`",
        "- **API key for production**: **`…`**",
        "Found a hardcoded secret in settings.py at line 12: '…'",
        "ValueError: token mismatch: '…'",
        "the password is: '…'",
        "~ {\n  ~ name  = \"API_KEY\"\n  ~ value = \"the-old-one\" -> \"…\"\n}",
        "  - name  = \"auth.password\" -> null\n  - value = \"…\" -> null\n",
        "Here is your API key:\n\n```\n…\n```\n",
        "Password:\n```text\n…\n```",
        "The new password is:\n\n~~~\n…\n~~~\n",
        "API token: <pre><code>…</code></pre>",
    ] {
        let mut gone = 0;
        for number in 0..100_u8 {
            let value = drawn(LETTERS_AND_DIGITS, 24 + usize::from(number % 17), number.into());
            let value =
                if form.starts_with("Access") { drawn(LETTERS_AND_DIGITS, 40, number.into()) } else { value };
            let text = form.replace('…', &value);
            let (plain, stored) = (redacted(&redactor, &text), stored(&redactor, &text));
            assert!(!stored.contains(&value) || plain.contains(&value), "{text}: {stored}");
            let (text, (_, after)) = (plain, form.rsplit_once('…').expect("a place"));
            gone += usize::from(!text.contains(&value) && text.ends_with(after.trim_start_matches('=')));
        }
        assert!(gone >= 95, "{form}: {gone} of 100");
    }
    for text in [
        "\"js-tokens\": {\"integrity\": \"sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP\"}",
        "github.com/x/token v1.0.0 h1:z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcgSpIdNs6c5H=",
        "the token of commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad is 0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e",
        "{\"branch\":\"fix/csrf-token\",\"id\":\"toolu_016HuwyGCfk2LL8tQe8F1jP2\"}",
        "the token count\\nqQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t, https://x.io/token?id=qQ7xK2mZ9vB4nR8t",
        "input_tokens: 12, id: \"msg_01XFDUDYJgAACzvnptvVoYEL\"",
        "next_token or \"qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t\"",
        "token, then in src/privacy2/Redact7/SecretTokenRules.rs and AbstractSingletonProxyFactoryBean2Test",
        "the tokenizer qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
        "a token\n\nqQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
        "secret data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
        "The token of the last commit: `3b18e512dba79e4c8300dd08aeb37f8e`, and its request id: `qQ7xK2mZ9vB4nR8t`",
        "const token = of(user), trace: \"qQ7xK2mZ9vB4nR8tqQ7x\"",
        "{\"token\": {\"of user\": \"ann\", \"trace\": \"qQ7xK2mZ9vB4nR8tqQ7x\"}}",
        "token and, a good deal further on in the same line, which is long, there is something else: qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn the_arguments_of_functions_that_hash_are_replaced() {
    let redactor = secrets();
    for form in [
        "token = sha256(password=\"…\")",
        "digest = sha256({ secret: \"…\" })",
        "SELECT md5(password='…')",
        "the md5 (of api_key: …)",
        "SHA1 (token) = …",
        "see checksum/token=…",
        "I have 2 tokens …",
        "API key:\n```\n\"…\"\n```",
    ] {
        let value = random(32);
        let text = redacted(&redactor, &form.replace('…', &value));
        assert!(!text.contains(&value), "{text}");
    }
    let digits = drawn("0123456789abcdef", 64, 7);
    let text = redacted(&redactor, &format!("sha256(password=\"{digits}\")"));
    assert!(!text.contains(&digits), "{text}");
}

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
        "got {\"content\": \"api_keys:\\n  - …\\n  - …\\n  - …\\nb: 2\"}",
    ] {
        let text = list.iter().fold(form.to_owned(), |text, value| text.replacen('…', value, 1));
        assert_eq!(redacted(&redactor, &text), form.replace('…', "[redacted:secrets]"));
    }
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
        let text = sentence.replace('…', &list[0]);
        assert_eq!(redacted(&redactor, &text), sentence.replace('…', "[redacted:secrets]"));
    }
    for text in
        ["password: P4ssSecret9x2K", "JWT_SECRET=MyJwtSecret2024Prod", "api_token = 'myTokenX9q2mZ8v'"]
    {
        assert_ne!(redacted(&redactor, text), text);
    }
    // What is not alone in its line is no element.
    let text = format!("token:\n  {}\n2f7c1b9e0a4d done\n", list[0]);
    assert_eq!(redacted(&redactor, &text), "token:\n  [redacted:secrets]\n2f7c1b9e0a4d done\n");
}

#[test]
fn secrets_behind_less_usual_names_and_options_are_replaced() {
    let redactor = secrets();
    let value = random(32);
    for form in [
        "API_KEY1=…",
        "OPENAI_API_KEY2=\"…\"",
        "DB_PASSWORD2=…",
        "{\"password1\":\"…\"}",
        "apiKeyProd: \"…\"",
        "{\"passwordConfirmation\":\"…\"}",
        "Your new password is: …",
        "Your API token is: …",
        "Token created: …",
        "API key for staging: …",
        "A temporary password is generated for root@localhost: …",
        "token for bob = …",
        "SECRET_KEY = config('SECRET_KEY', default='…')",
        "api_key: str = Field(default=\"…\")",
        "<name>fs.s3a.secret.key</name>\n  <value>…</value>",
        "<data name=\"ApiKey\" xml:space=\"preserve\">\n  <value>…</value>",
        "<string name=\"weather_api_key\">…</string>",
        "process.env.API_KEY || '…'",
        "env::var(\"API_TOKEN\").unwrap_or_else(|_| \"…\".to_string())",
        "curl -su ann:… https://x.io",
        "curl -uann:… https://x.io",
        "curl -fsSLu ann:… https://x.io",
        "curl -u :… https://x.io",
        "curl -u $U:… https://x.io",
        "curl -u \"$U:…\" https://x.io",
        "curl https://x.io --proxy-user ann:…",
        "API Key: …",
        "Access key: …",
        "openai.api.key=…",
        "secret.key=…",
        "encryption.key=…",
        "stripeKey: '…'",
        "adminKey=…",
        "appKey: \"…\"",
        "serviceRoleKey = '…'",
        "subscriptionKey: \"…\"",
        "export GH_PAT=…",
        "AZURE_DEVOPS_EXT_PAT: …",
        "REDISCLI_AUTH=…",
        "//registry.npmjs.org/:_auth=…",
        "psk=\"…\"",
        "bindpw …",
        "pw: …",
        "DB_PW=…",
        "{\"pw\":\"…\"}",
        "passcode = \"…\"",
        "bindpw: …",
        "export BW_SESSION=\"…\"",
        "{\"kty\":\"OKP\",\"crv\":\"Ed25519\",\"x\":\"a\",\"d\":\"…\"}",
        "{\\\"kty\\\":\\\"oct\\\",\\\"k\\\":\\\"…\\\"}",
        "PuTTY-User-Key-File-3: ssh-ed25519\nPrivate-Lines: 1\n………\nPrivate-MAC: 00ff",
        "PuTTY-User-Key-File-3: ssh-rsa\nPrivate-Lines: 2\n……\n…\nPrivate-MAC: 00ff",
        "{\"key\":\"-----BEGIN PRIVATE KEY-----\\n…\\/……\\n…\\/…\\n-----END PRIVATE KEY-----\\n\"}",
        "_ghp_……_",
        "X_ghp_……_",
    ] {
        let text = redacted(&redactor, &form.replace('…', &value));
        assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
    }
    for text in [
        "curl -sXPUT http://127.0.0.1:8080/v1/qQ7xK2mZ9vB4nR8t -o out",
        "docker run -u 1000:1000 image",
        "resource_re_abcdefgh_ijklmnopqrstuvwxyzabcdef, my_vercel_deployment_of_some_project_x",
        "httpw: qQ7xK2mZ9vB4nR8t, monkey: 'qQ7xK2mZ9vB4nR8t', publicKey='qQ7xK2mZ9vB4nR8t'",
        "data:font/ttf;base64,AAAAAA/EAAASAA0AYG0FAAAAAAAAAAAAAAAAAIgwAAASAA0AQJcEAAAAAAAAAAAAAAAAACULAQASAA0A",
        "z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/EAAAl0Hn6Zk9fXq3vB7cR2tY8uJ5mP1wQ4eS6dG0hK9lZ3xC7vN2bM5oT8rEAA",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
    for address in ["https://x.io/v1/hooks/", "a+b/", "/home/ann/"] {
        let text = format!("{address}EAAA{}", random(60));
        assert_eq!(redacted(&redactor, &text), format!("{address}[redacted:secrets]"));
    }
}

#[test]
fn what_stands_behind_the_name_of_a_secret_is_replaced() {
    let redactor = secrets();
    let value = random(32);
    for (before, after) in [
        ("PASSWORD=", ""),
        ("export SECRET_KEY='", "'"),
        ("API_TOKEN: ", "\nnext: 1"),
        ("{\"client_secret\": \"", "\"}"),
        ("{\\\"apiKey\\\": \\\"", "\\\"}"),
        ("aws_secret_access_key = ", "\n"),
        ("password => \"", "\","),
        ("let api_key = \"", "\";"),
        ("login(token=", ")"),
        ("token: ", ", other"),
        ("  password             = \"", "\"\n"),
        ("password:\n      ", "\n"),
        ("\"SecretAccessKey\": \"", "\","),
        ("secretKey: '", "'"),
        ("AccountName=x;AccountKey=", ";EndpointSuffix=y"),
        ("tokenValue = ", "\n"),
        ("psql --password ", " -h db"),
        ("os.environ[\"API_TOKEN\"] = \"", "\""),
        ("const API_KEY: &str = \"", "\";"),
        ("const API_KEY: &'static str = \"", "\";"),
        ("char password[] = \"", "\";"),
        ("password = b\"", "\""),
        ("token: Some(\"", "\".into())"),
        ("secret = Secret::new(\"", "\")"),
        ("setPassword(\"", "\")"),
        ("os.getenv(\"X_TOKEN\", \"", "\")"),
        ("define('DB_PASSWORD', '", "');"),
        ("token = `", "`"),
        ("<password>", "</password>"),
        ("#define API_KEY \"", "\""),
        ("ENV API_TOKEN ", "\nRUN x"),
        ("set -gx API_TOKEN ", "\n"),
        ("if token == \"", "\" {"),
        ("?token%3D", "&x=1"),
        ("token=&quot;", "&quot;"),
        ("\u{1b}[1mtoken\u{1b}[0m: \u{1b}[32m", "\u{1b}[0m"),
        ("CREATE ROLE a PASSWORD '", "'"),
        ("var apiKey string = \"", "\""),
        ("apiKey?: string = \"", "\""),
        ("token: Optional[str] = \"", "\""),
        ("SECRET_KEY = \"\"\"", "\"\"\""),
        ("password = (\"", "\")"),
        ("password = @\"", "\""),
        ("api_key <- \"", "\""),
        ("token = r#\"", "\"#"),
        ("apiKey={\"", "\"}"),
        ("password: |\n  ", "\n"),
        ("password: &pw ", "\n"),
        ("passwords:\n  - ", "\n"),
        ("{\"tokens\":[\"", "\"]}"),
        ("{\"name\":\"DB_PASSWORD\",\"value\":\"", "\"}"),
        ("<Password type=\"text\">", "</Password>"),
        ("<password><![CDATA[", "]]></password>"),
        ("<key>password</key><string>", "</string>"),
        ("<add key=\"ApiToken\" value=\"", "\"/>"),
        ("login -token ", " x"),
        ("os.environ.get(\"API_KEY\") or \"", "\""),
        ("**API_KEY**: ", "\n"),
        ("serviceKey: ", "\n"),
        ("- name: DB_PASSWORD\n  value: ", "\n"),
        ("Authorization: ", ""),
        ("Authorization: Bearer 12|", ""),
        ("postgres://app:a$b'c", "@db/app"),
        ("postgres://app:P7x9k2@", "@db.example.com/app"),
        ("https://ann@corp.com:", "@git.example.com/x.git"),
        ("authorization: SSWS ", "\n"),
        ("Authorization: Bearer ", ""),
        ("-H \"Authorization: Basic ", "\""),
        ("\"authorization\": \"Bearer ", "\""),
        ("postgres://app:", "@db.example.com/app"),
        ("HTTP/1.1 200 OK\n{\"dsn\":\"postgres:\\/\\/app:", "@db.example.com\\/app\"}"),
    ] {
        let text = redacted(&redactor, &format!("{before}{value}{after}"));
        assert!(
            !text.contains(&value) && text.contains("[redacted:secrets]") && text.ends_with(after),
            "{text}"
        );
    }
}

#[test]
fn a_value_of_letters_before_a_quotation_mark_is_no_prefix_of_a_string() {
    let redactor = secrets();
    let letters = drawn("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ", 32, 1);
    let hex = drawn("0123456789abcdef", 64, 2);
    for (form, value) in [
        ("\"POSTGRES_PASSWORD=…\",", &letters),
        ("Environment=\"API_TOKEN=…\"", &letters),
        ("--env 'DB_PASSWORD=…'", &letters),
        ("token = rb\"…\"", &letters),
        ("Private key: …", &hex),
        ("- Secret key: …", &hex),
        ("Encryption key: …", &hex),
        ("signing key = '…'", &hex),
        ("Master Key: …", &hex),
        ("\"Secret Key\": \"…\"", &hex),
        ("\"Secret Token\": \"…\"", &letters),
        ("\"Token Secret\": \"…\"", &hex),
        ("Deploy Key: …", &hex),
        ("S3 Secret Key: …", &hex),
    ] {
        let text = form.replace('…', value);
        assert_eq!(redacted(&redactor, &text), form.replace('…', "[redacted:secrets]"), "{form}");
    }
    for text in [
        "USDC_TOKEN=0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
        "Token deployed to: 0xA0b86991c6218b36c1d19D4a2e9Eb0cE3606eB48",
        "Culture=neutral, PublicKeyToken=b77a5c561934e089",
        "verify_key = '6c8dd1d4b1f24e0e8d2b5d2e8c1f3a907f6a5b4c3d2e1f00'",
        "{\"nextPageToken\": \"CAUQAAdk3p9XyZq8LmN2vB7tR4w\"}",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn what_languages_write_between_a_name_and_its_value_hides_neither() {
    let redactor = secrets();
    // Values of hexadecimal digits are replaced only where a name is known to be theirs.
    let values = [random(24), drawn("0123456789abcdef", 32, 7)];
    for text in [
        "api_key: str | None = \"…\"",
        "token: None | str = '…'",
        "SECRET_KEY: bytes | str = b\"…\"",
        "api_key: SecretStr | None = Field(default=\"…\")",
        "password: Mapped[str | None] = mapped_column(String, default=\"…\")",
        "const apiKey: string | undefined = '…';",
        "  private token: string | null = '…';",
        "let token : string = \"…\"",
        "var jwtSecret = []byte(\"…\")",
        "JWTSecret: []byte(`…`),",
        "public string ApiKey { get; set; } = \"…\";",
        "<meta-data\n  android:name=\"com.x.API_KEY\"\n  android:value=\"…\" />",
        "const secret = new TextEncoder().encode(\n  '…',\n)",
        "API_KEY: z.string().min(1).default('…'),",
        "ENV['TOKEN'] ||= '…'",
        "ENV.fetch('TOKEN') { '…' }",
        "TOKEN ?= …",
        "std::string api_key{\"…\"};",
        "$password = ConvertTo-SecureString \"…\" -AsPlainText",
        "$password = ConvertTo-SecureString -String '…' -AsPlainText",
        "parser.add_argument(\"--token\", type=str, default=\"…\")",
        "token = models.CharField(max_length=100, default=\"…\")",
        "const token = isProd ? process.env.TOKEN : '…'",
        "const token = await Promise.resolve('…')",
        "get apiKey() { return '…' }",
        "  [\"password\"]=>\n  string(24) \"…\"",
        "s:8:\"password\";s:24:\"…\";",
        "db_password\n  Extra inputs are not permitted [type=extra_forbidden, input_value='…', input_type=str]",
        "{\"element\": \"Password field\", \"ref\": \"e12\", \"text\": \"…\"}",
        "{\"name\": \"Password\", \"type\": \"textbox\", \"ref\": \"e1\", \"value\": \"…\"}",
        "{\"code\": \"too_small\", \"path\": [\"apiKey\"], \"message\": \"Too short\", \"received\": \"…\"}",
        "page.getByLabel('Password').fill('…')",
        "cy.get('[name=password]').type('…')",
        "kubectl create secret generic app --from-literal=password=… --dry-run=client -o yaml > secret.yaml",
        "echo \"the secret is in .env\"; echo \"DB_PASSWORD=…\" >> .env",
        "INFO token refresh apiKey=… -> 200",
        "test('password is redacted', { apiKey: '…' }, () => x)",
        "pass     = \"…\"",
        "<pass>…</pass>",
        "jwt.signing.key=…",
        "App Key: …",
        "ENCRYPTION_KEY_BASE64=…",
        "AZURE_STORAGE_KEY_1: …",
        "const STRIPE_KEY_LIVE = \"…\";",
        "{\"jwtKey\": \"…\"}",
        "const apiKeyProduction = '…';",
        "tokens.github = \"…\"",
        "passwords[\"root\"] = \"…\"",
        "password：…",
        "redis-cli -h $REDIS_HOST -p $REDIS_PORT -a … ping",
        "mysql -h h -P$MYSQL_PORT -u root -p…",
        "mosquitto_pub -p ${MQTT_PORT:-1883} -u a -P '…' -t x",
        "ldapsearch -a always_deref -D cn=a -w '…'",
        "运行mysql -uroot -p… db",
    ] {
        for value in &values {
            let replaced = redacted(&redactor, &text.replace('…', value));
            assert_eq!(replaced, text.replace('…', "[redacted:secrets]"));
        }
    }
    for text in [
        "name,password\nann,…",
        "\"Title\",\"Url\",\"Username\",\"Password\"\n\"x\",\"https://h\",\"ann\",\"…\"",
        "id,name,token2\n1,ann,…",
        "| **user** | **password** |\n|---|---|\n| ann | … |",
        "│ name │ password │\n├──────┼──────────┤\n│ ann  │ … │",
    ] {
        let replaced = redacted(&redactor, &text.replace('…', &random(32)));
        assert_eq!(replaced, text.replace('…', "[redacted:secrets]"));
    }
}

#[test]
fn what_stands_behind_a_word_of_a_secret_in_code_may_be_no_value() {
    let redactor = secrets();
    for text in [
        "\"<=\" => Token::LessThanOrEqual, \">>=\" => Token::ShiftRightAssign, ApiKey::KeywordWhile => Secret::FixedSizeBinary",
        "def load(signing_key: Ed25519PrivateKey):",
        "Some(token) if token.kind == TokenKind::ZoneOffsetFixed, \"big_key\" => KeyType::BigKeyFixedSize",
        "gpg --keyserver hkps://keys.openpgp.org --recv-keys 5BE8A3F6C8A5C01D106C0AD820B1A390B168D356",
        "<a href=\"webcrypto.html#class-cryptokey\" class=\"type\">&#x3C;CryptoKey></a>",
        "pub private_key: EcdsaKeyPair, private_key: ed25519.Ed25519PrivateKey",
        "#define CKM_GENERIC_SECRET_KEY_GEN 0x00000350UL\nconst HASH_KEY: u64 = 0x9E3779B97F4A7C15;",
        "the password, and then you should look at the token\nqQ7xK2mZ9vB4nR8tqQ7xK2mZ",
        "tokenHash(x) == other, sha256 = \"3b18e512dba79e4c8300dd08aeb37f8e\"",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn what_is_found_behind_a_name_does_not_depend_on_other_names_in_the_text() {
    let redactor = secrets();
    let keys = KEY_WORDS.iter().flat_map(|word| ["", ".", " ", "_"].map(|sign| format!("{word}{sign}key")));
    let other = [
        "password",
        "pass_phrase",
        "dbPwd",
        "securestring",
        "api-key",
        "creds",
        "smtpPass",
        "db_pw",
        "npm_auth",
        "gh_pat",
    ];
    let others = other.iter().chain(&["WIFI_PSK", "user_salt", "keys_key_2"]).map(|name| (*name).to_owned());
    let value = random(32);
    for name in keys.chain(others) {
        for sign in [
            "=…",
            " = '…'",
            "\t:= \"…\"",
            ": …",
            ">…<",
            "(\"…\")",
            "   |…",
            "?: string = `…`",
            "\\\": \\\"…\\\"",
            "[]={\"…\"}",
        ] {
            let text = format!("{name}{sign}").replace('…', &value);
            let with_another = redacted(&redactor, &format!("{text}\nthe secret"));
            assert_eq!(redacted(&redactor, &text), with_another.trim_end_matches("\nthe secret"), "{text}");
        }
    }
}

#[test]
fn the_content_of_an_element_with_attributes_is_replaced() {
    let redactor = secrets();
    for value in [random(24), drawn("0123456789abcdef", 32, 1)] {
        for form in [
            "<password replace=\"true\">…</password>",
            "<token expires=\"3600\">…</token>",
            "<dbPassword attr='1'>…</dbPassword>",
            "<password encrypted=\"false\">\n    …\n</password>",
            "<pass type=\"x\">…</pass>",
            "<Pass encoding=\"base64\">…</Pass>",
            "<AdministratorPassword>\n  <Value>…</Value>",
            "\\u003cpassword\\u003e…\\u003c/password\\u003e",
            "&lt;password&gt;…&lt;/password&gt;",
        ] {
            let text = redacted(&redactor, &form.replace('…', &value));
            assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
        }
    }
}

#[test]
fn defaults_of_variables_and_random_bytes_are_replaced() {
    let redactor = secrets();
    let (hex, value) = (drawn("0123456789abcdef", 32, 1), random(24));
    for value in [&hex, &value] {
        for form in ["export API_KEY=\"${API_KEY-…}\"", "DB_PASSWORD: \"${DB_PASSWORD-…}\""] {
            let text = redacted(&redactor, &form.replace('…', value));
            assert!(!text.contains(value) && text.contains("[redacted:secrets]"), "{text}");
        }
    }
    let mut random_byte = fastrand::Rng::with_seed(1);
    let bytes: Vec<u8> = (0..24).map(|_| random_byte.u8(..)).collect();
    let escaped = bytes.iter().map(|byte| format!("\\x{byte:02x}")).collect::<Vec<_>>().concat();
    for form in ["SECRET_KEY = b'…'", "app.config['SECRET_KEY'] = b'\\xeb\\xbfH…'", "$secret = \"…\";"]
    {
        let text = redacted(&redactor, &form.replace('…', &escaped));
        assert!(!text.contains(&escaped) && text.contains("[redacted:secrets]"), "{text}");
    }
    let listed = bytes.iter().map(|byte| format!("0x{byte:02X}")).collect::<Vec<_>>().join(", ");
    for form in [
        "static const unsigned char aes_key[24] = { … };",
        "APPKEY[24] = {\n  …\n};",
        "aesKey := []byte{…}",
        "byte[] secretKey = { (byte)… };",
    ] {
        let list = if form.contains("(byte)") { listed.replace(", ", ", (byte)") } else { listed.clone() };
        let text = redacted(&redactor, &form.replace('…', &list));
        assert!(!text.contains(&list) && text.contains("[redacted:secrets]"), "{text}");
    }
}

#[test]
fn values_on_the_line_after_their_variable_and_those_that_end_like_types_are_replaced() {
    let redactor = secrets();
    for value in [random(24), drawn("0123456789abcdef", 32, 1), format!("{}Secret", random(24))] {
        for form in [
            "let secret = env::var(\"JWT_SECRET\")\n    .unwrap_or_else(|_| \"…\".to_string());",
            "let secret = env::var(\"JWT_SECRET\")\n    .unwrap_or_else(|_| {\n        \"…\".to_string()\n    });",
            "env::var(\"API_TOKEN\")\n        .unwrap_or(\"…\".into())",
            "Optional.ofNullable(System.getenv(\"API_KEY\"))\n        .orElse(\"…\");",
            "\"Jwt:Key\": \"…\"",
            "\"Jwt\": { \"Issuer\": \"x\", \"Key\": \"…\" }",
            "\"db\": {\n  \"sensitive\": true,\n  \"type\": \"string\",\n  \"value\": \"…\"\n}",
            "  DBParameter:\n    NoEcho: true\n    Default: …",
            "- name: API_KEY\n  required: true\n  value: …",
            "- key: API_KEY\n  scope: RUN_TIME\n  value: …",
            "password = <<EOT\n…\nEOT",
            "export API_KEY=\\\n…",
            "#define API_KEY \\\n    \"…\"",
            "<meta name=\"api-key\" content=\"…\">",
            "aws configure set aws_secret_access_key …",
            "SetEnv DB_PASSWORD …",
            "token                …",
            "| API_KEY | … |",
            "JWT_SECRET=…",
            "{\"jwtSecret\": \"…\"}",
            "{\"mistral\": {\"type\": \"api\", \"key\": \"…\"}}",
            "{\"openai\": {\n  \"type\": \"oauth\",\n  \"refresh\": \"rt_…\"}}",
            "{\"x\": {\"type\": \"oauth\", \"refresh\": \"\", \"access\": \"…\", \"expires\": 1}}",
        ] {
            let text = redacted(&redactor, &form.replace('…', &value));
            assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
        }
    }
}
