use super::*;

/// Returns a text with secrets and numbers that are none in the place of `…` and `≠`, and what is left of it.
fn filled(text: &str, secret: &str, other: &str) -> (String, String) {
    let text = text.replace('≠', other);
    (text.replace('…', secret), text.replace('…', "[redacted:secrets]"))
}

#[test]
fn secrets_below_the_names_of_their_columns_are_replaced_in_all_rows() {
    let redactor = secrets();
    let commit = drawn("0123456789abcdef", 40, 5);
    let wide = " id  |      email       |                api_key                 | role  |         created_at         \n\
        -----+------------------+----------------------------------------+-------+----------------------------\n\
        \x20100 | ann@example.com  | … | admin | 2024-01-01 10:00:00.123+00\n\
        \x20101 | bob@example.com  | … | ≠ | 2024-01-01 10:00:00.123+00\n(2 rows)\n";
    let box_of_sqlite = "┌────┬───────────┬──────┐\n│ id │   token   │ commit │\n├────┼───────────┼──────┤\n\
        │ 1  │ … │ ≠ │\n├────┼───────────┼──────┤\n│ 2  │ … │ ≠ │\n└────┴───────────┴──────┘\n";
    let texts = [
        wide,
        box_of_sqlite,
        "+----+------+-------+---------------------+\n| id | name | token | created_at          |\n\
            +----+------+-------+---------------------+\n|  1 | acme | … | 2024-01-01 10:00:00 |\n|  2 | ≠ | … | |\n",
        "           api_token           \n-------------------------------\n …\n …\n(2 rows)\n",
        "TOKEN\n--------------------------------------------------------------------------------\n…\n",
        "id          token                                    commit\n----------- ---------------------------------------- ----------------------------------------\n          \
            1 …                         ≠\n",
        "NAME      API_TOKEN                          COMMIT\nprod      …   ≠\nstaging   …   ≠\n",
        "id,\"e-mail\",api_token,commit\n1,\"Smith, Ann\",…,≠\n2,,\"…\",≠\n",
        "user\tcommit\tpassword\nann\t≠\t…\nbob\t≠\t…\n",
        "INSERT INTO api_keys (id, name, secret_key)\nVALUES\n  (1, 'acme''s', '…'),\n  (lower('b'), '≠', '…');\nselect '≠';",
        "INSERT INTO api_keys (id, secret_key) VALUES\n(1, '…'),\n(2, '…');\n",
        "INSERT INTO `users` (`id`, `email`, `api_token`, `commit`) VALUES (1,'a)b',\n'…','≠'),(2,NULL,'…','≠');",
        "INSERT INTO `users` (`id`, `email`, `api_token`, `commit`) VALUES\n(1, 'ann@example.com', '…', '≠'),\n(2, 'b', '…', '≠');\n",
        "INSERT INTO users (id, -- the (internal) number, of old\n  api_token /* as\n issued */, commit)\nVALUES -- all\n  -- it's the administrator\n\
            (1, '…', '≠'), -- first (of two)\n/* the, 'other' one */ (2, /* '≠' */ '…', '≠');\n",
        "INSERT INTO users (id, roles, token) VALUES (1, ARRAY['a', 'b'], '…'), (2, ARRAY[]::text[], '…');",
        "COPY public.users (id, email, api_token, commit) FROM stdin;\n1\tann@example.com\t…\t≠\n2\t\\N\t…\t≠\n\\.\n",
    ];
    let texts = texts.into_iter().chain([
        "\u{feff}password,name,commit\r\n…,ann,≠\r\n…,bob,≠\r\n",
        "Here is the list, as asked:\nname,token\nann,…\nbob,…\n",
        "id,roles,token,commit\n1,\"{\"\"a\"\": 1, \"\"b\"\": \"\"x, y\"\"}\",…,≠\n2,\"the \"\"best\"\", really\",\"…\",≠\n",
        "id,note,token,commit\n1,\"one\n\"\"two\"\", three\n\n\",…,≠\n2,5\" screen,…,≠\n3,\"a, b\",…,≠\n",
        "$ psql -Atc 'table a' | head\nid|token\n1|…\n2|…\n",
        "id,name\n1,acme\n\nid,token\n1,…\n",
        "+-------------------------+\n|          Keys           |\n+----+----------+----------+\n| id |  token   |  commit  |\n+----+----------+----------+\n| 1  | … | ≠ |\n+----+----------+----------+\n| 2  | … | ≠ |\n",
        "┏━━━━━━┳━━━━━━━┳━━━━━━━━┓\n┃ env  ┃ token ┃ commit ┃\n┡━━━━━━╇━━━━━━━╇━━━━━━━━┩\n│ prod │ … │ ≠ │\n│ dev  │ … │ ≠ │\n└──────┴───────┴────────┘\n",
        "┌─────┬───────┬────────┐\n│ id  ┆ token ┆ commit │\n│ --- ┆ ---   ┆ ---    │\n│ i64 ┆ str   ┆ str    │\n╞═════╪═══════╪════════╡\n│ 1   ┆ … ┆ ≠ │\n└─────┴───────┴────────┘\n",
        " 2023 | secret |  commit  \n------+--------+----------\n   17 | … | ≠\n",
        ",id,api_token,commit\n0,7,…,≠\n1,8,…,≠\n",
        "2fa_enabled,token,commit\ntrue,…,≠\n",
        "| 角色 | Password | commit |\n|---|---|---|\n| 管理员 | … | ≠ |\n",
        "| Role | Password | Notes / URL | commit |\n|---|---|---|---|\n| a | … | x | ≠ |\n",
        "Prénom,E-Mail,Password,commit\nAnn,ann@example.org,…,≠\n",
        " id | api_token | ?column? \n----+-----------+----------\n  1 | … | ≠\n",
        "ID   API Key                                      Commit\n================================================================\n\
            1    …  ≠\n",
        "<bash-stdout>id,email,api_token\n1,a,…\n2,b,…</bash-stdout>",
        "<document index=\"1\">\n<document_content> id | api_token | commit\n----+-----------+--------\n  1 | … | ≠\n</document_content>",
        "<output>NAME      API_TOKEN\nprod      …\nstaging   …</output>",
        "<path>a.csv</path>\n<type>file</type>\n<content>1: id,api_token,commit\n2: 7,…,≠\n3: 8,…,≠\n</content>",
        "rows := parse(`id,api_token,commit\n1,…,≠\n2,…,≠\n`)",
        "ROWS = \"\"\"id,api_token,commit\n1,…,≠\n2,…,≠\n\"\"\"",
        "let rows = r#\"id,api_token,commit\n1,…,≠\n2,…,≠\n\"#;",
        "\t\trows := parse(ctx, `id,api_token,commit\n1,…,≠\n2,…,≠\n`)",
        "    fs.writeFileSync('a.csv', `id,api_token,commit\n1,…,≠\n2,…,≠\n`);",
        "\tlet rows = \"id,api_token,commit\n1,…,≠\n2,…,≠\n\";",
        "printf \"%s\" 'id,api_token,commit\n1,…,≠\n2,…,≠\n'",
        "ROWS=\"id\tapi_token\tcommit\n1\t…\t≠\n2\t…\t≠\"",
        "open(\"a.csv\", \"w\").write(\"\"\"id,api_token\n1,…\n2,…\"\"\")",
        "    parse(`id,api_token\n1,…\n2,…`);",
        "User                           Password                            Id\n------------------------------\n\
            ann                            …    ≠\n",
        "-[ RECORD 1 ]-\nid        | 1\napi_token | …\ncommit    | ≠\n-[ RECORD 2 ]-\napi_token | …\n",
        "-[ RECORD 1 ]-\ntoken_id   | ≠\npublic_key | ≠\n",
        "User's name   Password                                   Id\n-----------   ----------------------------------------   ---\n\
            ann           …   ≠\n",
        "\t\t\"id,api_token,commit\n1,…,≠\n2,…,≠\n\",\n",
        "    f(x, 'id,api_token,commit\n1,…,≠\n2,…,≠\n')",
        "┌─[ RECORD 1 ]─────┐\n│ api_token │ … │\n│ commit    │ ≠ │\n└────┘\n",
        "    parse(\"id,api_token\n1,…\n2,…\");",
        "let rows = r#\"id,api_token\n1,…\n2,…\"#;",
        "ID   API Key                                    Commit\n──── ────────────────────────────────────────── ──────\n\
            1    …   ≠\n",
    ]);
    let texts: Vec<_> = texts.collect();
    for secret in
        [drawn("0123456789abcdef", 32, 1), drawn("0123456789abcdef", 40, 2), drawn(LETTERS_AND_DIGITS, 24, 3)]
    {
        for text in &texts {
            let (text, left) = filled(text, &secret, &commit);
            assert_eq!(redacted(&redactor, &text), left);
        }
    }
}

