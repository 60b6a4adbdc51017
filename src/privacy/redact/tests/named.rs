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
fn what_closes_an_element_or_the_part_of_a_chat_behind_a_value_stays() {
    let redactor = secrets();
    for closing in [
        "</bash-input>",
        "</bash-stdout><bash-stderr></bash-stderr>",
        "</user_query>",
        "</code></li>",
        "<br>",
        "<br />",
        "<|im_end|>",
        "<|eot_id|><|start_header_id|>assistant<|end_header_id|>",
        "<｜Assistant｜>",
        "<end_of_turn>",
        "</s>",
        "[/INST]",
        "。",
        "”，然后",
    ] {
        for name in [
            "API_KEY=",
            "export API_KEY=",
            "password: ",
            "<bash-input>export API_KEY=",
            "<command>curl https://x.org -u ann:",
            "mysql -u root -p",
            "docker login -u ann -p ",
            "requirepass ",
        ] {
            for value in [random(32), drawn("0123456789abcdef", 40, 1)] {
                let text = redacted(&redactor, &format!("{name}{value}{closing}\nnext"));
                assert_eq!(text, format!("{name}[redacted:secrets]{closing}\nnext"));
            }
        }
    }
}

#[test]
fn what_only_a_secret_looks_like_is_replaced_wherever_it_is_behind_a_name_in_the_line() {
    let redactor = secrets();
    for form in [
        "\"apiKey\": {\"S\": \"…\"}",
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
