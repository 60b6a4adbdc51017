use super::*;

#[test]
fn secrets_that_are_sent_and_stored_without_a_name_before_them_are_replaced() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        format!("sql.Open(\"mysql\", \"bob:{secret}@/app?parseTime=true\")"),
        format!("dsn := `bob:{secret}@(127.0.0.1:3306)/app`"),
        format!("bob:{secret}@tcp6([::1]:3306)/, bob:{secret}@cloudsql(a:b:c)/app"),
        format!("url := fmt.Sprintf(\"bob:{secret}@/%s\", name)"),
        format!("new Sequelize(\"app\", \"root\", \"{secret}\", {{dialect: \"mysql\"}})"),
        format!("neo4j.auth.basic('neo4j', '{secret}')"),
        format!("variables:\n  DB_PASSWORD:\n    value: \"{secret}\"\n    description: x"),
        format!("env:\n- name: DB_PW\n  value: {secret}\n- name: smtpPass\n  value: {secret}"),
        format!("dbPw={secret}"),
        format!("{{\"algoliaKey\": \"{secret}\"}}"),
        format!("const weatherKey = '{secret}';"),
        format!("{{\"adminPW\": \"{secret}\"}}"),
        format!("Password for the [elastic] user successfully reset.\nNew value: {secret}"),
        format!("new Sequelize(`app`, `root`, `{secret}`)"),
        format!("Content-Disposition: form-data; name=\"password\"\r\n\r\n{secret}\r\n--b--"),
        format!("> form-data; name=\"api_key\"\n> Content-Type: text/plain\n> \n> {secret}\n"),
        format!(
            "form-data; name=\"token\"\r\nContent-Type: text/plain\r\nContent-Length: 20\r\n\r\n{secret}\r\n"
        ),
        format!("body = 'form-data; name=\"token\"\\r\\n\\r\\n{secret}\\r\\n'"),
    ] {
        assert_replaced(&redactor, &text, &secret);
    }
    let printed = "[Note] A temporary password is generated for root@localhost: Xy;kl,+tUo(q\n";
    assert_replaced(&redactor, printed, "Xy;kl,+tUo(q");
}