#[test]
fn tables_without_a_column_of_secrets_and_what_is_not_in_the_column_stay() {
    let redactor = secrets();
    let commit = drawn("0123456789abcdef", 40, 5);
    for text in [
        "token_count,commit\n17,≠\n",
        "next_token | commit\n-----------+-------\n ≠ | ≠\n",
        "Use a token, or a password.\nThe commit is ≠, and not another one.\n",
        "| token | rank |\n|---|---|\n| the | 1 |\n| of | 2 |\n",
        "INSERT INTO commits (id, token_count) VALUES ('≠', 17);",
        "token,commit\nx,≠\n\n≠,≠\n",
        "The token\n---\n\nThe commit ≠ has it.\n",
        "names = [\n    'token',\n    'name',\n    'X509_pubkey_st',\n]\n",
        "    token, name,\n    'X509_pubkey_st', 'pkcs7_digest_st',\n",
        "api_key,\nname,\nfullyReadBody,\n",
        "NAME      SECRETS   AGE\ndefault   1         5d\n$ git rev-parse HEAD\n≠\n",
        "libc6\t2.36\nbase-passwd\t3.6.1\n≠\t2.38.1\n",
        "passwd\t4.13.1\n≠\t2.38.1\n",
        "M\tCargo.toml\nM\tsecrets\nM\t≠\n",
        "web\tUp 2 hours\nauth-token\tUp 2 hours\n≠\tUp 2 hours\n",
        "  oid  | proname\n-------+---------\n 1     | lower\n 2     | token\n 3     | ≠\n(3 rows)\n",
        "+----+------+\n| id | name |\n+----+------+\n| a  | x    |\n+----+------+\n| b  | token |\n+----+------+\n| c  | ≠ |\n+----+------+\n",
        "name,count\nreset-password,few\n≠,many\n",
        "web | up\ntoken | up\n≠ | up\n",
        "INSERT INTO notes (id, body) VALUES -- (id, token)\n(1, '≠');\n-- INSERT INTO keys (token) of\nselect '≠';",
        "NAME   READY   SECRET              AGE\nweb    True    k8s-kube-proxy-v2   5d\n",
        "default-token-x2x9q   Opaque   1   5d\nweb-secret            Opaque   1   5d\n---\n≠   1/1   Running\n≠   1/1   Running\n",
        "9f1c2b7 Rotate the token\n======\n≠\n≠\n",
    ] {
        let text = text.replace('≠', &commit);
        assert_eq!(redacted(&redactor, &text), text);
    }
}

