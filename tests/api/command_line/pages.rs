//! The README and the pages of `docs/`: what they tell to paste works as pasted, what they print is the answer, and their
//! tables have every option and every metric.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use regex::Regex;

use super::{command, said};
use crate::support::server::{Server, folder, run};
use crate::support::{Service, provider};

/// The pages whose commands need nothing but bash, curl and a server with a provider of models, in the order in which
/// somebody reads them.
const PAGES: [&str; 10] = [
    "README.md",
    "docs/generations.md",
    "docs/suggestions.md",
    "docs/searches.md",
    "docs/messages.md",
    "docs/gateway.md",
    "docs/memories.md",
    "docs/command-line.md",
    "docs/data-sets.md",
    "docs/privacy.md",
];

/// How lines begin that a page tells to run, and that are tested elsewhere or need what may not be here.
const ELSEWHERE: [&str; 3] = ["make ", "docker ", "gleaner export training-pairs | duckdb "];

/// Between the answers to two commands.
const MARK: &str = "\u{1}";

fn page(name: &str) -> String {
    std::fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(name)).expect("the page is there")
}

/// The blocks of a page in these languages, as language and text.
fn blocks<'a>(page: &'a str, languages: &[&str]) -> Vec<(&'a str, &'a str)> {
    let parts = page.split("```").skip(1).step_by(2);
    let parts = parts.filter_map(|part| part.split_once('\n'));
    parts.filter(|(language, _)| languages.contains(language)).collect()
}

/// What a page tells to run, as a script that marks where the answer to each command begins, and the answers that
/// are printed, one for each mark.
fn script(page: &str) -> (String, Vec<String>) {
    let (mut script, mut answers) = (String::new(), Vec::new());
    let blocks = blocks(page, &["sh", "console"]);
    let is_elsewhere =
        |text: &str| text.lines().any(|line| ELSEWHERE.iter().any(|other| line.starts_with(other)));
    for (language, text) in blocks.into_iter().filter(|(_, text)| !is_elsewhere(text)) {
        if language == "sh" {
            // Nothing is said about what comes of it but that it works.
            let _ = write!(script, "printf '{MARK}'\n{text}\n");
            answers.push("…".to_owned());
            continue;
        }
        let mut lines = text.lines();
        let mut line = lines.next();
        while let Some(mut words) = line.map(|line| line.strip_prefix("$ ").expect("a command").to_owned()) {
            // A command goes on while a quotation is open.
            while words.matches('\'').count() % 2 == 1 {
                words = format!("{words}\n{}", lines.next().expect("the quotation is closed"));
            }
            let mut answer = String::new();
            line = lines.next();
            while let Some(printed) = line.filter(|line| !line.starts_with("$ ")) {
                answer = format!("{answer}{printed}\n");
                line = lines.next();
            }
            let _ = write!(script, "printf '{MARK}'\n{words}\n");
            answers.push(answer);
        }
    }
    (script, answers)
}

