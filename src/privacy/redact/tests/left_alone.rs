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
