use proptest::prelude::*;

use super::*;

/// What a command line does, in short.
fn does(line: &str) -> Vec<String> {
    told(actions(line, None))
}

fn told(actions: Vec<ToolAction>) -> Vec<String> {
    let text = |action| match action {
        ToolAction::Search { tool, query, path } => {
            let name = match tool {
                SearchTool::Grep => "grep",
                SearchTool::Glob => "glob",
                SearchTool::Index => "index",
            };
            path.map_or(format!("{name} {query}"), |path| format!("{name} {query} in {path}"))
        }
        ToolAction::Read { path } => format!("read {path}"),
        ToolAction::Edit { path } => format!("edit {path}"),
        ToolAction::Index { path } => format!("index {path}"),
    };
    actions.into_iter().map(text).collect()
}

#[track_caller]
fn check(rows: &[(&str, &[&str])]) {
    for (line, expected) in rows {
        assert_eq!(does(line), *expected, "{line}");
    }
}

#[test]
fn programs_that_look_through_contents_are_searches() {
    check(&[
        ("grep -rn 'login button' src", &["grep login button in src"]),
        ("grep -rnE \"create(User|Account)\" --include '*.ts' .", &["grep create(User|Account) in ."]),
        ("grep -A 3 -n needle hay.txt", &["grep needle in hay.txt"]),
        ("grep -r -e one -e two lib", &["grep one|two in lib"]),
        ("egrep -r -- --flag src", &["grep --flag in src"]),
        ("rg 'fn main'", &["grep fn main"]),
        ("rg -n -g '*.rs' -tjs --max-depth 3 'a b' src lib", &["grep a b in src"]),
        ("/usr/bin/rg -uu x | head -20", &["grep x"]),
        ("LC_ALL=C sudo -n grep -R x /etc", &["grep x in /etc"]),
        ("timeout 10 rg x", &["grep x"]),
        ("git grep -n needle", &["grep needle"]),
        ("git --no-pager -C sub grep needle -- src", &["grep needle in sub/src"]),
        ("ag needle lib", &["grep needle in lib"]),
    ]);
}

#[test]
fn programs_that_look_through_names_are_searches() {
    check(&[
        ("find . -name '*.tsx'", &["glob *.tsx in ."]),
        ("find src -type f \\( -iname 'a*' -o -iname 'b*' \\)", &["glob a* b* in src"]),
        ("find . -not -path '*/node_modules/*' -name 'x'", &["glob x in ."]),
        ("find . -path ./target -prune -o -name '*.rs' -print", &["glob *.rs in ."]),
        ("fd -t f login src", &["glob login in src"]),
        ("fd -e tsx", &["glob *.tsx"]),
        ("rg --files -g '*auth*' -g '!*.snap'", &["glob *auth*"]),
        ("git ls-files '*.md'", &["glob *.md"]),
    ]);
}

#[test]
fn a_filter_over_names_is_a_search_for_names() {
    check(&[
        ("find . -type f | grep -i login", &["glob login"]),
        ("git ls-files | sort | rg auth", &["glob auth"]),
        ("rg --files src | rg 'test.*auth' | head", &["glob test.*auth"]),
        ("ls -R src | grep Button", &["glob Button"]),
    ]);
}

#[test]
fn what_filters_tests_or_keeps_its_output_searches_nothing() {
    check(&[
        ("cargo test 2>&1 | grep -E 'error|warning'", &[]),
        ("ps aux | rg node", &[]),
        ("git log --oneline | grep fix | head", &[]),
        ("grep -q needle hay && echo yes", &[]),
        ("grep -v needle hay", &[]),
        ("n=$(grep -c needle hay)", &[]),
        ("grep -r needle . > found.txt", &[]),
        ("grep -rl old src | xargs sed -i s/old/new/g", &[]),
        ("rg -l old | sort | xargs rm", &[]),
        ("rg old | tee found.txt > /dev/null", &["edit found.txt"]),
        ("find . -name '*.pyc' -delete", &[]),
        ("find . -name '*.py' -exec sed -i s/old/new/ {} +", &[]),
        ("find . -type f", &[]),
        ("grep \"$PATTERN\" hay", &[]),
    ]);
}

#[test]
fn a_command_run_for_each_file_found_is_a_search() {
    check(&[
        ("find . -name '*.go' | xargs grep -l needle", &["glob *.go in .", "grep needle"]),
        ("find . -name '*.go' -exec grep -l needle {} +", &["glob *.go in .", "grep needle"]),
        ("git ls-files | xargs -n 1 -I{} rg needle", &["grep needle"]),
        ("fd -e py -x rg needle", &["glob *.py", "grep needle"]),
    ]);
}