#[test]
fn tables_of_many_rows_are_read_behind_what_stands_before_their_lines() {
    let (redactor, secret) = (secrets(), random(32));
    let rows = |of: fn(usize) -> String| (1..=30).map(of).collect::<String>();
    let tables = [
        " id | name | token\n----+------+-------\n".to_owned() + &rows(|n| format!(" {n:2} | ann  | …\n")),
        "id,name,token\n".to_owned() + &rows(|n| format!("{n},ann,…\n")),
        "id,created_at,token\n".to_owned() + &rows(|n| format!("{n},2024-01-{n:02} 10:00:00,…\n")),
        "id\tname\ttoken\n".to_owned() + &rows(|n| format!("{n}\tann\t…\n")),
        "| id | token |\n|---|---|\n".to_owned() + &rows(|n| format!("| {n} | … |\n")),
    ];
    let heads: [fn(usize) -> String; 7] = [
        |n| format!("2024-01-02T03:04:{n:02}.123Z "),
        |n| format!("build\tRun tests\t2024-01-02T03:04:{n:02}.1234567Z "),
        |n| format!("2024-01-02T03:04:{n:02}.123+00:00 app[web.1]: "),
        |_| "aws_instance.web (remote-exec): ".to_owned(),
        |_| "packages/api test: ".to_owned(),
        |n| format!("{n:6}\t"),
        |n| format!("{n:6}→"),
    ];
    for table in &tables {
        for head in heads {
            let lines = ["starting", "exporting the users"].into_iter().chain(table.lines()).chain(["done"]);
            let lines: Vec<_> = lines.enumerate().map(|(n, line)| head(n + 1) + line).collect();
            let text = lines.join("\n");
            let (text, left) = filled(&text, &secret, "");
            assert_eq!(redacted(&redactor, &text), left);
        }
        let added = format!("\n{}", table.trim_end()).replace('\n', "\n+");
        let (text, left) = filled(&format!("+++ b/users\n@@ -0,0 +1,31 @@{added}\n"), &secret, "");
        assert_eq!(redacted(&redactor, &text), left);
    }
}