/// Whether an answer is the one that is printed, in which `…` stands for anything, and times are examples.
fn is_printed(printed: &str, answer: &str) -> bool {
    let times = Regex::new(r"\d{4}-\d\d-\d\dT[\d:.]+Z").expect("a valid expression");
    let [printed, answer] = [printed, answer].map(|text| times.replace_all(text.trim(), "TIME").into_owned());
    let mut parts = printed.split('…').map(str::trim);
    let Some(mut rest) = answer.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    let open = parts.peek().is_some();
    let mut last = "";
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else { return false };
        (rest, last) = (after, part);
    }
    rest.is_empty() || (open && last.is_empty())
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_pages_tell_to_paste_works_and_answers_as_they_say() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("curl is not installed: the pages were not pasted");
        return;
    }
    let folder = folder();
    let file = folder.path().join("providers.toml");
    std::fs::write(&file, provider::file().await.0).expect("a providers file");
    let file = file.to_str().expect("UTF-8");
    let environment = [("GLEANER_PROVIDERS_FILE", file), ("KEY", "provider-key")];
    let server = Server::start_with(&folder, &environment);
    std::fs::create_dir(folder.path().join("my-project")).expect("a folder to index");
    let program = Path::new(env!("CARGO_BIN_EXE_gleaner")).parent().expect("a folder");
    let path = format!("{}:{}", program.display(), std::env::var("PATH").expect("a path"));
    for name in PAGES {
        let (script, printed) = script(&page(name));
        let script = script.replace("127.0.0.1:8080", &server.address);
        let mut bash = Command::new("bash");
        bash.args(["-e", "-c"])
            .arg(format!("exec 2>&1\ncurl() {{ command curl --fail-with-body \"$@\"; }}\n{script}"));
        bash.env_clear().env("PATH", &path).env("HOME", folder.path()).current_dir(folder.path());
        bash.env("GLEANER_URL", format!("http://{}", server.address));
        let output = bash.output().expect("bash runs");
        let text = String::from_utf8(output.stdout).expect("text");
        assert!(output.status.success(), "{name}: {text}");
        let answers: Vec<_> = text.split(MARK).skip(1).collect();
        assert_eq!(answers.len(), printed.len(), "{name}: {text}");
        for (printed, answer) in printed.iter().zip(answers) {
            assert!(is_printed(printed, answer), "{name} prints\n{printed}\nand the answer is\n{answer}");
        }
    }
}

#[test]
fn the_page_of_configuration_has_every_option_of_the_server_with_its_variable_and_default() {
    let help = said(&run(&mut command(&folder(), "serve --help"), 0));
    let help = help.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = page("docs/configuration.md");
    let options = Regex::new(r"--([a-z-]+) (?:<[A-Z_]+>|\[<[A-Z_]+>\]) (.*?)\[env: ([A-Z_]+)(?:=[^\]]*)?\](?: \[default: ([^\]]+)\])?")
        .expect("a valid expression");
    let mut count = 0;
    for option in options.captures_iter(&help) {
        let name = format!("`--{}`", &option[1]);
        let row = page.lines().find(|line| line.starts_with('|') && line.contains(&name));
        let row = row.unwrap_or_else(|| panic!("{name} is not on the page"));
        let variable = &option[3];
        assert!(row.contains(variable) || row.contains("…_FILE"), "{name} has no {variable}: {row}");
        if let Some(default) = option.get(4) {
            assert!(row.contains(&format!("`{}`", default.as_str())), "{name} has another default: {row}");
        }
        count += 1;
    }
    assert!(count > 20, "{count} options were found in the help");
}

#[tokio::test]
async fn the_page_of_operation_has_every_metric_and_no_other() {
    let service = Service::open().await;
    service.get("/v1/generations").await.expect(200);
    let page = page("docs/operation.md");
    let metrics = service.get("/metrics").await.text();
    let known: Vec<_> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    for name in &known {
        assert!(page.contains(&format!("| `{name}`")), "{name} is not on the page");
    }
    for row in page.lines().filter_map(|line| line.strip_prefix("| `")) {
        let name = row.split(['`', '{', ' ']).next().unwrap_or_default();
        let is_metric = name.starts_with("gleaner_") || name.starts_with("process_");
        // Some are measured only once there was a transaction, which other tests see to in their own time.
        let comes_later = ["gleaner_commit_events", "gleaner_commit_duration_seconds"].contains(&name);
        assert!(!is_metric || comes_later || known.contains(&name), "there is no metric {name}");
    }
}

#[test]
fn pages_lead_only_to_pages_that_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = Regex::new(r"\]\(([^)#\s]+)(?:#[a-z-]+)?\)").expect("a valid expression");
    let docs = std::fs::read_dir(root.join("docs")).expect("the pages");
    let docs = docs.map(|entry| entry.expect("an entry").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let docs = docs.map(|path| path.strip_prefix(root).expect("a page").display().to_string());
    let others =
        ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md"].map(String::from);
    for name in docs.chain(others) {
        let page = page(&name);
        let folder = root.join(&name).parent().expect("a folder").to_owned();
        for link in links.captures_iter(&page).filter(|link| !link[1].contains("://")) {
            assert!(folder.join(&link[1]).exists(), "{name} leads to {}", &link[1]);
        }
    }
}
