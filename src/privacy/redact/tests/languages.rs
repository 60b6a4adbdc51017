use super::*;

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
        "token: 'SecretStr' = \"…\"",
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
            "auth: { user: 'a', pass: '…=' },",
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