#[test]
fn a_table_of_which_a_comparison_shows_some_rows_is_read_with_its_head() {
    let redactor = secrets();
    for sign in [",", ";", "\t"] {
        let text = format!(
            "diff --git a/x.csv b/x.csv\n@@ -1,4 +1,4 @@\n id{sign}name{sign}api_token\n 1{sign}ann{sign}A\n-2{sign}bob{sign}B\n+2{sign}bob{sign}C\n"
        );
        let fill = |values: [&str; 3]| {
            ["A\n", "B\n", "C\n"].into_iter().zip(values).fold(text.clone(), |text, (place, value)| {
                text.replace(&format!("{sign}{place}"), &format!("{sign}{value}\n"))
            })
        };
        let values = [1, 2, 3].map(|seed| drawn(LETTERS_AND_DIGITS, 24, seed));
        let filled = fill([&values[0], &values[1], &values[2]]);
        assert_eq!(redacted(&redactor, &filled), fill(["[redacted:secrets]"; 3]));
    }
}

#[test]
fn tables_in_strings_are_read_also_in_a_text_that_is_not_json() {
    let (redactor, secret) = (secrets(), random(32));
    let tables = [
        "id,token,name\n1,…,ann\n2,…,bob\n",
        "id\ttoken\n1\t…\n",
        " id | token\n----+-----\n 1  | …\n",
        "NAME   API_TOKEN\nprod   …\n",
        "COPY users (id, token) FROM stdin;\n1\t…\n2\t…\n\\.\n",
        "id,note,token\n1,\"a, \"\"b\"\"\",…\n",
    ];
    for table in tables {
        let json = serde_json::json!({ "type": "result", "stdout": table }).to_string();
        for text in [
            format!("Here it is:\n{json}\n"),
            format!("{json}\n{json}\n"),
            format!("data: {json}\n\n"),
            format!("2024-01-02 INFO answer {json}"),
            format!("```json\n{json}\n```"),
            json[..json.len() - 2].to_owned(),
        ] {
            let (text, left) = filled(&text, &secret, "");
            assert_eq!(redacted(&redactor, &text), left);
        }
    }
    let python = format!("{:?}", tables[0]).replace('"', "'");
    let (text, left) = filled(&format!("{{'stdout': {python}}}"), &secret, "");
    assert_eq!(redacted(&redactor, &text), left);
}

#[test]
fn what_is_beside_a_column_about_tokens_or_passwords_stays() {
    let redactor = secrets();
    for id in ["Xk29qQ7xK2mZ9vB4nR8tWa", "msg_01Xk29qQ7xK2mZ9vB4nR8t", "api-7d9c5b8f6d-x2x9q"] {
        for text in [
            "run,model,input_tokens,output_tokens\n≠,claude,123,45\n≠,gpt,1,2\n",
            "| run | max_tokens | cost |\n|---|---|---|\n| ≠ | 4096 | 0.1 |\n| ≠ | 4096 | 0.2 |\n",
            " has_password |           id\n--------------+------------------------\n t            | ≠\n f            | ≠\n",
            "TOKENS   RUN                      COST\n123      ≠   0.1\n123      ≠   0.1\n",
            "id\tpassword_changed_at\n≠\t2024-01-02\n≠\t2024-01-02\n",
        ] {
            let text = text.replace('≠', id);
            assert_eq!(redacted(&redactor, &text), text);
        }
    }
}

