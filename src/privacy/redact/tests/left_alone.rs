use super::*;

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
        "curl -b 'theme=dark; lang=en-GB' https://x.io && grep -b 'name=value' a.txt",
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
        "secret_id = \"arn:aws:secretsmanager:us-east-1:123456789012:secret:prod/db-Qx7Kz2\"",
        "\"valueFrom\": \"arn:aws:secretsmanager:eu-west-1:123456789012:secret:rds!db-0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e-aB3dE5\"",
        "the secret is in arn:aws:secretsmanager:us-east-1:123456789012:secret:MySecret-Qx7Kz2 now",
        "arn:aws:secretsmanager:us-east-1:123456789012:secret:dev/shop/mysql-Qx7Kz2",
        "{\"Resource\": [\"arn:aws:secretsmanager:us-east-1:123456789012:secret:dev/shop/mysql-Qx7Kz2\"]}",
        "policy.txt:12:arn:aws-cn:secretsmanager:cn-north-1:123456789012:secret:dev/shop/mysql-Qx7Kz2",
        "SecretKeyFactory factory = SecretKeyFactory.getInstance(\"PBKDF2WithHmacSHA256\");",
        "SECRET_KEY_ALGORITHM = \"PBEWithHmacSHA256AndAES_128\"",
        "const apiKeyHeader = \"X-Goog-Api-Key\"; headers: { token: \"X-RapidAPI-Key\" }",
        "First pass: scan text then sort them. pass_through: with that text kept, bypass = thresholdsbright",
        "Password: they will send that",
        "use crate::auth::password::Pbkdf2Sha256Hasher;",
        "Migrate the password hashing to ScryptKdfParamsV2",
        "The password check was set to AuthServiceV2Impl.kt",
        "[sudo] password for ann: \n3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "3b18e512dba79e4c8300dd08aeb37f8e728b8dad refs/heads/fix-api-key\n9b18e512dba79e4c8300dd08aeb37f8e728b8dae refs/heads/main",
        "* fix-api-key 3b18e512dba79e4c8300dd08aeb37f8e728b8dad Rotate the key",
        " * [new branch] fix-api-key -> origin/fix-api-key\n   9a8b7c6..5d4e3f2  develop",
        "requested-tnl-key\n2021-05-17T16:15:57-04:00",
        "API_KEY=<your-api-key>\nNEXT_PUBLIC_GA_ID=G-1A2B3C4D5E",
        "--api-key\n  --x509StrictVerifyMode2",
        "INFO app::refresh_token: 0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e connected",
        "@acme/auth-token: 3b18e512dba79e4c8300dd08aeb37f8e728b8dad built",
        "src/secrets.py:12:PrePostDevType = Union",
        "image: ghcr.io/acme/token-service:3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "\"password_reset_id\": \"0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e\"",
        "expected_pk = \"3b18e512dba79e4c8300dd08aeb37f8e3b18e512dba79e4c8300dd08aeb37f8e\"",
        "{\"username\": \"ann\", \"key\": \"avatars/3b18e512dba79e4c8300dd08aeb37f8e.png\"}",
        "--- PASS: TestCheckAndNotify_SkipsWhenCacheIsFresh (0.00s)",
        "Then pass `s.cfg.DryRunMode` and `TokenTypeAccess` on.",
        "password_magic = b'\\x89PNG', TOKENS = \"\\x00\\x00\\x00\\x00\\x00\\x00\"",
        "${API_KEY-your-api-key}, ${TOKEN_FILE-/run/secrets/token2}",
        "<password type=\"text\" name=\"a2\">the new password of the administrator</password>",
        "saveWallet({ address: \"0x742d35Cc6634C0532925a3b844Bc9e7595f0bEb0\" }); token.connect(\"0xdAC17F958D2ee523a2206206994597C13D831ec7\")",
        "client.disconnect(\"9f1c2b7ad0e84c35b6f2a19d7c3e5f80\"); deleteConnection(\"9f1c2b7ad0e84c35b6f2a19d7c3e5f80\")",
        "verify_hmac(body, \"9f1c2b7ad0e84c35b6f2a19d7c3e5f80\")",
        "static const uint8_t ota_public_key[16] = { 0x9f, 0x1c, 0x2b, 0x7a, 0xd0, 0xe8, 0x4c, 0x35, 0xb6, 0xf2, 0xa1, 0x9d, 0x7c, 0x3e, 0x5f, 0x80 };",
        "static const uint8_t aes_key[16] = { 0x00, 0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f };",
        "uint8_t token_class[16] = { 0x9f, 0x1c, 0x2b, 0x7a, 0xd0, 0xe8, 0x4c, 0x35, 0xb6, 0xf2, 0xa1, 0x9d, 0x7c, 0x3e, 0x5f, 0x80 };",
        "level=info session_cookie=qQ7xK2mZ9vB4nR8tqQ7x user=42 path=/x; ts=1 has_cookie=true request_id=qQ7xK2mZ9vB4nR8tqQ7x status=200",
        "    init_cookie = 0x9f1c2b7ad0e84c35ULL; state = READY; let tls_cookie: Http2ClientV2Cookie = make();",
        "Cookie     id=9f1c2b7ad0e84c35b6f2a19d7c3e5f80 name=x size=3 owner=root",
        "a basic STM32F407VGT6 board, basic ESP8266/ESP32S3-N16R8, Basic B1ms_v2/Standard_B2s",
        "{\"refresh\": \"2026-11-29T08:41:42.123Z\", \"access\": \"0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e\"}",
        "enode://9f1c2b7ad0e84c35b6f2a19d7c3e5f809f1c2b7ad0e84c35b6f2a19d7c3e5f80@10.3.58.6:30303?discport=0",
        "https://9f1c2b7ad0e84c35b6f2a19d7c3e5f80@sentry.example.com/sentry/42",
        "curl -H \"Authorization: Basic $AUTH\" api.example.com/v1/users/9f1c2b7ad0e84c35b6f2a19d7c3e5f80/items?x=1 -o out.json",
        "curl -H 'Authorization: Basic '$B64 \"$BASE/v2/runs/9f1c2b7ad0e84c35b6f2a19d7c3e5f80\" | jq .",
        "y0_initial_conditions_of_the_ode_system_of_2, unkey_verificationMiddlewareForApi2, refs/heads/api-key 3b18e512dba79e4c8300dd08aeb37f8e728b8dad",
        "Authorization\n\nBasic authentication-of-users needs 2 headers",
        "the cookie: chocolate, with a long description of how to bake it",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn the_tag_of_an_image_and_the_head_of_the_next_line_are_no_values() {
    let redactor = secrets();
    let (commit, short) = (drawn("0123456789abcdef", 40, 3), "9f1c2b7");
    for tag in [
        "main-≠",
        "sha-≠",
        "main-…",
        "v1.2.3-…",
        "v1.2.3-12-g…",
        "1.2.3-rc.1-≠",
        "pr-1234-…",
        "20240102-…",
        "20240102T030405Z",
        "2024.01.02-1530",
    ] {
        let tag = tag.replace('≠', &commit).replace('…', short);
        for name in ["token-service", "auth-token", "api-key", "password-reset", "secret-manager"] {
            for form in [
                "image: ghcr.io/acme/NAME:TAG",
                "{\"image\": \"registry.acme.io/NAME:TAG\"}",
                "docker build -t acme/NAME:TAG .",
                "#9 naming to docker.io/acme/NAME:TAG done",
            ] {
                let text = form.replace("NAME", name).replace("TAG", &tag);
                assert_eq!(redacted(&redactor, &text), text);
            }
        }
    }
    for message in [
        "Missing token:",
        "Enter password:",
        "unknown flag: --api-key",
        "{\"password\":",
        "password: |",
        "<password>",
        "const token =",
        "Authorization:",
        "Authorization: Bearer",
        "Cookie:",
        "Set-Cookie:",
        "the password form has a password",
    ] {
        for head in [
            "api-7d9c5b8f6d-x2x9q api ",
            "5f80a19d7c3e ",
            "0197a6e4-2b1c-7c3e-9f00-5d6a1b2c3d4e ",
            "[9f1c2b7ad0e84c35b6f2a19d7c3e5f80] ",
            "2024-01-02T03:04:05.123Z INFO app: ",
        ] {
            let lines = ["starting", message, "done in 12 ms", "ready"].map(|line| format!("{head}{line}\n"));
            assert_eq!(redacted(&redactor, &lines.concat()), lines.concat());
        }
    }
    let value = random(32);
    for form in [
        "app \\\n  --api-key \\\n  … --verbose",
        "password:\n  …\nnext: 1",
        "Set-Cookie:\r\n sid=…; Path=/",
        "Authorization:\n …",
        "acme/token:…",
    ] {
        let text = redacted(&redactor, &form.replace('…', &value));
        assert!(!text.contains(&value), "{text}");
    }
}

