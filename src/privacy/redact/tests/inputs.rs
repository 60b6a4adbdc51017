use super::*;

#[test]
fn passwords_that_programs_read_from_others_are_replaced() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        "echo \"…\" | docker login ghcr.io -u bob --password-stdin",
        "printf '%s' '…' | sudo docker login -u bob --password-stdin",
        "printf \"…\\n\" | docker login --username bob --password-stdin",
        "{\"command\":\"echo -n \\\"…\\\" | gcloud secrets create db --data-file=-\"}",
        "echo \"…\" \\\n  | docker login ghcr.io \\\n  -u bob \\\n  --password-stdin",
        "echo \"…\" | tr -d '\\n' | docker login -u bob --password-stdin",
        "\"…\" | docker login -u bob --password-stdin",
        "Write-Output '…' | docker login -u bob --password-stdin",
        "echo … | sudo -S apt-get update",
        "echo '…' | sudo -k -S id; echo '…' | sudo -kS -u root id",
        "RUN echo \"root:…\" | chpasswd",
        "printf 'root:%s' '…' | /usr/sbin/chpasswd",
        "echo \"$USER:…\" | sudo chpasswd",
        "echo '…' | passwd --stdin bob",
        "echo -e \"…\\n…\" | passwd root",
        "echo '…' | openssl passwd -6 -stdin",
        "echo '…' | vercel env add API production",
        "echo '…' | kinit bob@EXAMPLE.COM",
        "echo '…' | gpg --batch --passphrase-fd 0 -d a.gpg",
    ] {
        assert_replaced(&redactor, &text.replace('…', &secret), &secret);
    }
}

#[test]
fn passwords_in_documents_and_strings_that_programs_read_are_replaced() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        "chpasswd <<< 'bob:…'",
        "sudo -S apt-get update <<< \"…\"",
        "docker login ghcr.io -u bob --password-stdin <<< …",
        "chpasswd <<EOF\nroot:…\nEOF",
        "docker login -u bob --password-stdin <<'EOF'\n…\nEOF",
        "cat <<EOF | docker login -u bob --password-stdin\n…\nEOF",
        "{\"command\": \"chpasswd <<-EOF\\n\\troot:…\\nEOF\"}",
        "sudo chpasswd <<EOF\nroot:…\nbob:…\nann:a\ntim:…\nEOF",
        "chpasswd:\n  list: |\n    root:…\n    bob:…\n",
        "chpasswd:\n  expire: false\n  list:\n    - root:…\n",
    ] {
        assert_replaced(&redactor, &text.replace('…', &secret), &secret);
    }
}

#[test]
fn what_other_programs_read_stays() {
    let redactor = secrets();
    for text in [
        "echo aB3dE5gH7jK9mN1pQ3 | git hash-object --stdin",
        "echo release-2024-build77x | tee VERSION, echo x7KdQm2LvTz9RbYw | sha256sum",
        "cat <<EOF | kubectl apply -f -\nname: x7KdQm2LvTz9RbYw\nEOF",
        "wc -l <<< x7KdQm2LvTz9RbYw4N",
        "sudo systemctl status <<EOF\nx7KdQm2LvTz9RbYw4N\nEOF",
    ] {
        assert_eq!(redacted(&redactor, text), text);
        assert_eq!(stored(&redactor, text), text);
    }
}

#[test]
fn a_user_and_a_password_that_a_program_encodes_are_replaced() {
    let (redactor, secret) = (secrets(), random(20));
    for text in [
        "headers: { Authorization: \"Basic \" + btoa(\"bob:…\") }",
        "`Basic ${btoa(user + \":…\")}`",
        "\"Basic \" + Buffer.from('bob:…').toString('base64')",
        "{\"Authorization\": \"Basic \" + base64.b64encode(b\"bob:…\").decode()}",
        "'Authorization' => 'Basic ' . base64_encode('bob:…')",
        "req.Header.Set(\"Authorization\", \"Basic \"+base64.StdEncoding.EncodeToString([]byte(\"bob:…\")))",
        "Base64.getEncoder().encodeToString(\"bob:…\".getBytes())",
        "[Convert]::ToBase64String([Text.Encoding]::ASCII.GetBytes(\"bob:…\"))",
        "curl -H \"Authorization: Basic $(echo -n 'bob:…' | base64)\" https://x.io",
        "AUTH=$(printf \"bob:…\" | base64)",
    ] {
        assert_replaced(&redactor, &text.replace('…', &secret), &secret);
    }
    for text in [
        "Buffer.from(\"data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAUA\", \"base64\")",
        "btoa(user2 + \":\" + passwordOfUser2), base64_encode('bob:changeme'), echo -n 'a:b' | base64",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}

#[test]
fn an_empty_secret_does_not_make_the_next_variable_one() {
    let redactor = secrets();
    for text in [
        "API_TOKEN=\nVERSION=3b18e512dba79e4c8300dd08aeb37f8e728b8dad\n",
        "SECRET_KEY=\nIMAGE=registry.example.org/app@sha256:3b18e512dba79e4c8300dd08aeb37f8e728b8dad\n",
        "+API_KEY=\n+VPC_ID=vpc-0ab12cd34ef56ab78\n+REGION=eu\n",
        "app/.env:API_KEY=\napp/.env:AUTH0_CLIENT_ID=aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW\n",
        "api_key=\nversion=aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW\n",
    ] {
        assert_eq!(redacted(&redactor, text), text);
    }
}
