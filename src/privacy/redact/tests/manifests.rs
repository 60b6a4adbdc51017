use super::*;

#[test]
fn values_of_kubernetes_secrets_are_replaced_whatever_their_names() {
    let redactor = secrets();
    for text in [
        "apiVersion: v1\ndata:\n  dsn: …\nkind: Secret\nmetadata:\n  name: app\ntype: Opaque\n",
        "apiVersion: v1\nkind: Secret\nmetadata:\n  name: app\n  labels:\n    a: b\ntype: Opaque\ndata:\n  # a comment\n  dsn: \"…\"\n",
        "apiVersion: v1\nitems:\n- apiVersion: v1\n  data:\n    config.json: …\n  kind: Secret\n  metadata:\n    name: app\nkind: List\n",
        "---\nkind: Secret\nstringData:\n  dsn: …\n---\nkind: Service\n",
        "12\tkind: Secret\n13\tdata:\n14\t  dsn: …\n",
        "{\"apiVersion\": \"v1\", \"data\": {\"a\": \"YQ==\", \"dsn\": \"…\"}, \"kind\": \"Secret\", \"metadata\": {\"name\": \"app\"}}",
        "{\n    \"kind\": \"Secret\",\n    \"metadata\": {\"name\": \"app\"},\n    \"data\": {\n        \"dsn\": \"…\"\n    }\n}\n",
        "last-applied-configuration: |\n  {\"kind\":\"Secret\",\"metadata\":{},\"stringData\":{\"dsn\":\"…\"}}\n",
        "{\"output\": \"{\\\"data\\\":{\\\"dsn\\\":\\\"…\\\"},\\\"kind\\\":\\\"Secret\\\"}\"}",
    ] {
        let secret = random(24);
        assert_replaced(&redactor, &text.replace('…', &secret), &secret);
    }
}

#[test]
fn what_is_beside_kubernetes_secrets_stays() {
    let redactor = secrets();
    for text in [
        "kind: ConfigMap\ndata:\n  commit: …\n---\nkind: Secret\ndata:\n  dsn: YQ==\n",
        "items:\n- data:\n    commit: …\n  kind: ConfigMap\n- data:\n    a: YQ==\n  kind: Secret\n",
        "kind: Secret\nmetadata:\n  annotations:\n    commit: …\ndata:\n  a: YQ==\n",
        "kind: Secret\nstringData:\n  server: database-primary.example.internal\n  commit: ${COMMIT_OF_THE_RELEASE}\n",
        "[{\"kind\": \"ConfigMap\", \"data\": {\"commit\": \"…\"}}, {\"kind\": \"Secret\", \"data\": {\"a\": \"YQ==\"}}]",
        "{\"kind\": \"Secret\", \"metadata\": {\"data\": {\"commit\": \"…\"}}}",
    ] {
        let text = text.replace('…', &random(24));
        assert_eq!(redacted(&redactor, &text), text);
    }
}
