use super::rules::CustomRule;
use super::texts::LONGEST_INNER;
use super::*;

fn secrets() -> Redactor {
    Redactor::new(&["secrets"], &[], None).expect("built-in rules")
}

fn redacted(redactor: &Redactor, text: &str) -> String {
    let spans = redactor.spans(text, 0, MOST_SPANS);
    let tags = redactor.tags.as_ref().map(|key| (key, replacements::TAG));
    redactor.replace(text, 0, &spans, tags).unwrap_or_else(|| text.to_owned())
}

/// Returns a text as it is stored: one that is JSON stays JSON.
fn stored(redactor: &Redactor, text: &str) -> String {
    let mut text = text.to_owned();
    text.texts(&mut Redaction::new(redactor, &HashKey::new(vec![1; 32])));
    text
}

/// Characters that look drawn at random, always the same.
fn random(length: usize) -> String {
    let mut random = fastrand::Rng::with_seed(length as u64);
    std::iter::repeat_with(|| random.alphanumeric()).take(length).collect()
}

#[test]
fn tokens_are_replaced_wherever_they_stand_in_a_text() {
    let redactor = secrets();
    let hex = "0123456789abcdef".repeat(4);
    for token in [
        format!("ghp_{}", random(36)),
        format!("sk-ant-api03-{}AA", random(93)),
        format!("AKIA{}", random(16).to_uppercase()),
        format!("glpat-{}", random(20)),
        format!("SK{}", &hex[..32]),
        format!("pat{}.{hex}", random(14)),
        format!("abc8Q~{}", random(34)),
        format!("{}.atlasv1.{}", random(14), random(64)),
        format!("eyJhbGciOiJIUzI1NiJ9.eyJ{}.{}", random(60), random(43)),
        format!("sk-proj-{}T3BlbkFJ{}", random(74), random(74)),
        format!("https://hooks.slack.com/services/T0123ABCD/B0123ABCD/{}", random(24)),
        format!(r"https:\/\/hooks.slack.com\/services\/T0123ABCD\/B0123ABCD\/{}", random(24)),
        format!(r"https:\/\/outlook.office.com\/webhook\/{}@{0}\/IncomingWebhook\/{0}", random(30)),
        format!(r"https:\/\/discord.com\/api\/webhooks\/0123456789\/{}", random(68)),
        format!("glnr_{}", random(51)),
        format!("ghs_1234567_eyJ{}.eyJ{}.{}", random(20), random(60), random(43)),
        format!("eyJ{}..{}.{}.{}", random(40), random(16), random(60), random(22)),
        format!("1//0{}", random(60)),
        format!("{}JQQJ99{}", random(52), random(26)),
        format!("{}AZDO{}", random(76), random(4)),
        format!("{}AzFu{}==", random(44), format_args!("{}A", random(5))),
        format!("sbp_oauth_{}", &hex[..40]),
        format!("shptka_{}", &hex[..32]),
        format!("glrtr-{}", random(20)),
        format!("AGE-SECRET-KEY-PQ-1{}", random(58).to_uppercase()),
        format!("{}+ASt{}==", random(76), format_args!("{}A", random(5))),
        format!("sha256~{}", random(43)),
        format!("BBDC-{}", random(44)),
        format!("cmVmdGtu{}", random(56)),
        format!("amzn1.oa2-cs.v1.{hex}"),
        format!("access-sandbox-{}-0123-4567-89ab-{}", &hex[..8], &hex[..12]),
        format!("fo1_{}", random(43)),
        format!("dt0s16.{}.{}", random(8).to_uppercase(), random(64).to_uppercase()),
        format!("pdus+_0XBPWQQ_{}", random(32)),
        format!("mlsn.{hex}"),
        format!("apify_api_{}", random(36)),
        format!("jina_{}{}", &hex[..32], random(28)),
        format!("pa-{}", random(43)),
        format!("llx-{}", random(48)),
        format!("crsr_{hex}"),
        format!("rpa_{}", random(46)),
        format!("n8n_api_{}", random(60)),
        format!("signkey-prod-{hex}"),
        format!("pdl_live_apikey_{}_{}_{}", random(26).to_lowercase(), random(22), random(3)),
        format!("ddp_{}", random(36)),
        format!("dnkey-{}-{}", random(26), random(52)),
        format!("fc-{}", &hex[..32]),
    ] {
        for (before, after) in [
            ("", ""),
            ("the key is ", " as you asked"),
            ("export KEY='", "'\n"),
            ("{\"key\": \"", "\"}"),
            ("?key=", "&x=1"),
            ("Client::new(\"", "\")"),
            (r#"{\"command\":\"export A=1\n"#, r#"\n\"}"#),
            ("\u{1b}[1;32m", "\u{1b}[0m"),
            (r"\u001b[31m", ""),
            ("?q=a%3D", "&x=1"),
            ("%22", "%22"),
            ("a%253D", "%26x=1"),
            ("[32m", "[0m"),
            ("a#012", "#012"),
            ("a^M", "^M"),
            ("a%u000A", "%u000A"),
            ("a=A0", "\n"),
            (r"a\012", r"\012"),
            ("a=3D", "\n"),
            ("https://example.com/t/9fK2mQ8xZ7pL4vB1nR6t/", " of"),
        ] {
            // Such a token may also be base64 in which a slash stands by chance.
            if token.chars().all(|c| c.is_ascii_alphanumeric() || "+/=".contains(c)) && before.ends_with('/')
            {
                continue;
            }
            let text = format!("{before}{token}{after}");
            assert_eq!(redacted(&redactor, &text), format!("{before}[redacted:secrets]{after}"));
        }
    }
    let web_token = format!("eyJhbGciOiJIUzI1NiJ9.eyJ{}.{}", random(60), random(43));
    assert_eq!(redacted(&redactor, &format!("session_{web_token}")), "session_[redacted:secrets]");
}

#[test]
fn secrets_of_usual_programs_and_files_are_replaced() {
    let (redactor, hex, secret) = (secrets(), "0123456789abcdef".repeat(3), random(20));
    let (hex32, date) = (&hex[..32], "2026-01-01T00:00:00Z");
    let discord = format!("MT{}.G{}.{}", random(24), random(5), random(38));
    for (text, secret) in [
        (format!("DB_PASS={secret}"), secret.as_str()),
        (format!("export SMTP_PASS=\"{secret}\""), &secret),
        (format!("{{\"user\":\"bob\",\"pass\":\"{secret}\"}}"), &secret),
        (format!("auth: {{ user: 'bob@x.io', pass: '{secret}' }}"), &secret),
        (format!("ansible_ssh_pass={secret}"), &secret),
        (format!("**Password:** {secret}"), &secret),
        (format!("curl -u bob:{secret} https://api.example.com"), &secret),
        (format!("mysql -u root -p{secret} app"), &secret),
        (format!("sshpass -p '{secret}' ssh bob@10.0.0.1"), &secret),
        (format!("docker login -u bob -p {secret} registry.io"), &secret),
        (format!("redis-cli -h db -p 6379 -a {secret} ping"), &secret),
        (format!("mongosh --host db -u bob -p '{secret}'"), &secret),
        (format!("[\"ldapsearch\", \"-x\", \"-D\", \"cn=bob\", \"-w\", \"{secret}\"]"), &secret),
        (format!("sqlcmd -S db -U sa -P {secret} -Q 'select 1'"), &secret),
        (format!("<RSAKeyValue><Modulus>x</Modulus><D>{}</D></RSAKeyValue>", random(172)), &random(172)),
        (format!("subprocess.run(['curl', '-u', 'bob:{secret}', url])"), &secret),
        (format!(r#"{{"args":["curl","--user","bob:{secret}"]}}"#), &secret),
        (format!(r#""{{\"command\":[\"curl\",\"-u\",\"bob:{secret}\"]}}""#), &secret),
        (format!(r#"["mysql","-u","root","-p{secret}","app"]"#), &secret),
        (format!("mysql -u root --password='{secret}' app"), &secret),
        (format!(r#"["sshpass", "-p", "{secret}", "ssh"]"#), &secret),
        (format!(r#"[\"docker\",\"login\",\"-u\",\"bob\",\"-p\",\"{secret}\"]"#), &secret),
        (format!("machine api.github.com\n  login bob\n  password {secret}\n"), &secret),
        (format!("db.example.com:5432:app:bob:{secret}\n"), &secret),
        (format!("requirepass {secret}"), &secret),
        (format!("bob:{secret}@tcp(db:3306)/app"), &secret),
        (format!("CREATE USER 'b'@'%' IDENTIFIED BY '{secret}';"), &secret),
        (format!("variable \"db_password\" {{\n  type = string\n  default = \"{secret}\"\n}}"), &secret),
        (format!("{{\"auths\":{{\"https://index.docker.io/v1/\":{{\"auth\":\"{secret}\"}}}}}}"), &secret),
        (format!("    client-key-data: {}\n", random(200)), &random(200)),
        (format!("client.login(\"{discord}\")"), &discord),
        (format!("https://ptb.discord.com/api/v10/webhooks/1234567890/{}", random(68)), &random(68)),
        (format!("new TelegramBot(\"7123456789:AA{}\")", random(33)), &random(33)),
        (format!("https://x.blob.core.windows.net/c?sv=2022-11-02&sp=r&sig={}%3D", random(43)), &random(43)),
        (format!("Client(\"AC{hex32}\", \"{}\")", &hex[8..40]), &hex[8..40]),
        (format!("CREDENTIALS\tASIAABCDEFGHIJKLMNOP\t{date}\t{}", random(40)), &random(40)),
        (format!("sk-{hex32}"), hex32),
        (format!("sk_org_live_{}", random(60)), &random(60)),
        (format!("sk_{hex}"), &hex),
        (format!("xoxd-{}", random(60)), &random(60)),
        (format!("d=xoxd-{}/{}+%3D; x", random(30), random(31)), &random(31)),
        (format!("access_token$production$abcdefgh01234567${hex32}"), hex32),
        (format!("oauth:{}", random(30).to_lowercase()), &random(30).to_lowercase()),
        (format!("{hex32}-us12"), hex32),
        (format!("pat-na1-{}-1234-1234-1234-{}", &hex[..8], &hex[..12]), &hex[..12]),
    ] {
        for redacted in [redacted(&redactor, &text), stored(&redactor, &text)] {
            assert!(
                redacted.contains("[redacted:secrets]") && !redacted.contains(secret),
                "{text}: {redacted}"
            );
        }
    }
    // The letter of an escaped line break is not part of the word behind it.
    for text in [
        format!(r"printf 'machine api.heroku.com\nlogin me\npassword {secret}\n' > ~/.netrc"),
        format!(r"set -e\nmysql -u root -p{secret} app"),
        format!(r"set -e\nsshpass -p {secret} ssh"),
        format!(r"x\ncurl -sSu bob:{secret} https://x.io"),
        format!(r"HTTP/1.1 200 OK\r\nCookie: session={secret}\r\n"),
        format!(r"x\nbearer {secret}"),
        format!(r"x\ndb.example.com:5432:app:bob:{secret}\ny"),
        format!("echo 'db.example.com:5432:app:bob:{secret}' >> ~/.pgpass"),
        format!(r"FROM x\nENV API_TOKEN {secret}\nRUN y"),
        format!(r"discord:\n{discord}"),
        format!(r"x\n7123456789:AA{}", random(33)),
        format!(r"x\n{hex32}-us12"),
        // JSON may escape each slash, and may stand in a text that is none.
        format!(r#"data: {{"authorization":"Basic {secret}\/{secret}"}}"#),
        format!(r#"data: {{"auth":"{secret}\/{secret}=="}}"#),
        format!(r#"data: {{"cookie":"a=1\/2; session={secret}\/{secret}"}}"#),
    ] {
        let redacted = redacted(&redactor, &text);
        let secrets = [&secret, &discord, &random(33), hex32];
        assert!(!secrets.iter().any(|secret| redacted.contains(*secret)), "{redacted}");
    }
    for text in [
        "pass the value: it passes, as compass: \"north\" does",
        "docker run -u node:node -p 8080:8080 image",
        "redis-cli -h my-cache-2.example.com -p 6379 --latency, unzip -a archiveOfProject2.zip",
        "mongodump -p 27017; the ldap -w option, mongo -a ConfigurationOfReplicaSet2",
        "<RSAKeyValue><Modulus>qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t</Modulus></RSAKeyValue>",
        "sort -u names.txt && mysql -u root -p app < dump.sql",
        r#"["docker", "run", "-u", "node:node", "-p", "8080:8080"]"#,
        r#"["mysql", "-u", "root", "-p", "app"]"#,
        "password hashing and the password verification",
        "docker login registry.io",
        "{\"auth\": \"oauth2\", \"pass\": true}",
        "https://example.com/sig=1&sig=abc",
        "10:30:5432:ok",
    ] {
        assert_eq!(redacted(&redactor, text), text);
        assert_eq!(stored(&redactor, text), text);
    }
}

/// Characters drawn at random of some, always the same for the same number.
fn drawn(of: &str, length: usize, number: u64) -> String {
    let (of, mut random) = (of.as_bytes(), fastrand::Rng::with_seed(number));
    std::iter::repeat_with(|| char::from(of[random.usize(..of.len())])).take(length).collect()
}

const LETTERS_AND_DIGITS: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

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
        "token and, a good deal further on in the same line, which is long, there is something else: qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn a_text_of_nothing_but_names_is_read_in_linear_time() {
    let redactor = secrets();
    for name in [
        "token ",
        "token=",
        "token.",
        "token='",
        "token(\"",
        "token: [",
        "api_key,",
        "secret\n",
        "\"token\":\n",
        "password x token=abcd ",
        "pwd=",
        "pwd:",
        "pwd='pwd",
        "a.pwd-",
        "\u{1b}[1mpwd=",
        "\u{1b}[",
    ] {
        let taken = |bytes: usize| {
            let text = name.repeat(bytes / name.len());
            let begun = processor_time();
            redacted(&redactor, &text);
            processor_time().saturating_sub(begun)
        };
        let [short, long] = [1 << 16, 1 << 19].map(taken);
        // A search from each name to the end takes 64 times as long.
        assert!(long < 24 * short + Duration::from_millis(100), "{name}: {short:?}, {long:?}");
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
fn a_text_of_nothing_but_beginnings_of_tokens_is_looked_at_once() {
    // Looked at from each beginning to the end, these would take hours.
    let redactor = secrets();
    for shape in SHAPES_THAT_HOLD_THEMSELVES {
        let text = shape.repeat((2 << 20) / shape.len());
        assert_eq!(redacted(&redactor, &text), "[redacted:secrets]", "{shape}");
    }
    let alternating = SHAPES_THAT_HOLD_THEMSELVES.concat().repeat(20_000);
    assert!(redacted(&redactor, &alternating).len() < alternating.len() / 2);
}

/// Beginnings of tokens that may stand in such tokens.
const SHAPES_THAT_HOLD_THEMSELVES: [&str; 5] = ["xoxb-", "glpat-", "sk-ant-", "xoxe.", "xapp-"];

#[test]
fn a_long_name_is_not_looked_at_again_for_each_of_its_values() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let name = "token".repeat(200_000);
    let value = serde_json::json!({ name.as_str(): vec!["a"; 100_000], "password": [random(32)] });
    let mut metadata = crate::types::FreeForm::of(&value).expect("JSON");
    let mut redaction = Redaction::new(&redactor, &key);
    metadata.texts(&mut redaction);
    assert_eq!(redaction.spans(), 1);
}

/// From every place of a text of capital letters it looks at all of the rest, in vain.
const SLOW: &str = "(?s).*[^A-Z]|[A-Z]";

#[test]
fn an_expression_of_a_projects_own_that_takes_too_long_hides_the_rest_of_the_text() {
    let slow = Redactor::new(&[], &[("slow", SLOW)], None).expect("an expression");
    let text = "A".repeat(2 << 20);
    let hidden = redacted(&slow, &text);
    assert!(hidden.ends_with("[redacted:slow]") && !hidden.contains('A'));
}

#[test]
fn what_one_text_has_taken_of_the_time_of_slow_expressions_is_not_there_for_the_next() {
    let slow = Redactor::new(&[], &[("slow", SLOW)], None).expect("an expression");
    let text = "A".repeat(60_000);
    let letters = || redacted(&slow, &text).matches("[redacted:slow]").count();
    let begun = processor_time();
    // One letter after the other is replaced, and at last the rest.
    let first = letters();
    let took = processor_time().saturating_sub(begun);
    assert!(took > CUSTOM_SPARE && letters() < first);
    assert_eq!(*slow.spare.lock().expect("no thread panics"), Duration::ZERO);
    assert_eq!(redacted(&slow, "abc D"), "[redacted:slow][redacted:slow]");
}

#[test]
fn expressions_that_take_too_long_to_compile_together_are_refused() {
    let rule = |regex: &str| CustomRule { name: "n".to_owned(), regex: regex.to_owned() };
    let rules = RedactRules { custom: vec![rule("a"), rule("b")], ..RedactRules::default() };
    let (number, reason) =
        rules.compile_within(Duration::ZERO).expect_err("no expression compiles in no time");
    assert_eq!((number, reason.as_str()), (0, "it takes too long to compile, with those before it"));
    rules.compile_within(Duration::MAX).expect("two expressions");
}

#[test]
fn a_text_that_is_json_stays_json_and_its_strings_are_read_as_what_they_mean() {
    let redactor = Redactor::new(&["secrets", "emails", "ips"], &[], None).expect("built-in rules");
    let (key, value) = (HashKey::new(vec![1; 32]), random(32));
    let line = format!("Contact:\nann@example.org\n10.1.2.3\nCookie: sid={value}\nENV API_TOKEN {value}\n");
    let mut text = serde_json::json!([{"role": "system", "content": line, "arguments": "{\"to\":\"\\nann@example.org\"}"}])
        .to_string();
    text.texts(&mut Redaction::new(&redactor, &key));
    let redacted: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    let expected = "Contact:\n[redacted:emails]\n[redacted:ips]\nCookie: [redacted:secrets]\nENV API_TOKEN [redacted:secrets]\n";
    assert_eq!(redacted[0]["content"], expected);
    let mut votes: crate::types::FreeForm =
        serde_json::from_str(r#"{"ann@example.org": 3, "bob@example.org": 5}"#).expect("an object");
    votes.texts(&mut Redaction::new(&redactor, &key));
    let votes: serde_json::Map<String, serde_json::Value> =
        serde_json::from_str(votes.as_str()).expect("JSON");
    assert_eq!(votes.values().collect::<Vec<_>>(), [3, 5], "{votes:?}");
    assert_eq!(redacted[0]["arguments"], r#"{"to":"\n[redacted:emails]"}"#);
}

#[test]
fn texts_that_are_json_are_read_to_a_depth_of_eight_in_each_other() {
    let redactor = Redactor::new(&["emails"], &[], None).expect("a built-in rule");
    // The escapes hide the address from who does not read the text as JSON.
    let hidden = |levels: usize| {
        let quoted = |text: &str| text.replace('\\', r"\u005c").replace('"', r"\u0022");
        let address = String::from(r#"["ann\u0040example.org"]"#);
        (0..levels).fold(address, |inner, _| format!("[\"{}\"]", quoted(&inner)))
    };
    for (levels, is_read) in [(0, true), (1, true), (8, true), (9, false), (400, false)] {
        assert_ne!(stored(&redactor, &hidden(levels)) == hidden(levels), is_read, "{levels}");
    }
    let long = |text: &str| serde_json::json!([text, "x".repeat(LONGEST_INNER)]).to_string();
    let [outer, inner] = [long(&hidden(0)), long(&long(&hidden(0)))];
    assert_ne!(stored(&redactor, &outer), outer);
    assert_ne!(stored(&redactor, &inner), inner);
    let deep = |levels: usize| format!("{}{}{}", "[".repeat(levels), hidden(0), "]".repeat(levels));
    assert_ne!(stored(&redactor, &deep(126)), deep(126));
    assert_eq!(stored(&redactor, &deep(127)), deep(127));
    let innermost = long(&inner);
    assert_eq!(stored(&redactor, &innermost), innermost);
}

#[test]
fn the_name_of_a_value_in_json_may_be_another_string() {
    let (redactor, key, value) = (secrets(), HashKey::new(vec![1; 32]), random(24));
    for json in [
        r#"{"name":"DB_PASSWORD","value":"…"}"#,
        r#"{"env": [{"name": "DB_PASSWORD", "value": "…"}, {"name": "HOME", "value": "/root"}]}"#,
        r#"["mysql", "--password", "…", "--host", "db"]"#,
        r#"{"cmd":"ls\n","args":["--api-key","…"]}"#,
        r#"["X-API-Key","…"]"#,
        r#"{"command":["curl","-u","bob:…","https://x"]}"#,
        r#"{"command":["curl","--user","bob:…","https://x"]}"#,
        r#"["mysql","-u","root","-p…","app"]"#,
        r#"{"title":"the api token","text":"is …, ok"}"#,
        r#"{"name":"API_TOKEN","value":"use … here"}"#,
    ] {
        let mut text = json.replace('…', &value);
        let mut redaction = Redaction::new(&redactor, &key);
        text.texts(&mut redaction);
        assert_eq!((text, redaction.spans()), (json.replace('…', "[redacted:secrets]"), 1));
    }
    // The span of the string as it is written ends before the escape.
    let text = stored(&redactor, &format!(r#"{{"password": "{value}\u0026{value}"}}"#));
    assert_eq!(text, r#"{"password": "[redacted:secrets]"}"#);
    let text =
        stored(&redactor, &format!(r#"{{"title":"the api token","text":"\u00e9\t{value}\\, \"ok\""}}"#));
    assert_eq!(text, r#"{"title":"the api token","text":"é\t[redacted:secrets]\\, \"ok\""}"#);
    let bot = format!("MTI{}.GaBcDe.{}", random(23), random(38));
    let text = stored(&redactor, &format!(r#"{{"service":"discord","note":"bot is {bot} now"}}"#));
    assert_eq!(text, r#"{"service":"discord","note":"bot is [redacted:secrets] now"}"#);
    // A span of the text as it is written may begin and end within an escape.
    let json = format!(r#"["--password","\u00e9{value}\n","\n{value}\\"]"#);
    let mut text = json.clone();
    text.texts(&mut Redaction::new(&redactor, &key));
    serde_json::from_str::<Vec<String>>(&text).expect("JSON");
}

#[test]
fn counting_how_long_texts_are_changes_nothing() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let secret = format!("API_TOKEN={}", random(32));
    let mut texts = vec![secret.clone(), serde_json::json!({ "text": secret }).to_string()];
    let (mut hash, mut id) = (vec![1], uuid::Uuid::nil());
    let (before, mut counting) = (texts.clone(), Redaction::counting(&redactor, &key));
    texts.texts(&mut counting);
    counting.hide(&mut hash);
    counting.hide_id(&mut id);
    assert_eq!((&texts, hash, id), (&before, vec![1], uuid::Uuid::nil()));
    assert!(!counting.is_long());
    texts.resize(1_000, secret);
    texts.texts(&mut counting);
    assert!(counting.is_long(), "short texts add up");
}

#[test]
fn what_many_replacements_add_to_an_event_is_bounded() {
    let name = "n".repeat(50);
    let each = Redactor::new(&[], &[(&name, "[a-z]")], None).expect("an expression");
    let (key, text) = (HashKey::new(vec![1; 32]), "a1".repeat(MOST_SPANS * 2));
    let mut redaction = Redaction::new(&each, &key);
    let mut texts = vec![text.clone(), text, "1".to_owned(), "a".to_owned()];
    texts.texts(&mut redaction);
    // The first text ends with one replacement of all that is left.
    let replacement = format!("[redacted:{name}]");
    assert!(texts[0].ends_with(&format!("1{replacement}")));
    assert_eq!(texts[0].matches(&replacement).count(), MOST_SPANS + 1);
    assert_eq!(texts[1..], ["*", "1", "*"]);
}

#[test]
fn secrets_in_json_are_found_however_they_are_written_there_and_the_rest_stays_as_it_was() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let (token, value) = (format!("ghp_{}", random(36)), random(32));
    let escaped: String =
        token.chars().flat_map(|c| format!("\\u{:04x}", u32::from(c)).into_bytes()).map(char::from).collect();
    for (before, after) in [
        (format!(r#"{{"a": "{escaped}", "n": 1.50}}"#), r#"{"a": "[redacted:secrets]", "n": 1.50}"#),
        (
            format!(r#"{{"\u0070assword": "{value}", "b": "\u00e9"}}"#),
            r#"{"\u0070assword": "[redacted:secrets]", "b": "\u00e9"}"#,
        ),
        (
            format!(r#"{{"db": "postgres:\/\/app:{value}@db\/x"}}"#),
            r#"{"db": "postgres://[redacted:secrets]@db/x"}"#,
        ),
        (format!(r#"{{"a": "{token}", "a": 1e2}}"#), r#"{"a": "[redacted:secrets]", "a": 1e2}"#),
        (
            format!(r#"{{"token": ["{value}", {{"x": "{value}"}}, "{value}"], "x": "{value}"}}"#),
            &format!(
                r#"{{"token": ["[redacted:secrets]", {{"x": "{value}"}}, "[redacted:secrets]"], "x": "{value}"}}"#
            ),
        ),
        (
            format!(r#"{{"{token}" : {{}}, "c\\": "\"{token}"}}"#),
            r#"{"[redacted:secrets:01c7a686]" : {}, "c\\": "\"[redacted:secrets]"}"#,
        ),
        (
            format!(r#"{{"{token} password": "{value}", "password": "{value} and {token}"}}"#),
            r#"{"[redacted:secrets:01c7a686] password": "[redacted:secrets]", "password": "[redacted:secrets] and [redacted:secrets]"}"#,
        ),
    ] {
        let mut json: crate::types::FreeForm = serde_json::from_str(&before).expect("an object");
        json.texts(&mut Redaction::new(&redactor, &key));
        assert_eq!(json.as_str(), after, "{before}");
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
fn credentials_that_a_program_puts_into_a_header_are_replaced() {
    let redactor = secrets();
    let value = random(32);
    for (scheme, name) in [("Basic ", "Authorization"), ("", "Authorization"), ("session=", "Cookie")] {
        for form in [
            "headers[\"NAME\"] = \"…\"",
            "headers[\\\"NAME\\\"] = \\\"…\\\"",
            "xhr.setRequestHeader(\"NAME\", \"…\")",
            "req.Header.Set(\"NAME\", `…`)",
            ".header(NAME, HeaderValue::from_static(\"…\"))",
            "'NAME' => '…',",
            "proxy_set_header NAME \"…\";",
            "[(\"NAME\",\"…\")]",
            "headers = {'NAME': b'…'}",
        ] {
            let text = form.replace("NAME", name).replace('…', &format!("{scheme}{value}"));
            let text = redacted(&redactor, &text);
            assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
        }
    }
    let joined = redacted(&redactor, &format!("h.set('Authorization', 'Bearer ' + '{value}')"));
    assert_eq!(joined, "h.set('Authorization', 'Bearer ' + '[redacted:secrets]')");
    let addresses =
        redacted(&redactor, "https://u:P7x9k2mT@x.io, ann@example.org, postgres://a:kQ8z@w3Z@h1,h2/db");
    assert_eq!(
        addresses,
        "https://[redacted:secrets]@x.io, ann@example.org, postgres://[redacted:secrets]@h1,h2/db"
    );
    let letters = "qwertyuiopasdfghjklzxcvb";
    let header = redacted(&redactor, &format!("Authorization: Bearer {letters}\n"));
    assert_eq!(header, "Authorization: Bearer [redacted:secrets]\n");
    let quoted = redacted(&redactor, &format!("Cookie: a=\"{value}\"\n"));
    assert_eq!(quoted, "Cookie: [redacted:secrets]\"\n");
    let cookie = redacted(&redactor, &format!("Cookie: theme=dark; session={value}\nAccept: text/html"));
    assert_eq!(cookie, "Cookie: [redacted:secrets]\nAccept: text/html");
}

#[test]
fn a_private_key_goes_also_if_it_was_cut_off() {
    let redactor = secrets();
    let lines = format!("{}\n{}", random(64), random(63));
    let kind = "RSA PRIVATE KEY";
    let whole = format!("a\n-----BEGIN {kind}-----\n{lines}\n-----END {kind}-----\nb");
    assert_eq!(redacted(&redactor, &whole), format!("a\n-----BEGIN {kind}-----[redacted:secrets]\nb"));
    let cut = format!("-----BEGIN {kind}-----\n{lines}");
    assert_eq!(redacted(&redactor, &cut), format!("-----BEGIN {kind}-----[redacted:secrets]"));
    let indent = " ".repeat(40);
    let timed = "2026-11-23T10:00:00Z web-1  | ";
    for line in [
        "    3→",
        "4:",
        "> ",
        "\", \"",
        "\\n",
        "-",
        "server.key:3:",
        "// ",
        " * ",
        "; ",
        "│ ",
        &indent,
        timed,
        "3b18e512 (Ann 2026-11-23 10:00:00 +0000 3) ",
    ] {
        let listed = whole.replace('\n', &format!("\n{line}"));
        let listed = redacted(&redactor, &listed);
        assert!(listed.ends_with(&format!("-----[redacted:secrets]\n{line}b")), "{listed}");
    }
    // The lines of the key as strings of programs.
    let key = format!("{}\n{lines}\n{}", random(62), random(24));
    let ends = [format!("-----BEGIN {kind}-----"), format!("-----END {kind}-----")];
    let all = [ends[0].as_str()].into_iter().chain(key.lines()).chain([ends[1].as_str()]);
    for (before, after) in [
        ("  \"", "\\n\" +"),
        ("    + \"", "\\n\""),
        ("  \"", "\\n\" ."),
        ("    \"", "\\n\""),
        ("    b\"", "\\n\""),
        ("    '", "\\n' \\"),
        ("\"", "\\r\\n\" \\"),
        ("        \\\"", "\\\\n\\\" +"),
        ("printf '%s\\n' '", "' >> k"),
        ("printf \"%s\\r\\n\" \"", "\" >> k"),
        ("> ", "\n>"),
        ("> ", "\r\n>\r"),
    ] {
        let program = all.clone().fold(String::new(), |program, line| program + before + line + after + "\n");
        let cut_start = program.split_once('\n').expect("lines").1;
        let (cut_end, _) = program.rsplit_once(before).expect("lines");
        let escaped = serde_json::to_string(&program).expect("JSON");
        for text in [&program, cut_start, cut_end, &escaped] {
            let text = redacted(&redactor, text);
            assert!(text.contains("[redacted:secrets]"), "{text}");
            assert!(
                !key.lines().any(|line| line.len() > 40 && text.contains(line)),
                "{before}{after}: {text}"
            );
            assert!(
                !text.contains("-----END") && !text.contains(key.lines().last().expect("a line")),
                "{before}{after}: {text}"
            );
        }
    }
    let locked =
        whole.replacen("KEY-----\n", "KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00FF\n\n", 1);
    assert_eq!(redacted(&redactor, &locked), redacted(&redactor, &whole));
    let (_, last) = whole.split_once("KEY-----\n").expect("a first line");
    assert_eq!(redacted(&redactor, last), "[redacted:secrets]\nb");
    let certificate = whole.replace(kind, "CERTIFICATE");
    assert_eq!(redacted(&redactor, &certificate), certificate);
}

#[test]
fn what_only_looks_like_a_secret_is_left_alone() {
    let redactor = secrets();
    for text in [
        "id 0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e of the request",
        "commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "integrity sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
        "password must have 12 characters; token count 9999; api_key is required",
        "let password_hash = hash(password, salt_7);",
        "SELECT token, secret FROM keys WHERE id = 123456789",
        "https://example.com/a/0123456789ab?page=3&token_type=bearer",
        "token = requestPasswordTokenFromUser",
        "const apiKey = getEnvApiKey(model.provider)",
        "https://user:REDACTED@github.com/repo",
        "max_tokens: 123456789012",
        "task-ant-api03-aaaaaaaaaaaaaaaaaaaaaaaaaa",
        "postgres://postgres:postgres@localhost:5432/app",
        "DATABASE_URL=postgres://$USER:$PASSWORD@db/app",
        "Authorization: Bearer $GLEANER_KEY",
        "Authorization: Bearer your-access-token-of-32-letters",
        "headers.set(\"Authorization\", \"Basic \" + btoa(user2 + \":\" + passwordOfUser2))",
        "allow_headers([\"Authorization\", \"X-B3-TraceId\", \"X-Amz-Security-Token\", \"Sec-WebSocket-Protocol\"])",
        "the authorization, basic authentication-of-http2",
        "document.cookie = \"theme=dark; path=/; expires=Thu, 01 Jan 1970 00:00:00 GMT\"",
        "let cookie = Cookie::build((SESSION_COOKIE_NAME_2, sessionIdOfUser2));",
        "Authorization: Basic authentication is not used here",
        "bearer authentication with documentation-page",
        "secret_name: my-application-production-2",
        "primary_key=customer_identifier_2026",
        "Idempotency-Key: qQ7xK2mZ9vB4nR8t, next_page_token: \"qQ7xK2mZ9vB4nR8t\", api_key_id = 'qQ7xK2mZ9vB4nR8t'",
        "docker://alpine:3.19@sha256:0123",
        "s3_key: uploads/9f/3b18e512dba79e4c8300dd08aeb37f8e.png, pwd: /tmp/tmpXk29qQ7xK2mZ, OLDPWD=/var/tmp/qQ7xK2mZ9vB4nR8t",
        "object_key: 3b18e512dba79e4c8300dd08aeb37f8e, image_key=\"qQ7xK2mZ9vB4nR8t\", unique_key='qQ7xK2mZ9vB4nR8t'",
        "dedupe_key: qQ7xK2mZ9vB4nR8t",
        "git+ssh://git@github.com:22/owner/repo@v1.2, https://x.io:8080/@scope/name@1.2.3",
        "x25519_public_key = f(), k8s_public_key: x, obj.accessKeyId = f, obj.JWT_PUBLIC_KEY = g",
        "API_KEY=your-api-key-goes-here",
        "password                  = var.database_master_password_2",
        "let token = tokens.next(); let secret = Secret::from_environment(\"GLEANER_SECRET\");",
        "if s.startswith(\"-----BEGIN PRIVATE KEY-----\"):\n    load(s)\nelse:\n    raise ValueError(s)",
        "A file with -----BEGIN PRIVATE KEY----- in it is a key, and whoever reads it must not show it.",
        "if key.startswith(\"-----BEGIN PRIVATE KEY-----\"):\n    certificateauthority = load_certificate_authority(key)\n",
        "These have -----BEGIN PRIVATE KEY----- in them:\n/usr/share/keyrings/debian\n/etc/ssl/private/internationalization\n",
        "the cookie: chocolate, with a long description of how to bake it",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn addresses_and_home_folders_are_replaced_if_asked_for() {
    let redactor = Redactor::new(&["emails", "ips", "home-paths"], &[], None).expect("built-in rules");
    for (text, expected) in [
        ("Ann <ann.b+x@mail.example.org>, hi", "Ann <[redacted:emails]>, hi"),
        ("git@github.com:x/y", "[redacted:emails]:x/y"),
        ("from 203.0.113.7:443 and 2001:db8::1.", "from [redacted:ips]:443 and [redacted:ips]."),
        (
            "10.1.2.3,10.1.2.4 10.1.2.5\n10.1.2.6",
            "[redacted:ips],[redacted:ips] [redacted:ips]\n[redacted:ips]",
        ),
        (r"x\n10.1.2.3\n2001:db8::1", r"x\n[redacted:ips]\n[redacted:ips]"),
        ("2001:db8::1 2001:db8::2", "[redacted:ips] [redacted:ips]"),
        ("from ::ffff:203.0.113.7, ::ffff:127.0.0.1", "from [redacted:ips], ::ffff:127.0.0.1"),
        (
            "on 127.0.0.1:8080, ::1, 0.0.0.0; version 1.2.3.400 at 10:00:00",
            "on 127.0.0.1:8080, ::1, 0.0.0.0; version 1.2.3.400 at 10:00:00",
        ),
        ("/home/ann/src/x.rs:3", "[redacted:home-paths]/src/x.rs:3"),
        (r"C:\Users\Ann\x", r"[redacted:home-paths]\x"),
        ("std::vec::Vec", "std::vec::Vec"),
    ] {
        assert_eq!(redacted(&redactor, text), expected);
    }
}

#[test]
fn custom_rules_have_names_and_bounded_expressions() {
    let redactor = Redactor::new(&[], &[("ticket", "ACME-[0-9]+"), ("name", "(?:Mr|Ms) (\\w+)")], None);
    let redactor = redactor.expect("valid expressions");
    let text = "Ms Ann opened ACME-17 and ACME-18";
    assert_eq!(
        redacted(&redactor, text),
        "Ms [redacted:name] opened [redacted:ticket] and [redacted:ticket]"
    );
    let rules: Vec<_> =
        redactor.spans(text, 0, MOST_SPANS).iter().map(|span| redactor.name(span.rule)).collect();
    assert_eq!(rules, ["name", "ticket", "ticket"]);
    for wrong in ["(", "(?:a{1000}){1000}", r"(a)\1"] {
        let refused = Redactor::new(&[], &[("fine", "x"), ("wrong", wrong)], None);
        assert_eq!(refused.expect_err("no such expression").0, 1, "{wrong}");
    }
}

#[test]
fn with_tags_equal_secrets_are_recognized_and_others_are_not() {
    let redactor = Redactor::new(&["secrets"], &[], Some(HashKey::new(vec![7; 32]))).expect("built-in rules");
    let (one, two) = (format!("ghp_{}", random(36)), format!("ghp_{}", random(37)));
    let text = redacted(&redactor, &format!("{one} {two} {one}"));
    let tags: Vec<_> = text.split(' ').collect();
    assert!(tags[0] == tags[2] && tags[0] != tags[1], "{text}");
    assert!(
        tags[0].starts_with("[redacted:secrets:") && tags[0].len() == "[redacted:secrets:00112233]".len()
    );
}

#[test]
fn each_shape_has_an_issuer() {
    assert!(issuers().count() > 100 && issuers().all(|issuer| !issuer.is_empty()));
}

#[test]
fn a_secret_beside_half_of_a_surrogate_pair_in_json_is_replaced() {
    let (redactor, key) = (secrets(), HashKey::new(vec![1; 32]));
    let token = format!("ghp_{}", random(36));
    for (json, beginning) in [
        (r#"["\ud83d …"]"#, "[\"\u{fffd} [redacted:secrets]\"]"),
        (
            r#"{"cut": "\ude00", "password": "…\ud83d"}"#,
            r#"{"cut": "\ude00", "password": "[redacted:secrets]"#,
        ),
        (r#"{"\ud83d …": 1}"#, "{\"\u{fffd} [redacted:secrets:"),
    ] {
        let mut text = json.replace('…', &token);
        text.texts(&mut Redaction::new(&redactor, &key));
        assert!(!text.contains(&token) && text.starts_with(beginning), "{text}");
        serde_json::from_str::<serde::de::IgnoredAny>(&text).expect("JSON");
    }
}

#[test]
fn colors_hide_neither_names_nor_values_nor_tokens() {
    let redactor = secrets();
    let (hex, value, token) = (drawn("0123456789abcdef", 64, 1), random(32), format!("ghp_{}", random(36)));
    for (form, secret) in [
        ("{ sessionSecret: €[32m'…'€[39m }", &hex),
        ("€[34;01m\"access_token\"€[39;49;00m: €[33m\"…\"€[39;49;00m", &hex),
        ("€[34;1m\"access_token\"€[0m€[1;39m:€[0m €[0;32m\"…\"€[0m", &hex),
        (".env:€[01;31m€[KDB_PASSWORD€[m€[K=…\n", &value),
        (".env:DB_€[01;31m€[KPASS€[m€[KWORD=…\n", &value),
        ("-€[31mpassword€[m: €[31m'…'€[m", &value),
        ("€[36mAuthorization€[39;49;00m: €[33mBearer …€[39;49;00m", &value),
        ("printf '€[1mtoken€[0m: …€[0m'", &value),
        ("a €[32m…€[0m", &token),
        ("a€[32m…€[0m", &token),
        ("€[38:5:196mtoken€(B€[m: '…'", &value),
    ] {
        for escape in ["\u{1b}", r"\u{1b}", r"\u001b", r"\033", "&#27;", "&#x1B;", "#033", "^[", "␛"] {
            let form = form.replace('€', escape);
            let text = redacted(&redactor, &form.replace('…', secret));
            assert_eq!(text, form.replace('…', "[redacted:secrets]"));
        }
    }
    // The token that was looked for is only its beginning.
    let found = token.replacen("ghp_", "\u{1b}[01;31m\u{1b}[Kghp_\u{1b}[m\u{1b}[K", 1);
    assert_eq!(redacted(&redactor, &found), "\u{1b}[01;31m\u{1b}[K[redacted:secrets]");
    for text in [
        "\u{1b}[33m3b18e512dba79e4c8300dd08aeb37f8e728b8dad\u{1b}[m the token",
        "\u{1b}[32mnext_token\u{1b}[0m: \u{1b}[32m'qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t'\u{1b}[0m",
        "\u{1b}[1mtokens\u{1b}[0m: \u{1b}[33m123456789012\u{1b}[39m",
        "\u{1b}[1;32mtask-ant-api03-qQ7xK2mZ9vB4nR8tqQ7xK2mZ9v\u{1b}[0m",
        "\u{1b}[\u{1b}[0m31mé token\u{1b}[",
    ] {
        assert_eq!(redacted(&redactor, text), text);
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
fn what_a_program_writes_before_each_line_hides_no_value_from_its_name() {
    let redactor = secrets();
    let value = random(32);
    let texts = [
        "  - name: DB_PASSWORD\n    value: …",
        "  \"name\": \"DB_PASSWORD\",\n  \"value\": \"…\"",
        "  \"value\": \"…\",\n  \"name\": \"API_TOKEN\"",
        "  <name>fs.secret.key</name>\n  <value>…</value>",
        "  <key>Password</key>\n  <string>…</string>",
        "  password: >-\n    …",
        "password:\n  …",
        "  \"--token\",\n  \"…\"",
        "  API_KEY: |\n    …",
        "const token =\n  process.env.TOKEN ||\n  \"…\";",
        "  - --password\n  - …",
        "  apiKey:\n    \"…\",",
        "  set {\n    name  = \"auth.password\"\n    value = \"…\"\n  }",
    ];
    let before: [fn(usize, &str) -> String; 14] = [
        |number, line| format!("{number:6}→{line}"),
        |number, line| format!("{number:6}\t{line}"),
        |number, line| format!("L{number}: {line}"),
        |number, line| format!("{number}:{line}"),
        |number, line| format!("k8s/app.yaml:{number}:{line}"),
        |number, line| format!("k8s/app.yaml{}{line}", if number == 2 { ':' } else { '-' }),
        |_, line| format!("+{line}"),
        |number, line| format!("{number:6}→-{line}"),
        |_, line| format!("web-1  | {line}"),
        |_, line| format!("[pod/web-1/web] {line}"),
        |_, line| format!("2026-01-01T10:00:00.123456789Z stdout F {line}"),
        |_, line| format!("Jan  1 10:00:00 host web[12]: {line}"),
        |_, line| format!("> {line}"),
        |_, line| format!("# {line}"),
    ];
    for text in texts {
        for before in before {
            let text = format!("# head\n{text}\n# tail");
            let lines: Vec<_> =
                text.lines().enumerate().map(|(number, line)| before(number + 1, line)).collect();
            let text = lines.join("\n");
            for text in [text.clone(), format!("a\n{}", serde_json::json!({"output": text}))] {
                let replaced = redacted(&redactor, &text.replace('…', &value));
                assert_eq!(replaced, text.replace('…', "[redacted:secrets]"));
            }
        }
    }
    let table = "     6→user,password\n     7→ann,…";
    let replaced = redacted(&redactor, &table.replace('…', &value));
    assert_eq!(replaced, table.replace('…', "[redacted:secrets]"));
    // The value before and the one after a change.
    let (old, new) = (random(32), random(31));
    let text = "   - name: DB_PASSWORD\n-    value: OLD\n+    value: NEW\n";
    let replaced = redacted(&redactor, &text.replace("OLD", &old).replace("NEW", &new));
    assert_eq!(replaced, text.replace("OLD", "[redacted:secrets]").replace("NEW", "[redacted:secrets]"));
    for text in [
        "     6→the token\n     7→qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
        "+next_token:\n+  qQ7xK2mZ9vB4nR8tqQ7xK2mZ9vB4nR8t",
        "6\t- name: DB_PASSWORD\n7\t  valueFrom: {secretKeyRef: {name: db-credentials-5f7d, key: password}}",
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
    let keys =
        named::KEY_WORDS.iter().flat_map(|word| ["", ".", " ", "_"].map(|sign| format!("{word}{sign}key")));
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
fn keys_of_azure_are_replaced_in_what_its_program_prints() {
    let redactor = secrets();
    for (before, after) in [("AzCa", "="), ("AIoT", "="), ("+ASb", "="), ("+AEh", "="), ("+ARm", "=")] {
        let key = format!("{}{before}B{}{after}", random(33), &random(7)[..5]);
        let text = format!("{{\n  \"primaryKey\": \"{key}\"\n}}");
        assert_eq!(redacted(&redactor, &text), "{\n  \"primaryKey\": \"[redacted:secrets]\"\n}", "{before}");
    }
    for mark in ["AzSe", "+ACR"] {
        let text = format!("the key is {}{mark}C{} today", random(42), &random(7)[..5]);
        assert_eq!(redacted(&redactor, &text), "the key is [redacted:secrets] today", "{mark}");
    }
    let (signed, digits) = (random(43), drawn("0123456789abcdef", 32, 3));
    let text = format!(
        "{{\"primaryKey\": \"{signed}=\", \"key1\": \"{digits}\"}}\nfs.azure.account.key.x.dfs.core.windows.net={}",
        random(86)
    );
    let replaced = "{\"primaryKey\": \"[redacted:secrets]\", \"key1\": \"[redacted:secrets]\"}\nfs.azure.account.key.x.dfs.core.windows.net=[redacted:secrets]";
    assert_eq!(redacted(&redactor, &text), replaced);
    let text = r#"{"primaryKey": "customer_id", "key1": "a name", "primaryKey": "3b18e512"}"#;
    assert_eq!(redacted(&redactor, text), text);
}

#[test]
fn of_very_many_lines_the_first_are_read_without_what_stands_before_them() {
    let text = "+a\n".repeat(3 * lines::MOST_LINES);
    let views = lines::views(&text);
    let lengths: Vec<_> = views.iter().map(|plain| plain.text.len()).collect();
    assert_eq!(lengths, [text.len() - lines::MOST_LINES]);
}

#[test]
fn a_secret_beside_the_identifier_of_its_key_is_replaced() {
    let redactor = secrets();
    let id = format!("AKIA{}", random(16).to_uppercase());
    let letters = format!("{LETTERS_AND_DIGITS}+/");
    for form in [
        "new BasicAWSCredentials(\"ID\", \"…\")",
        "credentials.NewStaticCredentials(\"ID\", \"…\", \"\")",
        "Aws::Credentials.new('ID', '…')",
        "AwsBasicCredentials.create(\n    \"ID\",\n    \"…\"\n)",
        "boto3.Session('ID','…')",
        "new Credentials('…', 'ID')",
        "f(\"…\", \"ID\")",
        "…:ID",
        "s = '…', k = 'ID'",
        "Keys { id: \"ID\", value: \"…\" }",
        "k = \"ID\"\ns = \"…\"\n",
        "f(\\\"ID\\\", \\\"…\\\")",
        "f(\\\\\\\"ID\\\\\\\", \\\\\\\"…\\\\\\\")",
        "[\"ID\",\"…\"]",
        "ann,ID,…\r\n",
        "ID:…",
        "printf 'ID:%s\\n…'",
        "ID:…\n",
        "s3://ID:…@bucket",
        "ID%3A…%40bucket",
        "CREDENTIALS\tID\t2026-01-01T00:00:00Z\t…",
    ] {
        let mut gone = 0;
        for number in 0..100 {
            let secret = drawn(&letters, 40, number);
            for secret in
                [&secret, &secret.replace('/', r"\/"), &secret.replace('/', "%2F").replace('+', "%2B")]
            {
                let text = form.replace("ID", &id).replace('…', secret);
                let (plain, stored) = (redacted(&redactor, &text), stored(&redactor, &text));
                let after = form.rsplit_once('…').expect("a place").1.replace("ID", "[redacted:secrets]");
                let is_gone = [&secret[..10], &secret[30..]]
                    .iter()
                    .all(|part| !plain.contains(part) && !stored.contains(part));
                gone += usize::from(is_gone && plain.ends_with(&after));
            }
        }
        assert!(gone >= 290, "{form}: {gone} of 300");
    }
    for (id, length) in [("LTAI5t", 30), ("GOOG1EQWERTYUIOPASDFGH", 40), ("DO00QWERTYUIOPASDFGH", 43)] {
        let (id, secret) = (format!("{id}{}", random(18).to_uppercase()), random(length));
        let id = if id.starts_with("DO") { "DO00QWERTYUIOPASDFGH" } else { &id };
        let text = redacted(&redactor, &format!("new Client(\"{id}\", \"{secret}\")"));
        assert!(text.ends_with(", \"[redacted:secrets]\")"), "{text}");
    }
    let hex = "0123456789abcdef".repeat(2);
    for form in ["Client(\"AC", "Client(\\\"AC", "new Twilio('SK"] {
        let mark = &form[form.find(['\\', '"', '\'']).expect("a mark")..form.len() - 2];
        let text = redacted(&redactor, &format!("{form}{hex}{mark}, {mark}{}{mark})", random(32)));
        assert!(text.ends_with(&format!(", {mark}[redacted:secrets]{mark})")), "{text}");
    }
    for text in [
        format!("{id} is in commit 3b18e512dba79e4c8300dd08aeb37f8e728b8dad"),
        format!("{id} is in src/privacy/redaction/secrets/of/rules.rs"),
        format!(
            "https://x.s3.amazonaws.com/img/{}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={id}",
            random(40)
        ),
        format!("{id} {}", random(64)),
        format!("{id} sha1-{}=", random(40)),
        format!(
            "{id}, and a good deal further on, behind all of what else there is to say about it, something else: {}",
            random(40)
        ),
    ] {
        assert_eq!(redacted(&redactor, &text), text.replace(&id, "[redacted:secrets]"));
    }
}

#[test]
fn a_private_key_goes_also_from_an_address_or_a_form() {
    let redactor = secrets();
    let letters = format!("{LETTERS_AND_DIGITS}+/");
    let lines: Vec<_> = (0..12).map(|number| drawn(&letters, 64, number)).collect();
    let lines = format!("{}\n{}==", lines.join("\n"), random(30));
    let percent = |text: &str| {
        text.replace('%', "%25")
            .replace('\n', "%0A")
            .replace('+', "%2B")
            .replace('/', "%2F")
            .replace('=', "%3D")
            .replace(':', "%3A")
            .replace(',', "%2C")
    };
    let whole = |headers: &str| {
        format!("-----BEGIN RSA PRIVATE KEY-----\n{headers}{lines}\n-----END RSA PRIVATE KEY-----")
    };
    for headers in ["", "Proc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00112233445566778899AABBCCDDEEFF\n\n"]
    {
        let whole = whole(headers);
        let once = percent(&whole);
        for encoded in [
            once.clone(),
            once.replace(' ', "%20"),
            once.replace(' ', "+"),
            once.replace(' ', "%20").replace("%0A", "%0D%0A"),
            percent(&once.replace(' ', "%20")),
            percent(&once.replace(' ', "+")),
            whole.replace('\n', "\\n").replace('+', r"\u002B").replace('/', r"\/").replace('=', r"\u003d"),
        ] {
            let text = redacted(&redactor, &format!("GET /?key={encoded}&x=1"));
            let rest = text.strip_suffix("-----[redacted:secrets]&x=1");
            assert!(
                rest.is_some_and(|rest| rest.starts_with("GET /?key=-----BEGIN") && rest.len() < 60),
                "{text}"
            );
            let (_, last) = encoded.split_at(encoded.len() / 2);
            let text = redacted(&redactor, &format!("…{last}&x=1"));
            assert!(text.ends_with("[redacted:secrets]&x=1") && text.len() < 100, "{text}");
            let (first, _) = encoded.split_at(encoded.len() / 2);
            let text = redacted(&redactor, &format!("key={first}"));
            // Few characters of the line that was cut off may be left.
            assert!(text.contains("-----[redacted:secrets]") && text.len() < 100, "{text}");
        }
    }
    let ssh2 = format!(
        "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\n{lines}\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\nx"
    );
    assert_eq!(redacted(&redactor, &ssh2), "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----[redacted:secrets]\nx");
    for text in [
        percent(&whole("").replace("RSA PRIVATE KEY", "CERTIFICATE")).replace(' ', "%20"),
        "q=-----BEGIN+PRIVATE+KEY-----+in+a+file%0Aand+what+else+is+in+internationalization%2Fdocumentation"
            .to_owned(),
    ] {
        assert_eq!(redacted(&redactor, &text), text);
    }
}

#[test]
fn a_password_among_the_arguments_of_a_call_that_logs_in_is_replaced() {
    let redactor = secrets();
    let value = random(24);
    for form in [
        "requests.get(url, auth=(\"ann\", \"…\"))",
        "requests.get(url, auth = ('ann', '…'))",
        "requests.get(url, auth=HTTPBasicAuth('ann','…'))",
        "req.SetBasicAuth(\"ann\", \"…\")",
        "client.get(url).basic_auth(\"ann\", Some(\"…\"))",
        "smtp.PlainAuth(\"\", \"ann\", \"…\", host)",
        "server.login(user, \\\"…\\\")",
        "r.auth(\"…\")",
        "new mysqli(\"db.example.com\", \"ann\", \"…\", \"app\")",
        "MySQLdb.connect(\n    \"db\",\n    \"ann\",\n    \"…\",\n)",
        "DriverManager.getConnection(\"jdbc:postgresql://db/app\", \"ann\", \"…\")",
        "new UsernamePasswordCredentials(\"ann\", \"…\")",
        "new PasswordAuthentication(\"ann\", \"…\".toCharArray())",
        "new NetworkCredential(\"ann\", \"…\")",
        "new ClientSecretCredential(tenant, client, \"…\")",
        "crypto.createHmac('sha256', '…').update(body)",
        "hmac.new(b'…', body, 'sha256')",
        "jwt.sign(payload, '…', { expiresIn: '1h' })",
        "Fernet(b\"…\")",
    ] {
        let text = redacted(&redactor, &form.replace('…', &value));
        assert_eq!(text, form.replace('…', "[redacted:secrets]"));
    }
    for text in [
        "connect(\"onButtonClick2\", \"MainWindow2SlotHandler\"); id(\"qQ7xK2mZ9vB4nR8tqQ7x\")",
        "auth(\"0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e\", \"3b18e512dba79e4c8300dd08aeb37f8e728b8dad\")",
        "login(USER_NAME_2, read(\"/run/secrets/db2\"))",
        "connect(\"wss://x9.example.com/Qk7/zP3xW9vK2mQ8\", timeout=10)",
        "psycopg2.connect(\"host=db user=ann dbname=app\")",
        "connect(\"db2.k8s.eu-west-1.rds.example.com\")",
        "we connect(ed) the \"qQ7xK2mZ9vB4nR8tqQ7x\"",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn shares_of_a_vaults_key_and_webhooks_of_teams_are_replaced() {
    let (redactor, guid) = (secrets(), "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e");
    let (key, hex) = (format!("{}=", random(43)), "0123456789abcdef".repeat(4));
    for form in ["Unseal Key 1: …\n", "Recovery Key 5: …\n", "vault operator unseal …"] {
        for key in [&key, &random(44), &hex] {
            let text = redacted(&redactor, &form.replace('…', key));
            assert_eq!(text, form.replace('…', "[redacted:secrets]"));
        }
    }
    let hook = format!("/{guid}@{guid}/IncomingWebhook/{}/{guid}/V2{}", &hex[..32], random(40));
    for slash in ["/", r"\/", "%2F"] {
        let before = "https://acme.webhook.office.com/webhookb2".replace('/', slash);
        let hook = hook.replace('/', slash);
        let text = redacted(&redactor, &format!("post to {before}{hook} now"));
        assert_eq!(text, format!("post to {before}{slash}[redacted:secrets] now"));
    }
    for text in [
        "the unseal key 1: it is a share, and the recovery key 2: too",
        "vault operator unseal -migrate",
        "pa-system-of-the-building-for-all-announcements-2",
        "access-production-database, fc-list, signkey-prod-is-a-prefix, jina_embeddings_v2_base_en",
        "https://acme.webhook.office.com/webhookb2/",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn the_names_of_groups_stay_different_whatever_else_is_in_their_event() {
    let (redactor, key) = (Redactor::new(&["emails"], &[], None).expect("a rule"), HashKey::new(vec![1; 32]));
    let mut redaction = Redaction::new(&redactor, &key);
    "a@b.org ".repeat(MOST_SPANS + 1).texts(&mut redaction);
    let redacted = |name: &str| {
        let mut name = name.to_owned();
        name.group_name(&mut redaction);
        name
    };
    let [ann, again, bob] = ["ann@example.org", "ann@example.org", "bob@example.org"].map(redacted);
    assert_eq!(ann, again);
    assert_ne!(ann, bob);
    // Tags of four bytes are equal for two of some ten thousand names.
    assert_eq!(ann.len(), "[redacted:emails:]".len() + 24);
}
