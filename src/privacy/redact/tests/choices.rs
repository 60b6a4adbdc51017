use super::*;
use crate::privacy::redact::rules::CustomRule;

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
fn addresses_and_home_folders_are_replaced_if_asked_for() {
    let redactor = Redactor::new(&["emails", "ips", "home-paths"], &[], None).expect("built-in rules");
    for (text, expected) in [
        ("Ann <ann.b+x@mail.example.org>, hi", "Ann <[redacted:emails]>, hi"),
        ("git@github.com:x/y", "[redacted:emails]:x/y"),
        ("logo@2x.png user@1000.service x@self.weight", "logo@2x.png user@1000.service x@self.weight"),
        (
            r#"{"members@odata.bind": [], "owner@Microsoft.Dynamics.CRM.lookuplogicalname": "ann@redfish.org"}"#,
            r#"{"members@odata.bind": [], "owner@Microsoft.Dynamics.CRM.lookuplogicalname": "[redacted:emails]"}"#,
        ),
        (
            r#"x\n\n@router.get(\"/x\")\t@app.command()\nann@x.org C:\bob@x.org"#,
            r#"x\n\n@router.get(\"/x\")\t@app.command()\n[redacted:emails] C:\[redacted:emails]"#,
        ),
        (
            "................................................................................ann@x.org",
            "................................................................................[redacted:emails]",
        ),
        ("q@k.transpose(-2), (ann@x.org)", "q@k.transpose(-2), ([redacted:emails])"),
        (
            "bob@mail.example.com(Bob) a@2x.PNG me@self.inc",
            "[redacted:emails](Bob) a@2x.PNG [redacted:emails]",
        ),
        ("::10.1.2.3 5f00:1234::1", "[redacted:ips] [redacted:ips]"),
        ("a[::2] x86_64::f c::c_char fe80::1 a::b", "a[::2] x86_64::f c::c_char [redacted:ips] a::b"),
        ("64:ff9b::203.0.113.7, fd12:3456::1", "[redacted:ips], [redacted:ips]"),
        (
            "12:203.0.113.7 - x.log:10.1.2.3 -L 5432:10.0.0.5:5432 12:2001:db8::1 x.log:fe80::1 ip6:fd12:0:0:0:1:2:3:4",
            "12:[redacted:ips] - x.log:[redacted:ips] -L 5432:[redacted:ips]:5432 12:[redacted:ips] x.log:[redacted:ips] ip6:[redacted:ips]",
        ),
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
        (
            "<path d=\"M12 9a.75.75 0 110 1.5.75.75 0 110-1.5z\"/> at \"10.1.2.3\", 'm2 3h1 3.51.98.32' '10.1.2.4'",
            "<path d=\"M12 9a.75.75 0 110 1.5.75.75 0 110-1.5z\"/> at \"[redacted:ips]\", 'm2 3h1 3.51.98.32' '[redacted:ips]'",
        ),
        (
            r#"{"d": "{\"d\": \"M2 9a.75.75 0 110 1.5.75.75 0 110z\"}"}"#,
            r#"{"d": "{\"d\": \"M2 9a.75.75 0 110 1.5.75.75 0 110z\"}"}"#,
        ),
        ("'M1-10.1.2.3' 'm5 10.1.2.3'", "'M1-[redacted:ips]' 'm5 [redacted:ips]'"),
        ("M12 9a.75.75 0\n110 1.5.75.75 0 110-1.5z", "M12 9a.75.75 0\n110 1.5.75.75 0 110-1.5z"),
        ("/home/ann/src/x.rs:3", "[redacted:home-paths]/src/x.rs:3"),
        (r"C:\Users\Ann\x", r"[redacted:home-paths]\x"),
        ("file:///home/ann/x:/home/bob", "file://[redacted:home-paths]/x:[redacted:home-paths]"),
        ("gcc -I/home/ann/include", "gcc -I[redacted:home-paths]/include"),
        ("-I/Users/ann -L/home/bob/lib", "-I[redacted:home-paths] -L[redacted:home-paths]/lib"),
        (
            r#"{"cwd":"\/home\/ann\/x"}, \/Users\/ann"#,
            r#"{"cwd":"[redacted:home-paths]\/x"}, [redacted:home-paths]"#,
        ),
        (r"c:\users\ann, d:/users/bob/x", "[redacted:home-paths], [redacted:home-paths]/x"),
        (
            r#""C:\\Users\\ann\\x", C:\\\\Users\\\\ann"#,
            r#""[redacted:home-paths]\\x", [redacted:home-paths]"#,
        ),
        ("/mnt/c/Users/ann/x /d/Users/ann", "/mnt/c[redacted:home-paths]/x /d[redacted:home-paths]"),
        ("cd '/Users/ann/my x'", "cd '[redacted:home-paths]/my x'"),
        ("src/pages/home/index.tsx", "src/pages/home/index.tsx"),
        (
            "src/Users/UserService.cs, docs/Users/guide.md, /src/Users/User.cs",
            "src/Users/UserService.cs, docs/Users/guide.md, /src/Users/User.cs",
        ),
        (
            "GET /Users/42, [HttpGet(\"/Users/{id}\")], https://x.org/Users/list",
            "GET /Users/42, [HttpGet(\"/Users/{id}\")], https://x.org/Users/list",
        ),
        (
            "ls /home/* /home/$USER /home/{user} @/home/Page C:\\Users\\%USERNAME%",
            "ls /home/* /home/$USER /home/{user} @/home/Page C:\\Users\\%USERNAME%",
        ),
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