#[test]
fn the_first_cell_of_a_row_may_look_like_what_stands_before_lines() {
    let redactor = secrets();
    let value = |number: u64| drawn(LETTERS_AND_DIGITS, 32, number);
    let uuid = |number: u64| format!("01a22b6f-0cad-764c-b822-25b2b425{number:04}");
    let time = |number: u64| format!("2024-01-{number:02} 04:04:05");
    let forms: [(&str, &dyn Fn(u64) -> String); 3] =
        [("     {n}→", &uuid), ("     {n}→", &time), ("2024-01-02T03:04:05.{n}Z ", &time)];
    for (before, first) in forms {
        let line = |number: u64, row: &str| before.replace("{n}", &number.to_string()) + row + "\n";
        let mut text = line(1, &format!(" {:<38} | api_token", "session"));
        text += &line(2, &format!("{}+-----------", "-".repeat(40)));
        let mut left = text.clone();
        for number in 3..10 {
            let row = |token: &str| line(number, &format!(" {:<38} | {token}", first(number)));
            text += &row(&value(number));
            left += &row("[redacted:secrets]");
        }
        assert_eq!(redacted(&redactor, &text), left);
    }
}

#[test]
fn what_is_behind_a_column_of_secrets_that_is_as_wide_as_the_one_before_stays() {
    let redactor = secrets();
    let row = |[first, second, third]: [&str; 3]| format!("{first:<40}{second:<40}{third:<40}\n");
    let value = |number: u64| drawn(LETTERS_AND_DIGITS, 32, number);
    for first in ["", "user", "2026-01-0"] {
        for ruler in [format!("{}\n", "-".repeat(120)), row(["--", "---------", "------"]), String::new()] {
            let (mut text, mut left) = (row(["ID", "API_TOKEN", "RUN_ID"]) + &ruler, String::new());
            let mut rows = String::new();
            for number in 1..9 {
                let [token, run] = [value(number), value(number + 100)];
                let line = row([&format!("{first}{number}"), &token, &run]);
                left.push_str(&line.replace(&token, "[redacted:secrets]"));
                rows.push_str(&line);
            }
            left.insert_str(0, &text);
            text.push_str(&rows);
            assert_eq!(redacted(&redactor, &text), left);
        }
    }
}

#[test]
fn the_ids_of_objects_that_are_lines_are_not_those_of_the_messages_before() {
    let redactor = secrets();
    for before in ["", "INFO ", "    ", "12:00:01 "] {
        for message in ["invalid token", "Reset the password", "missing API key"] {
            let line = |number: u64| {
                let id = drawn(LETTERS_AND_DIGITS, 24, number);
                format!("{before}{{\"id\": \"{id}\", \"tokens\": 12, \"msg\": \"{message}\"}}\n")
            };
            let text: String = (1..9).map(line).collect();
            assert_eq!(redacted(&redactor, &text), text);
        }
    }
}

#[test]
fn an_id_with_which_an_item_begins_does_not_belong_to_the_name_at_the_end_of_the_one_before() {
    let redactor = secrets();
    for [before, behind] in [["- `", "`: "], ["- `", "` "], ["1. `", "` – "], ["`", "`: "], ["\"", "\": "]]
    {
        for text in ["Rotate API token", "Store the password", "feat(auth): refresh tokens"] {
            let item = |number: u64| {
                let id = drawn("0123456789abcdef", 40, number);
                format!("{before}{id}{behind}{text}\n")
            };
            let list: String = (1..5).map(item).collect();
            assert_eq!(redacted(&redactor, &list), list);
            let string = serde_json::json!({ "stdout": list }).to_string();
            assert_eq!(redacted(&redactor, &string), string);
            let lines = format!("{string}\n{string}\n");
            assert_eq!(redacted(&redactor, &lines), lines);
        }
    }
}

#[test]
fn a_table_with_very_many_columns_is_read_in_linear_time() {
    let redactor = secrets();
    let head = format!("{}\n", "PW  ".repeat(999));
    for row in ["aB3", "a\n", "- ", "  \"\""] {
        let taken = |bytes: usize| {
            let text = head.clone() + &row.repeat(bytes / row.len());
            let begun = processor_time();
            redacted(&redactor, &text);
            processor_time().saturating_sub(begun)
        };
        let (short, long) = (taken(100_000), taken(400_000));
        assert!(long < short * 8 + Duration::from_millis(200), "{row}: {short:?}, {long:?}");
    }
}
