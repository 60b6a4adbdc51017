//! What may know what: the rules that ARCHITECTURE.md gives, read off the source's own paths.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The domains, which know nothing of each other.
const DOMAINS: [&str; 5] = ["generations", "suggestions", "searches", "messages", "memories"];

/// Where the domains stand in one list: what they have in common is asked of them here, and nowhere else.
const LISTS_OF_DOMAINS: [&str; 5] = ["domain.rs", "exports/datasets.rs", "lib.rs", "openapi.rs", "router.rs"];

/// What runs or builds a statement.
const QUERIES: [&str; 5] =
    ["sqlx::query", "sqlx::query_as", "sqlx::query_scalar", "sqlx::raw_sql", "sqlx::QueryBuilder"];

/// The most files that need each other in a circle. That a file names a folder above it is not counted: it is part of that.
const LARGEST_CIRCLE: usize = 3;

/// A file of `src`.
struct Source {
    /// Its path below `src`.
    file: String,
    /// The names and the literals in it, in lower case.
    words: BTreeSet<String>,
    /// The paths that it names, those of this crate from `crate::` on.
    paths: BTreeSet<String>,
}

impl Source {
    fn read(file: &Path) -> Self {
        let text = fs::read_to_string(file).expect("a file of the source");
        let tokens: TokenStream = text.parse().unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let below = file.strip_prefix(root()).expect("it is below src");
        let file = below.to_str().expect("file names are ASCII").to_owned();
        let (mut paths, mut words) = (BTreeSet::new(), BTreeSet::new());
        collect_words(tokens.clone(), &mut words);
        collect_paths(tokens, "", &mut paths);
        let paths = paths.iter().map(|path| absolute(&module(&file), path)).collect();
        Self { file, words, paths }
    }

    /// The folder below `src`, or the name of a file that is in none.
    fn part(&self) -> &str {
        self.file.split('/').next().expect("a split has a first part").trim_end_matches(".rs")
    }

    fn name(&self) -> &str {
        self.file.rsplit('/').next().expect("a split has a last part")
    }

    fn is_in(&self, folder: &str) -> bool {
        self.file.split('/').rev().skip(1).any(|part| part == folder)
    }

    fn is_in_domain(&self) -> bool {
        DOMAINS.contains(&self.part())
    }

    /// Whether a domain is named in the code: its module, its variant, or its name as a text.
    fn says(&self, domain: &str) -> bool {
        self.words.contains(domain) || self.words.contains(&format!("{domain:?}"))
    }

    fn is_routes(&self) -> bool {
        self.name() == "routes.rs" || self.is_in("routes")
    }

    /// Keeps records, or decides what follows from them.
    fn is_below_routes(&self) -> bool {
        !self.is_routes()
            && (["append.rs", "event.rs", "pairs.rs", "store.rs", "tables.rs", "write.rs"]
                .contains(&self.name())
                || self.is_in("rules"))
    }
}

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src"))
}

/// All files of `src`, read once.
static SOURCES: LazyLock<Vec<Source>> = LazyLock::new(|| {
    let (mut folders, mut sources) = (vec![root().to_owned()], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("a folder of the source") {
            let path = entry.expect("a file of the source").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push(Source::read(&path));
            }
        }
    }
    assert!(sources.len() > 100, "only {} files were found", sources.len());
    sources
});

/// The module that a file is: `crate::db::steps` of `db/steps.rs`.
fn module(file: &str) -> String {
    let names = file.trim_end_matches(".rs").split('/').filter(|name| !["lib", "main", "mod"].contains(name));
    ["crate"].into_iter().chain(names).collect::<Vec<_>>().join("::")
}

/// Adds the names and literals among `tokens`. Comments are none, and documentation is no literal that is one word.
fn collect_words(tokens: TokenStream, words: &mut BTreeSet<String>) {
    for token in tokens {
        match token {
            TokenTree::Group(group) => collect_words(group.stream(), words),
            TokenTree::Ident(name) => drop(words.insert(name.to_string().to_lowercase())),
            TokenTree::Literal(literal) => drop(words.insert(literal.to_string().to_lowercase())),
            TokenTree::Punct(_) => {}
        }
    }
}

