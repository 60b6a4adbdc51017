use super::*;

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
}

#[test]
fn credentials_of_a_header_are_replaced_in_what_languages_and_documents_show_of_it() {
    let redactor = secrets();
    let value = format!("{}==", random(30));
    for form in [
        "map[Accept:[*/*] NAME:[…] Host:[x]]",
        "2026-11-29 INFO request {\"headers\":{\"NAME\":[\"…\"]}}",
        "http.Header{\"NAME\":[]string{\"…\"}}",
        "req.Header[\"NAME\"] = []string{\"…\"}",
        "{NAME=[…], Accept=[*/*]}",
        "{'NAME': ['…']}",
        "{\"NAME\"=>[\"…\"]}",
        "'NAME': [ '…' ]",
        "a\n{\\u0022NAME\\u0022:\\u0022…\\u0022}",
        "a &quot;NAME&quot;: &quot;…&quot;",
    ] {
        for (scheme, name) in [
            ("Basic ", "Authorization"),
            ("Token ", "authorization"),
            ("sid=", "Set-Cookie"),
            ("sid=", "set-cookie"),
        ] {
            let text = form.replace("NAME", name).replace('…', &format!("{scheme}{value}"));
            let text = redacted(&redactor, &text);
            assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
        }
    }
    for form in [
        "[Authorization] => Basic …",
        "Send the header Authorization: Bearer `…`.",
        "-H \"Authorization: Bearer \\\"…\\\"\"",
        "fmt.Sprintf(\"Bearer %s\", \"…\")",
        "format!(\"Bearer {}\", \"…\")",
        "\"Bearer {}\".format(\"…\")",
        "[\"HTTP_AUTHORIZATION\"]=>\n  string(30) \"Basic …\"",
        "| Authorization | Basic … |",
        "- **Authorization**: Basic …",
        "**Authorization:** Basic …",
        "Authorization\tBasic …",
        "<td>Authorization</td><td>Basic …</td>",
        "<td class=\"e\">$_SERVER['HTTP_AUTHORIZATION']</td><td class=\"v\">Basic …</td>",
        "-H Authorization:\\ Basic\\ …",
        "Authorization=Basic%20…",
        "Authorization: sso-key abcdefghijk1:…",
        "Authorization: Token ann:…",
        "Cookie: prefs={\"theme\":\"dark\"}; sessionid=…",
        "> cookie: a='x'; sessionid=…\n> accept: */*",
        "Authorization: Basic ann …",
        "Authorization: Digest ann …\n",
        "| Cookie | sid=… |",
        "-H 'cookie: session-id=1-2; csm-hit=tb:s-X|17&t:17&adb:adblk_no; at-main=Atza|…'",
        "req.Header.Set(\"Cookie\", \"consent=ads&stats; PHPSESSID=…\")",
        "-H 'cookie: bcookie=\"v=2&ab\"; li_at=…'",
        "{\"cmd\": \"curl -H 'cookie: prefs=\\\"a\\\"; sid=…'\"} x",
        "curl 'https://x.io/a' \\\n  -H 'accept: */*' \\\n  -b 'theme=dark; sessionid=…' \\\n  --compressed",
        "curl ^\"https://x.io/a^\" ^\n  -H ^\"accept: */*^\" ^\n  -b ^\"theme=dark; sessionid=…^\"",
        "curl --cookie \"sid=…\" https://x.io",
        "{\"cmd\": \"curl -b \\\"sid=…\\\" https://x.io\"}",
        "**Cookie**: sid=…",
        "Cookie\tsid=…",
        "const auth = 'Basic ' + '…';",
        "HTTP_COOKIE=sessionid=…",
        "'HTTP_COOKIE': 'csrftoken=abc; sessionid=…'",
        "\"HTTP_COOKIE\"=>\"_session=…\"",
        "$_SERVER['HTTP_COOKIE'] => PHPSESSID=…",
        "{set-cookie=[SESSION=…; Path=/]}",
    ] {
        let text = redacted(&redactor, &form.replace('…', &value));
        assert!(!text.contains(&value) && text.contains("[redacted:secrets]"), "{text}");
    }
}

#[test]
fn credentials_in_two_strings_and_in_addresses_are_replaced() {
    let redactor = secrets();
    let value = random(32);
    let shell = format!("os.system(\"curl -s -H \\\"Cookie: sid={value}\\\" https://x.example.com\")");
    assert_eq!(redacted(&redactor, &shell), shell.replace(&format!("sid={value}"), "[redacted:secrets]"));
    for form in [
        "{\"raw\":\"GET / HTTP/1.1\\nCookie: sid=…\",\"status\":200,\"body\":\"hello\"}",
        "\"\"\"\nCookie: sid=…\"\"\"), timeout=30)",
        "curl -H \"\nCookie: sid=…\" https://example.org/a | jq .data",
    ] {
        let text = redacted(&redactor, &form.replace('…', &value));
        assert_eq!(text, form.replace("sid=…", "[redacted:secrets]"));
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
    let key = drawn("0123456789abcdef", 40, 1);
    for form in [
        "origin\thttps://…@gitea.example.com/x/y.git (fetch)",
        "--extra-index-url https://…@pypi.example.com/a/",
        "https://…:@pypi.example.com/",
        "https://…:X@github.com/x/y",
        "nats://…@h:4222",
        "curl -u …: https://api.example.com/v1",
        "curl -su \"…:X\" https://api.example.com/v1",
    ] {
        for token in [&key, &value] {
            let text = redacted(&redactor, &form.replace('…', token));
            assert_eq!(text, form.replace('…', "[redacted:secrets]"));
        }
    }
    let public = format!("https://{}@o1.ingest.sentry.io/4501, ssh://deployment-of-app-2@h/x", &key[..32]);
    assert_eq!(redacted(&redactor, &public), public);
    let quoted = redacted(&redactor, &format!("Cookie: a=\"{value}\"\n"));
    assert_eq!(quoted, "Cookie: [redacted:secrets]\n");
    let cookie = redacted(&redactor, &format!("Cookie: theme=dark; session={value}\nAccept: text/html"));
    assert_eq!(cookie, "Cookie: [redacted:secrets]\nAccept: text/html");
}