#[test]
fn names_and_sums_that_programs_have_made_and_counts_are_left_alone() {
    let redactor = secrets();
    for text in [
        "<UserSecretsId>aspnet-WebApp1-53bc9b9d-9d6a-45d4-8429-2a2761773502</UserSecretsId>",
        "<trusted-key id=\"3b18e512dba79e4c8300dd08aeb37f8e728b8dad\" group=\"org.acme\"/>",
        "2024-01-02T03:04:05.1234567Z <input type=\"password\" name=\"password\">\n2024-01-02T03:04:05.1234567Z <button>",
        "Used 1,234 tokens (msg_01XFDUDYJgAACzvnptvVoYEL), 34.5k input tokens · toolu_016HuwyGCfk2LL8tQe8F1jP2",
        "{\"tokens\": 12, \"ids\": [\"msg_01XFDUDYJgAACzvnptvVoYEL\"]}",
        "ALTER TABLE \"refresh_token\" ADD CONSTRAINT \"FK_8e913e288156c133999341156ad\" FOREIGN KEY (\"userId\")",
        "\"password\" character varying NOT NULL, CONSTRAINT \"UQ_e12875dfb3b1d92d7d7c5377e22\" UNIQUE (\"email\"))",
        "alter table password_reset drop constraint \"FKlwsg1wsudwayg0d2gk9nqx3o8\"",
        "      annotations:\n        checksum/secret: 01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
        "private readonly apiKeyService: ApiKeyService,\nuser_api_key_cache: UserApiKeyCache",
        "async create(apiKey: ApiKeyEntity): Promise<void>",
        "valueFrom: arn:aws:secretsmanager:us-east-1:123456789012:secret:StackDbSecretA1B2C3D4E5F6G7H8-AbCdEf",
        "ssh_key: ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK9xQ2mZ7vN4rT8wLpB3xY6hD1sF5gJ0kC2nM4bV7aQe ann",
        "{\"ssh_keys\": [\"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIK9xQ2mZ7vN4rT8wLpB3xY6hD1sF5gJ0kC2nM4bV7aQe\"]}",
        "aws dynamodb scan --starting-token qQ7xK2mZ9vB4nR8tqQ7xK2mZ --partition-key 7f309c2b84bccc41bb76e913aa",
        "partition_keys: [\"9f1c2b7ad0e84c35b6f2a19d7c3e5f80\", \"3b18e512dba79e4c8300dd08aeb37f8e\"]",
        "the token file: `cache/7f309c2b84bccc41bb76e913`, and the session: `qQ7xK2mZ9vB4nR8tqQ7xK2mZ`",
        "password: this that were from then when",
        "Error: secret \"db-creds-7hk2m9g4dt\" not found\n  secretName: postgres-credentials-f6k8b5t2mc",
        "checksum/auth-token: \"01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b\"",
        "MD5 (secrets.yaml) = 3b18e512dba79e4c8300dd08aeb37f8e\nSHA2-256(/etc/passwd)= 01ba4719c80b6fe911b091a7c05124b64eeece964e09c058ef8f9805daca546b",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn the_head_of_a_line_in_a_log_names_nothing_in_its_message() {
    let redactor = secrets();
    let (commit, id) = (drawn("0123456789abcdef", 40, 3), random(26));
    for head in [
        "token-service-1  | ",
        "auth-token_2-1 | ",
        "[auth-token] ",
        "2024-01-02T03:04:05Z [pod/auth-token-x2x9q/auth-token] ",
        "I0102 03:04:05.678901       1 token_controller.go:123] ",
        "2024/01/02 03:04:05 token.go:12: ",
        "src/auth/token.py:12:5: ",
        "Jan  2 03:04:05 host auth-token[123]: ",
        "2024-01-02 03:04:05,123 - app.token - INFO - ",
        "2024-01-02 03:04:05,123 app.token INFO ",
        "10:04:05.123 [main] INFO com.acme.RefreshToken - ",
        "2024-01-02 INFO auth_token: ",
        "INFO:app.token:",
        "2024-01-02 03:04:05.678 | INFO     | app.auth.token:login:12 - ",
    ] {
        for message in ["deployed commit \"≠\"", "session … started", "GET /u/… 200 12ms", "cursor …="]
        {
            let text = format!("{head}{message}\n").replace('≠', &commit).replace('…', &id);
            assert_eq!(redacted(&redactor, &text), text);
        }
        for message in
            ["the password … is new", "API_KEY=… was set", "{\"token\": \"…\"}", "login with secret …"]
        {
            let text = redacted(&redactor, &format!("{head}{message}\n").replace('…', &id));
            assert_eq!(text, format!("{head}{message}\n").replace('…', "[redacted:secrets]"));
        }
    }
}

#[test]
fn what_stands_before_a_line_of_code_is_no_value_of_a_name_at_the_end_of_the_line_above() {
    let redactor = secrets();
    let (commit, id, uuid) = (drawn("0123456789abcdef", 40, 3), random(25), uuid::Uuid::now_v7());
    let (commit, id) = (&commit, &id.to_ascii_lowercase());
    let heads = [
        format!("{} (Ann Smith 2024-01-02 03:04:05 +0100  12) ", &commit[..12]),
        format!("{commit} (Ann Smith 2024-01-02 03:04:05 +0100  12) "),
        format!("{commit}:src/app.py:12:"),
        format!("web.1.{id}@node1    | "),
        format!("[{uuid}] "),
        "[pod/api-7d9c5b8f6d-x2x9q/app] ".to_owned(),
        format!("trace_id={commit} "),
        format!("{uuid}.jsonl:12:"),
        format!("{}: ", &commit[..12]),
    ];
    for head in heads {
        for lines in [
            ["    for token in tokens:", "        (a, b) = token"],
            ["    if not access_key:", "        return None"],
            ["    credentials = {", "        \"a\": 1,"],
            ["    token = get_token(", "        $this->name,"],
            ["passwords:", "  - name: x"],
            ["tokens = [", "  # The first one."],
            ["tokens = [", ""],
            ["  \"prompt_tokens_details\": {", "    \"cached_tokens\": 0"],
            ["  \"password\": {", "    \"type\": \"string\""],
        ] {
            let text = lines.map(|line| format!("{head}{line}\n")).concat();
            assert_eq!(redacted(&redactor, &text), text);
        }
    }
}