/// Adds the paths among `tokens`; each begins with `prefix`, as in the braces of `use crate::{…}`.
fn collect_paths(tokens: TokenStream, prefix: &str, paths: &mut BTreeSet<String>) {
    let (mut path, mut colons) = (String::new(), 0);
    for token in tokens {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == ':' => {
                colons += 1;
                continue;
            }
            TokenTree::Ident(name) if colons == 2 && !path.is_empty() => path = format!("{path}::{name}"),
            TokenTree::Ident(name) => {
                paths.insert(std::mem::replace(&mut path, format!("{prefix}{name}")));
            }
            TokenTree::Group(group) => {
                let is_tree = colons == 2 && group.delimiter() == Delimiter::Brace;
                let prefix = if is_tree { format!("{path}::") } else { String::new() };
                paths.insert(std::mem::take(&mut path));
                collect_paths(group.stream(), &prefix, paths);
            }
            _ => {
                paths.insert(std::mem::take(&mut path));
            }
        }
        colons = 0;
    }
    paths.insert(path);
}

/// A path as it is from the crate's root, if it begins with `self` or `super`.
fn absolute(module: &str, path: &str) -> String {
    let (mut from, mut rest) = (module, path);
    loop {
        let (first, after) = rest.split_once("::").unwrap_or((rest, ""));
        match first {
            "self" => {}
            "super" => from = from.rsplit_once("::").map_or("crate", |(parent, _)| parent),
            _ if rest == path => return path.to_owned(),
            _ => return format!("{from}::{rest}"),
        }
        rest = after;
    }
}