#[test]
fn programs_that_show_files_are_reads() {
    check(&[
        ("cat src/main.rs src/lib.rs", &["read src/main.rs", "read src/lib.rs"]),
        ("sed -n '1,200p' src/main.rs", &["read src/main.rs"]),
        ("sed -n -e 1,5p -e 9p a.txt", &["read a.txt"]),
        ("head -50 a; head -n 5 b; head -n5 c", &["read a", "read b", "read c"]),
        ("tail -n +10 a && tail +10 b", &["read a", "read b"]),
        ("nl -ba src/a.go | sed -n '5,9p'", &["read src/a.go"]),
        ("bat --style plain -r 1:20 a.rs", &["read a.rs"]),
        ("less a.txt", &["read a.txt"]),
        ("awk -F: 'NR>=5 {print $1}' a.txt", &["read a.txt"]),
        ("cat 'app/[id]/my page.tsx'", &["read app/[id]/my page.tsx"]),
        ("cat app/one\\ two.txt", &["read app/one two.txt"]),
        ("wc -l < a.txt", &["read a.txt"]),
        ("bash -lc 'cat a.txt'", &["read a.txt"]),
        ("cat ~/notes.md /etc/hosts", &["read ~/notes.md", "read /etc/hosts"]),
    ]);
}

#[test]
fn what_only_the_shell_knows_is_no_path() {
    check(&[
        ("cat $FILE \"$HOME/a\" *.md $(ls) - /dev/stdin", &[]),
        ("for f in a b; do cat \"$f\"; done", &[]),
        ("cd $DIR && cat a.txt", &[]),
    ]);
}

#[test]
fn programs_that_write_files_are_edits() {
    check(&[
        ("sed -i 's/a/b/' a.txt", &["edit a.txt"]),
        ("sed -i '' -e s/a/b/ a.txt", &["edit a.txt"]),
        ("sed -i.bak 's/a/b/' a.txt", &["edit a.txt"]),
        ("echo x > a.txt; echo y >>b.txt 2>&1", &["edit a.txt", "edit b.txt"]),
        ("make 2> errors.txt > /dev/null", &[]),
        // What a program says is no text that somebody has written, and the agent has not looked for it.
        ("make &> log.txt; tail log.txt", &[]),
        ("cat > a.sh <<< 'exit 0'; cat a.sh", &["edit a.sh"]),
        ("echo x | tee -a a.txt", &["edit a.txt"]),
        ("cat > a.sh <<'EOF'\ncat b.txt\nEOF\ncat c.txt", &["edit a.sh", "read c.txt"]),
        ("cat <<-EOF > a\n\tcat b\n\tEOF\n cat c", &["edit a", "read c"]),
        (
            "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: src/a.rs\n*** Add File: b\n+cat c\nEOF\n",
            &["edit src/a.rs", "edit b"],
        ),
    ]);
}

#[test]
fn paths_follow_cd_within_its_group() {
    check(&[
        ("cd web && cat a.ts", &["read web/a.ts"]),
        ("cd web; cd ./src; rg x", &["grep x in web/src"]),
        ("(cd web && cat a.ts); cat b.ts", &["read web/a.ts", "read b.ts"]),
        ("cd /srv/app && grep -rn x src | head", &["grep x in /srv/app/src"]),
        ("cd - && cat a && cat /b", &["read /b"]),
        ("bash -c 'cd a; cat b'; cat c", &["read a/b", "read c"]),
    ]);
    assert_eq!(told(actions("cat a.ts; cat /b", Some("/srv/app/"))), ["read /srv/app/a.ts", "read /b"]);
    assert_eq!(told(actions("rg x", Some("/srv/app"))), ["grep x in /srv/app"]);
}

#[test]
fn commands_are_found_wherever_the_shell_would_run_them() {
    check(&[
        ("if cat a; then\n  rg x\nfi", &["read a", "grep x"]),
        ("test -f a && cat b &\ncat c", &["read b", "read c"]),
        ("cat a |\n  grep x", &["read a"]),
        ("cat a \\\n  b # cat c", &["read a", "read b"]),
        ("echo \"$(cat a)\" `cat b` 'cat c'", &["read a", "read b"]),
        ("diff <(cat a) <(cat b)", &["read a", "read b"]),
        ("echo \"a; cat b | cat c\"", &[]),
        ("x=$((1 + 2)); cat a", &["read a"]),
        ("git commit -m \"$(cat <<'EOF'\nit's (fixed)\nEOF\n)\" && cat a", &["read a"]),
    ]);
}

