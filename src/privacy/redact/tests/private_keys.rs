use super::*;

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
fn the_private_numbers_of_a_key_are_replaced_where_openssl_prints_them() {
    let redactor = secrets();
    let line = |number, bytes: usize| {
        let digits = drawn("0123456789abcdef", 2 * bytes, number);
        let bytes: Vec<_> = (0..bytes).map(|at| &digits[2 * at..2 * at + 2]).collect();
        format!("    {}", bytes.join(":"))
    };
    for name in ["priv", "privateExponent", "prime1", "prime2", "exponent1", "exponent2", "coefficient"] {
        let key = format!("{}:\n{}:\n{}", line(1, 15), line(2, 15), line(3, 2));
        let text = format!("modulus:\n    00:aa:bb\n{name}:\n{key}\npub:\n    04:aa:bb\n");
        let kept = format!("modulus:\n    00:aa:bb\n{name}:[redacted:secrets]\npub:\n    04:aa:bb\n");
        assert_eq!(redacted(&redactor, &text), kept);
        let numbered = text.lines().enumerate().map(|(at, line)| format!("{:>6}→{line}\n", at + 1));
        let numbered = redacted(&redactor, &numbered.collect::<String>());
        assert!(!numbered.contains(line(2, 15).trim()), "{numbered}");
    }
}

#[test]
fn a_private_key_in_base64_without_the_lines_around_it_goes() {
    let redactor = secrets();
    for beginning in [
        "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
        "MIIEpAIBAAKCAQEA",
        "MIICXQIBAAKBgQ",
        "MHcCAQEEI",
        "MIGkAgEBBDA",
        "MIGHAgEAMBMGByqGSM49",
        "MIG2AgEAMBAGByqGSM49",
        "MC4CAQAwBQYDK2VwBCIEI",
    ] {
        let key = format!("{beginning}{}", random(40));
        for (before, after) in
            [("", ""), ("decode(\"", "\")"), ("key material: ", "\nthen"), ("\\n", "\\nthen")]
        {
            let text = format!("{before}{key}=={after}");
            assert_eq!(redacted(&redactor, &text), format!("{before}[redacted:secrets]{after}"));
        }
        let lines = format!("{key}\n{}\n{}==\nthen", random(76), random(14));
        assert_eq!(redacted(&redactor, &lines), "[redacted:secrets]\nthen");
        for next in ["PORT=8080", "HOST=\"x\"", "MODE= ", "KEY= "] {
            assert_eq!(redacted(&redactor, &format!("{key}\n{next}")), format!("[redacted:secrets]\n{next}"));
        }
    }
    let public = format!("MIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA{}", random(60));
    assert_eq!(redacted(&redactor, &public), public);
}

#[test]
fn keys_of_other_kinds_between_such_lines_go() {
    let redactor = secrets();
    let digits: Vec<_> = (0..4).map(|line| drawn("0123456789abcdef", 32, line)).collect();
    let digits = digits.join("\n");
    let text = format!(
        "<tls-auth>\n-----BEGIN OpenVPN Static key V1-----\n{digits}\n-----END OpenVPN Static key V1-----"
    );
    let left = redacted(&redactor, &text);
    assert_eq!(
        left,
        "<tls-auth>\n-----BEGIN OpenVPN Static key V1-----[redacted:secrets]\n-----END OpenVPN Static key V1-----"
    );
    for kind in [
        "USER NKEY SEED",
        "ARGO TUNNEL TOKEN",
        "OpenVPN tls-crypt-v2 client key",
        "SSH2 ENCRYPTED PRIVATE KEY",
    ] {
        let text = format!("-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n", random(58));
        assert_eq!(redacted(&redactor, &text), format!("-----BEGIN {kind}-----[redacted:secrets]\n"));
    }
}