/// Whether a path is `module` or leads into it.
fn leads_into(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// Fails if one of the files that `which` chooses names one of `modules`, or what is in it.
#[track_caller]
fn forbid(which: impl Fn(&Source) -> bool, modules: &[&str], because: &str) {
    let chosen: Vec<_> = SOURCES.iter().filter(|source| which(source)).collect();
    assert!(!chosen.is_empty(), "no file is such any more: {because}");
    let broken: Vec<_> = chosen
        .iter()
        .flat_map(|source| source.paths.iter().map(|path| (&source.file, path)))
        .filter(|(_, path)| modules.iter().any(|module| leads_into(path, module)))
        .map(|(file, path)| format!("src/{file} names {path}"))
        .collect();
    assert!(broken.is_empty(), "{because}\n{}", broken.join("\n"));
}

#[test]
fn a_domain_does_not_know_the_writer() {
    forbid(
        |source| source.is_in_domain() || ["agents", "retrieval"].contains(&source.part()),
        &["crate::writer"],
        "The writer knows the domains through `domain`, so they cannot know it: a handler writes by `Writing`.",
    );
}

#[test]
fn domains_know_nothing_of_each_other() {
    for domain in DOMAINS {
        let others = DOMAINS.iter().filter(|other| **other != domain).map(|other| format!("crate::{other}"));
        let others: Vec<_> = others.collect();
        forbid(
            |source| source.part() == domain,
            &others.iter().map(String::as_str).collect::<Vec<_>>(),
            "What two domains need belongs below both; what is asked of all is a match in `domain`.",
        );
    }
}

#[test]
fn only_the_router_knows_the_gateway() {
    forbid(
        |source| {
            !["help", "intake", "lib", "router"].contains(&source.part())
                && source.file != "cli/watch/destination.rs"
        },
        &["crate::intake"],
        "What agents report is taken for several domains, and none of them needs the way in.",
    );
    forbid(
        |source| !["gateway", "lib", "router"].contains(&source.part()),
        &["crate::gateway"],
        "The gateway is a way in, like the routes of a domain: it uses domains and providers, and none of them needs it.",
    );
}

#[test]
fn tools_of_models_are_operations_of_the_api() {
    forbid(
        |source| source.part() == "mcp",
        &["crate::domain", "crate::writer", "crate::writing", "crate::generations", "crate::searches"],
        "A tool that did its work by itself would need a second place for every rule of the operation that it stands for.",
    );
}

#[test]
fn finding_and_reading_agents_know_no_domain() {
    let domains = DOMAINS.map(|domain| format!("crate::{domain}"));
    forbid(
        |source| ["agents", "retrieval"].contains(&source.part()),
        &domains.each_ref().map(String::as_str),
        "Agents and retrieval are used by domains, and are the same for each.",
    );
}

#[test]
fn what_is_kept_knows_nothing_of_http() {
    forbid(
        Source::is_below_routes,
        &["axum", "utoipa_axum"],
        "Records are written and read in the same way for every way in: only routes know HTTP.",
    );
}

#[test]
fn rules_do_not_read_the_database() {
    forbid(
        |source| source.is_in("rules"),
        &[&QUERIES[..], &["sqlx::PgConnection", "sqlx::PgExecutor", "sqlx::PgPool", "crate::db"]].concat(),
        "Rules follow from what they are given, so that they can be tested, and computed again, without a database.",
    );
}

#[test]
fn handlers_hold_no_sql() {
    forbid(
        Source::is_routes,
        &QUERIES,
        "Statements are in `store.rs`, where they can be read beside each other, and reached without HTTP.",
    );
}

#[test]
fn only_what_serves_knows_the_router() {
    forbid(
        |source| !["cli", "lib", "main", "router", "server"].contains(&source.part()),
        &["crate::router"],
        "The router knows every handler; a handler, or what is below, that knew it would need the whole service.",
    );
}

#[test]
fn what_all_stand_on_knows_none_of_them() {
    let above = ["domain", "exports", "gateway", "router", "server", "state", "writer", "writing"];
    let above: Vec<_> = DOMAINS.iter().chain(&above).map(|module| format!("crate::{module}")).collect();
    forbid(
        |source| ["db", "error", "http", "statistics", "types"].contains(&source.part()),
        &above.iter().map(String::as_str).collect::<Vec<_>>(),
        "This is what domains are made of; it is understood, and used, without them.",
    );
}

#[test]
fn only_the_policy_makes_what_may_be_written() {
    forbid(
        |source| !["privacy/kept.rs", "privacy/policy.rs"].contains(&source.file.as_str()),
        &["Kept::new", "crate::privacy::kept::Kept::new"],
        "Whoever has a `Kept` has passed the project's policy. Another way to make one is a way around it.",
    );
}

#[test]
fn the_domains_stand_in_few_lists() {
    let lists: Vec<_> = SOURCES
        .iter()
        .filter(|source| !source.is_in_domain() && DOMAINS.iter().all(|domain| source.says(domain)))
        .map(|source| source.file.as_str())
        .filter(|file| !LISTS_OF_DOMAINS.contains(file))
        .collect();
    assert!(
        lists.is_empty(),
        "What is asked of every domain is one match in `domain`, or the compiler will not find it for the next domain.\n{}",
        lists.join("\n")
    );
}

#[test]
fn no_more_files_need_each_other_than_before() {
    let modules: BTreeSet<_> = SOURCES.iter().map(|source| module(&source.file)).collect();
    let needed: BTreeMap<_, _> = SOURCES
        .iter()
        .map(|source| {
            let from = module(&source.file);
            // Declaring a module is not needing it.
            let paths = source.paths.iter().filter(|path| path.contains("::"));
            let paths = paths.flat_map(|path| [format!("{from}::{path}"), path.clone()]);
            let needed = paths.filter_map(|path| file_of(&path, &modules));
            let needed: BTreeSet<_> = needed.filter(|to| !leads_into(&from, to)).collect();
            (from, needed)
        })
        .collect();
    let reached: BTreeMap<_, _> = needed.keys().map(|from| (from, reached(from, &needed))).collect();
    for (from, to) in &reached {
        let circle: Vec<_> = to.iter().filter(|to| reached[to].contains(*from)).map(String::as_str).collect();
        assert!(
            circle.len() <= LARGEST_CIRCLE,
            "Files that need each other can only be understood, and changed, together.\n{}",
            circle.join("\n")
        );
    }
}

/// The module of a file that a path leads into.
fn file_of(path: &str, modules: &BTreeSet<String>) -> Option<String> {
    let ends = path.match_indices("::").map(|(end, _)| end).chain([path.len()]);
    let prefixes: Vec<_> = ends.map(|end| &path[..end]).collect();
    prefixes.into_iter().rev().find(|prefix| modules.contains(*prefix)).map(str::to_owned)
}

/// What is needed by a module, and by what it needs.
fn reached(from: &str, needed: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let (mut waiting, mut reached) = (vec![from], BTreeSet::new());
    while let Some(module) = waiting.pop() {
        for next in &needed[module] {
            if reached.insert(next.clone()) {
                waiting.push(next);
            }
        }
    }
    reached
}