#[test]
fn what_runs_in_the_place_of_something_else_may_not_have_read_its_file() {
    check(&[
        ("cat a.toml 2>/dev/null || cat b.py || cat c.json", &[]),
        ("cat a || echo none; cat b", &["read b"]),
        ("cat a ||\n  cat b\ncat c", &["read c"]),
        ("if [ -f a ]; then cat a; else\n  head b\nfi; cat c", &["read c"]),
        ("if a; then for f in x; do if b; then c; fi; done; cat d; fi; cat e", &["read e"]),
        ("case $x in a) cat a;; esac; cat b", &["read b"]),
        ("rg x || rg y", &["grep x", "grep y"]),
    ]);
}

#[test]
fn a_search_is_one_if_something_of_what_it_finds_is_shown() {
    check(&[
        ("rg -l x | xargs cat | head", &["grep x"]),
        ("rg -l x | xargs wc -l", &["grep x"]),
        ("find . -name '*.go' -exec ls -l {} +", &["glob *.go in ."]),
        ("rg x | tee found.txt", &["grep x", "edit found.txt"]),
        ("rg -l x | xargs", &["grep x"]),
        ("rg -l x src | xargs grep -L y", &["grep x in src"]),
        ("find . -name '*.py' -exec grep -q foo {} \\; -print", &["glob *.py in ."]),
        ("find . -name p.json -exec /usr/bin/jq .version {} +", &["glob p.json in ."]),
        ("find . -name p.json -exec sudo rm {} +", &[]),
    ]);
}

proptest! {
    #[test]
    fn no_command_line_is_too_odd(line in r#"(\PC|[ \n"'`$()<>|&;{}\\#=-]|cat |grep |find |cd |EOF|<<){0,60}"#) {
        let _ = actions(&line, Some("/srv"));
    }
}

#[test]
fn long_and_deep_command_lines_take_no_longer_a_byte() {
    for part in [
        "$(",
        "(",
        "\"$(",
        "`",
        "<<a ",
        "{ ",
        "cat a|",
        "find . -exec ",
        "gfind -exec ",
        "rg x|xargs ",
        "if ",
        "x||",
    ] {
        let started = std::time::Instant::now();
        let _ = actions(&part.repeat(20_000), None);
        assert!(started.elapsed().as_secs() < 2, "{part}");
    }
}

#[test]
fn a_command_with_very_many_paths_has_few_actions_and_its_paths_are_about_as_long_as_it_is() {
    let files: Vec<_> = (0..30_000).map(|number| number.to_string()).collect();
    let folder = "long/".repeat(700);
    for command in [
        format!("cat {}", files.join(" ")),
        format!("cd /{folder}; cat {}", files.join(" ")),
        format!(
            "cd /{folder} && {}",
            files.iter().map(|file| format!("cat {file}")).collect::<Vec<_>>().join(";")
        ),
        files.iter().map(|file| format!("(cd {file}; cat {file})")).collect::<Vec<_>>().join(";"),
    ] {
        let actions = actions(&command, Some("/app"));
        let size: usize = actions.iter().map(|action| format!("{action:?}").len()).sum();
        assert!((100..=1_000).contains(&actions.len()), "{}", actions.len());
        assert!(size < 8 * command.len(), "{size} bytes of {}", command.len());
    }
}

#[test]
fn a_folder_that_is_longer_than_any_is_not_known() {
    let long = format!("/{}", "x".repeat(MOST_PATH));
    assert_eq!(told(actions("cat a; rg b; cd c; cat d", Some(&long))), ["read a", "grep b", "read c/d"]);
    assert_eq!(does(&format!("cd {long}; cat a; cat /b; cd /c; cat d")), ["read /b", "read /c/d"]);
    let half = "x".repeat(MOST_PATH / 2);
    assert_eq!(does(&format!("cd /{half}; cd {half}; cat a")), [""; 0]);
    let whole = &long[..MOST_PATH];
    assert_eq!(told(actions("cat a", Some(whole))), [format!("read {whole}/a")]);
}

#[test]
fn no_word_is_cut_where_a_command_line_that_is_too_long_ends() {
    let before = "true;".repeat(MOST_BYTES / 5 - 1);
    assert_eq!(does(&format!("{before}cat tokens")), [""; 0]);
    assert_eq!(does(&format!("{before}cat a;cat b")), ["read a"]);
}

#[test]
fn a_path_is_seen_from_a_folder_unless_it_begins_at_a_root_of_unix_or_windows() {
    for (folder, path, expected) in [
        ("/srv/app", "./src/a.rs", "/srv/app/src/a.rs"),
        ("/srv/app", "/etc/hosts", "/etc/hosts"),
        (r"C:\app", r"src\a.ts", r"C:\app/src\a.ts"),
        (r"C:\app", r"C:\app\src\a.ts", r"C:\app\src\a.ts"),
        (r"C:\app", r"\\host\share\a.ts", r"\\host\share\a.ts"),
    ] {
        assert_eq!(join(folder, path), expected);
    }
}