#[test]
fn secrets_of_usual_programs_and_files_are_replaced() {
    let (redactor, hex, secret) = (secrets(), "0123456789abcdef".repeat(3), random(20));
    let (hex32, date) = (&hex[..32], "2026-01-01T00:00:00Z");
    let discord = format!("MT{}.G{}.{}", random(24), random(5), random(38));
    let number = drawn("0123456789abcdef", 32, 1);
    for (text, secret) in [
        (format!("DB_PASS={secret}"), secret.as_str()),
        (format!("export SMTP_PASS=\"{secret}\""), &secret),
        (format!("KV/{}/password={number}", random(22)), &number),
        (format!("- name: APP_{}_API_KEY\n  value: {number}", random(16)), &number),
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
        assert_replaced(&redactor, &text, secret);
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
        "echo \"$DOCKER_PASSWORD_OF_BOB2\" | docker login -u bob --password-stdin",
        "echo installing-things-now | tee log, echo key1=value2 | sort",
        "import { Button2 } from '@/components'; resolve:lib2Name@/src",
        "Content-Disposition: form-data; name=\"comment\"\r\n\r\nqQ7xK2mZ9vB4nR8tqQ7xK2mZ\r\n--b--",
        "{\"auth\": \"oauth2\", \"pass\": true}",
        "https://example.com/sig=1&sig=abc",
        "10:30:5432:ok",
    ] {
        assert_eq!(redacted(&redactor, text), text);
        assert_eq!(stored(&redactor, text), text);
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
    let before: [fn(usize, &str) -> String; 20] = [
        |number, line| format!("{number:6}→{line}"),
        |number, line| format!("{number:6}\t{line}"),
        |number, line| format!("L{number}: {line}"),
        |number, line| format!("{number}:{line}"),
        |number, line| format!("k8s/app.yaml:{number}:{line}"),
        |number, line| format!("k8s/app.yaml{}{line}", if number == 2 { ':' } else { '-' }),
        |_, line| format!("+{line}"),
        |number, line| format!("{number:6}→-{line}"),
        |number, line| format!("{number:6} +{line}"),
        |_, line| format!("++{line}"),
        |_, line| format!("│ {line}"),
        |_, line| format!("web-1  | {line}"),
        |_, line| format!("[pod/web-1/web] {line}"),
        |_, line| format!("2026-01-01T10:00:00.123456789Z stdout F {line}"),
        |_, line| format!("Jan  1 10:00:00 host web[12]: {line}"),
        |_, line| format!("> {line}"),
        |_, line| format!("# {line}"),
        |number, line| {
            let (commit, author) = [("3b18e512", "Ann"), ("^9f1c2b7", "Bob Smith")][number % 2];
            format!("{commit} ({author:9} 2024-01-{:02} 10:00:00 +0000 {number:2}) {line}", 10 + number)
        },
        |number, line| format!("{} k8s/app.yaml {number:2}) {line}", ["3b18e512", "9f1c2b7a"][number % 2]),
        |number, line| {
            format!(
                "{}\t( Ann\t2024-01-01 10:00:00 +0000\t{number}){line}",
                ["3b18e512", "9f1c2b7a"][number % 2]
            )
        },
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
    let logged: [fn(&str) -> String; 7] = [
        |line| format!("build\tRun tests\t2024-01-02T03:04:05.1234567Z {line}"),
        |line| format!("2024-01-02T03:04:05.123456Z  INFO app::config::loader: {line}"),
        |line| format!("2024-01-02 03:04:05.123  INFO 1 --- [main] c.e.App : {line}"),
        |line| format!("2024-01-02T03:04:05.123456+00:00 app[web.1]: {line}"),
        |line| format!("abc12345 (Ann Smith 2024-01-02 10:00:00 +0000 12) {line}"),
        |line| format!("INFO:app.main:{line}"),
        |line| format!("│ {line}"),
    ];
    for text in texts {
        for logged in logged {
            let lines: Vec<_> = ["starting"].into_iter().chain(text.lines()).map(logged).collect();
            let text = lines.join("\n");
            let replaced = redacted(&redactor, &text.replace('…', &value));
            assert_eq!(replaced, text.replace('…', "[redacted:secrets]"));
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
    let number = drawn("0123456789abcdef", 34, 2);
    for form in [
        "auth=(\"ann\", \"…\")",
        "req.SetBasicAuth(\"ann\", \"…\")",
        "x.basicAuth(\"…\")",
        "jwt.sign({ id: user.id }, \"…\", { expiresIn: \"1h\" })",
        "crypto.createHmac('sha256', '…')",
        "hash_hmac('sha256', $d, '…')",
        "Algorithm.HMAC256(\"…\")",
        "new PDO($dsn, 'a', '…')",
        "cookieParser('…')",
        "WiFi.begin(\"ssid\", \"…\")",
    ] {
        let text = redacted(&redactor, &form.replace('…', &number));
        assert_eq!(text, form.replace('…', "[redacted:secrets]"));
    }
    for text in [
        "connect(\"onButtonClick2\", \"MainWindow2SlotHandler\"); id(\"qQ7xK2mZ9vB4nR8tqQ7x\")",
        "auth(\"0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e\", \"3b18e512dba79e4c8300dd08aeb3\")",
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
fn secrets_in_the_files_and_outputs_of_further_programs_are_replaced() {
    let redactor = secrets();
    let (value, hex, long) = (random(32), drawn("0123456789abcdef", 32, 1), drawn("0123456789abcdef", 64, 2));
    let (uuid, letters) =
        ("9f1c2b7a-d0e8-4c35-b6f2-a19d7c3e5f80".to_owned(), "qxvm bwtk zpld hgrs".to_owned());
    for (form, secret) in [
        ("httpHeaders:\n- name: Authorization\n  value: Basic …\n", &value),
        ("- key: Authorization\n  value: \"Token …\"", &hex),
        ("{\"name\":\"Authorization\",\"value\":\"…\"}", &value),
        ("<add name=\"Authorization\" value=\"…\" />", &value),
        ("headers = [{ name = \"Authorization\", value = \"…\" }]", &value),
        ("- name: Cookie\n  value: sid=…", &value),
        ("Authorization: *:production.…", &hex),
        ("AUTH_HEADER=\"Token …\"", &hex),
        ("[Authorization] => …", &value),
        ("request.setValue(\"…\", forHTTPHeaderField: \"X-API-Key\")", &hex),
        ("basic.auth.user.info=ABCDEF1234567890:…", &value),
        ("<machineKey validationKey=\"…\" decryption=\"AES\" />", &long),
        ("<machineKey decryptionKey=\"…\" decryption=\"AES\" />", &long),
        ("{\"username\":\"ann\",\"key\":\"…\"}", &hex),
        (
            "\"id\": \"https://acme.vault.azure.net/secrets/a/0123\",\n  \"name\": \"a\",\n  \"value\": \"…\"",
            &value,
        ),
        (
            "{\"type\": \"random_password\", \"instances\": [{\"attributes\": {\"length\": 20, \"result\": \"…\"",
            &value,
        ),
        ("Accessor ID  = 5b7fd453-d3f7-6814-81dc-fcfe6daedea5\nSecret ID    = …\n", &uuid),
        ("secret_id             …\nsecret_id_accessor    84896a0c-1347-aa90-a4f6-aca8b7558780", &uuid),
        ("url: \"https://eth-sepolia.g.alchemy.com/v2/…\"", &value),
        ("RPC=https://old-dark-sky.quiknode.pro/…/", &long),
        ("accounts: [\"0x…\"],", &long),
        ("DEPLOYER_PK=0x…", &long),
        ("Password for the [elastic] user successfully reset.\nNew value: …", &value),
        ("The generated password for the elastic built-in superuser is : …", &hex),
        ("Please use the following password to proceed to installation:\n\n…\n\nThis may", &hex),
        ("The new password is …", &hex),
        ("EMAIL_HOST_PASSWORD=…", &letters),
        ("pass: '…',", &letters),
    ] {
        let text = form.replace('…', secret);
        let left = redacted(&redactor, &text);
        assert!(
            !left.contains(&secret[secret.len() - 12..]) && left.contains("[redacted:secrets]"),
            "{left}"
        );
    }
    for text in [
        "The password is checked in src/auth/PasswordCheckerV2.rs",
        "The rules of the password policy: minimum-length-of-twelve",
        "password: your-name-goes-here",
        "{\"username\":\"ann\",\"key\":\"the-name-of-the-key\"}",
        "a secret id = 12, secret_id_accessor  84896a0c-1347-aa90-a4f6-aca8b7558780",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn options_in_the_next_lines_of_a_command_are_those_of_its_program() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        format!(
            "docker exec -it sql1 /opt/mssql-tools/bin/sqlcmd \\\n   -S localhost -U SA -P \"{secret}\" \\\n   -Q \"…\""
        ),
        format!("redis-cli \\\r\n  -h db \\\r\n  -a {secret} ping"),
        format!("+ mysql \\\n+   -u root \\\n+   -p{secret} app"),
        format!("     1→mongosh `\n     2→  -u bob -p {secret}"),
        format!("sqlcmd ^\n  -U sa ^\n  -P {secret}"),
        format!("[\n  \"CMD\",\n  \"redis-cli\",\n  \"-a\",\n  \"{secret}\"\n]"),
        format!("subprocess.run([\n    'ldapsearch',\n    '-w',\n    '{secret}',\n])"),
    ] {
        assert!(!redacted(&redactor, &text).contains(&secret), "{text}");
        assert!(!stored(&redactor, &text).contains(&secret), "{text}");
    }
    for text in
        [format!("We use mysql.\nThe build of -p{secret} is done"), format!("redis-cli ping\nls -a {secret}")]
    {
        assert_eq!(redacted(&redactor, &text), text);
    }
}

#[test]
fn a_password_in_an_address_may_have_slashes_and_a_path_is_none() {
    let (redactor, secret) = (secrets(), "q7T/xk29Zq81/Wm3vB+pL0a==");
    for (before, after) in [
        ("DATABASE_URL=postgresql://app:", "@db:5432/app"),
        ("create_engine(\"mysql+pymysql://app:", "@10.0.0.5/app\")"),
        ("parse \"postgres://app:", "@db:5432/app\": invalid port \":q7T\" after host"),
        ("redis://:", "@[::1]:6379/0"),
    ] {
        let text = format!("{before}{secret}{after}");
        assert_eq!(redacted(&redactor, &text).matches(secret).count(), 0, "{text}");
    }
    for text in [
        "docker://registry.example.com:5000/team/q7Txk29Zq81Wm3vBpL0a@sha256",
        "http://localhost:8080/q7T/xk29Zq81/Wm3vB@v1",
        "https://example.com/a:b/c@d",
        "postgres://app:path/to/file@db",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn keys_in_queries_are_replaced_by_the_names_that_services_give_them() {
    let (redactor, hex, secret) = (secrets(), "0f1e2d3c4b5a69788796a5b4c3d2e1f0", random(32));
    for (address, key) in [
        ("https://api.openweathermap.org/data/2.5/weather?q=Berlin&appid=", hex),
        ("http://api.weatherapi.com/v1/current.json?key=", &hex[..31]),
        ("https://api.map.baidu.com/api?v=3.0&ak=", &secret),
        ("https://api.steampowered.com/ISteamUser/v2/?format=json\\u0026key=", hex),
    ] {
        let text = format!("401 Client Error: Unauthorized for url: {address}{key}");
        assert_eq!(redacted(&redactor, &text), text.replace(key, "[redacted:secrets]"));
    }
    for text in ["https://x.io/?key=users/2024/report-final.pdf", "?key=application_name&sid=overview-of-all"]
    {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn a_key_in_camel_case_is_replaced_whose_name_only_ends_as_that_of_something_else() {
    let (redactor, secret) = (secrets(), random(24));
    for name in ["transactionKey", "ghostKey", "profileKey", "merchantTransactionKey"] {
        assert_replaced(&redactor, &format!("{name}: \"{secret}\""), &secret);
    }
}

#[test]
fn what_is_called_a_key_in_camel_case_stays_if_it_is_no_key() {
    let redactor = secrets();
    for text in [
        "\"S3Key\": \"RHEL5export-i-fh8sjjsq.ova\", \"AWS::KMS::ReplicaKey\": \"903f43e74c8d8853\"",
        "if(xmlSecPtrListAdd(&(dsigCtx->keyInfoReadCtx.enabledKeyData), BAD_CAST xmlSecKeyDataX509Id) < 0) {",
        "PK11SymKey *PK11_SymKeyFromHandle(PK11SlotInfo *slot, PK11SymKey *parent,",
        "'KvJumpToKeySymbol', \"BlobKeyProperty\", Key=myKey,Value=myKeyValue2",
        "{\"primaryKey\": \"aB3dE5gH7jK9mN1pQ3sT\", \"messageKey\": \"aB3dE5gH7jK9mN1pQ3sT\"}",
        "env:\n- name: DB_PASSWORD\n  valueFrom:\n    secretKeyRef:\n      name: x\n- name: GIT_SHA\n  value: 9f1c2b7ad0e84c35b6f2a19d7c3e5f809f1c2b7a",
        "siteKey: \"6LdAbCdEfGh1234ijKlMnOp5678\", mintKey: \"0x9f1c2b7ad0e84c35b6f2a19d7c3e5f80\"",
        "const sortKey = 'createdAtOfTheRecord2';",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn a_short_name_inside_a_random_word_names_nothing() {
    let redactor = secrets();
    for word in [
        "toolu_01iQUPWDIt0XWGn9nlHxJPzZ",
        "aB3xpWd9QmT",
        "Zq3Lr8Vt1Xw5Yb7Nc2Md6KfaPw",
        "x7KdQm2LvTz9RbYw4NcXe8HsJa1Gf5-pw",
    ] {
        let text = format!("[\"{word}\",\n\"Zq3Lr8Vt1Xw5Yb7Nc2Md6Kf9Hs4Jg0Pa\"]");
        assert_eq!(redacted(&redactor, &text), text);
        assert_eq!(stored(&redactor, &text), text);
    }
}
