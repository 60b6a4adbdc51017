use super::*;

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
fn each_shape_has_an_issuer() {
    assert!(issuers().count() > 100 && issuers().all(|issuer| !issuer.is_empty()));
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
    for before in [
        "https://qyapi.weixin.qq.com/cgi-bin/webhook/send?key=",
        "https://open.feishu.cn/open-apis/bot/v2/hook/",
        "wss://mainnet.infura.io/ws/v3/",
    ] {
        let text = redacted(&redactor, &format!("post to {before}{guid} now"));
        assert_eq!(text, format!("post to {before}[redacted:secrets] now"));
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
fn web_tokens_are_replaced_however_their_json_is_written() {
    let redactor = secrets();
    for object in
        ["eyJ0", "eyAidHlw", "eyAgImFsZ", "ewogICAgInR5", "ewoJInR5", "ewoiaXNz", "ew0KICAi", "ewkiaXNz"]
    {
        for token in [
            format!("{object}{}.eyJ{}.{}", random(30), random(50), random(43)),
            format!("eyJhbGciOiJIUzI1NiJ9.{object}{}.{}", random(50), random(43)),
        ] {
            for form in ["JWT: …", "steamLoginSecure=76561199481476887%7C%7C…", "{\"jwt\": \"…\"}", "…"]
            {
                let text = redacted(&redactor, &form.replace('…', &token));
                assert_eq!(text, form.replace('…', "[redacted:secrets]"));
            }
        }
    }
}

#[test]
fn credentials_with_punctuation_marks_are_replaced_as_a_whole() {
    let redactor = secrets();
    for token in [
        format!("00D5f000006OVX8!AQcAQ{}.{}", random(50), random(43)),
        format!("v^1.1#i^1#r^0#p^3#I^3#f^0#t^H4sIAAAA{}", random(300)),
        format!("AAAAAAAAAAAAAAAAAAAAA{}%2B{}%3D{}", random(20), random(8), random(50)),
        format!("AAAA{}:APA91b{}", random(7), random(134)),
    ] {
        for form in [
            "curl -H \"Authorization: Bearer …\" https://x.example.com",
            "Authorization: OAuth …\n",
            "req.Header.Set(\"Authorization\", \"Bearer …\")",
            "Bearer …",
        ] {
            let text = redacted(&redactor, &form.replace('…', &token));
            assert_eq!(text, form.replace('…', "[redacted:secrets]"));
        }
    }
    for form in ["?api-version=1&sp=%2Frun&sv=1.0&sig=…", "&amp;sig=…", r"\u0026sig=…"] {
        let signature = format!("{}-{}_{}", random(20), random(10), random(11));
        let text = redacted(&redactor, &form.replace('…', &signature));
        assert_eq!(text, form.replace('…', "[redacted:secrets]"));
    }
}

#[test]
fn tokens_of_clusters_and_tunnels_are_replaced() {
    let redactor = secrets();
    let (hash, credential) = (drawn("0123456789abcdef", 64, 1), drawn("0123456789abcdef", 32, 2));
    let join = format!("K10{hash}::server:{credential}");
    let tunnel = format!("eyJhIjoi{}", random(180));
    for token in [join, tunnel] {
        for form in ["K3S_TOKEN=…", "token: …", "--token …", "{\"token\":\"…\"}", "service install …\n"]
        {
            let text = redacted(&redactor, &form.replace('…', &token));
            assert_eq!(text, form.replace('…', "[redacted:secrets]"));
        }
    }
    let parts = format!("API_TOKEN={}::{}", random(20), random(24));
    assert_eq!(redacted(&redactor, &parts), "API_TOKEN=[redacted:secrets]");
}

#[test]
fn tokens_of_services_that_are_in_no_list_are_recognized_by_what_their_prefix_says() {
    let redactor = secrets();
    for token in ["acme_live_", "foo2_secret_", "x9_pat_", "sk-", "sk-acme-", "live_"] {
        let token = format!("{token}{}", random(40));
        assert_eq!(redacted(&redactor, &format!("with {token} now")), "with [redacted:secrets] now");
    }
    for name in [
        "my_test_that_takes_the_longest_name_of_all_tests",
        "cargo_test_aBcDefGhijklmnopqrstuvwxyz",
        "sk-list-of-all-skeletons-in-the-closet-2",
        "s.someFunctionOfAnObject2(), live_update_of_all_the_values_in_the_table_2",
    ] {
        assert_eq!(redacted(&redactor, name), name);
    }
}
