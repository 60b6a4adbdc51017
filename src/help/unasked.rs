//! Help without a request: what an agent is told with a prompt, or after a search without results. There is help only
//! if it is probably right. In a share of the sessions (the setting `holdout`), help is found and recorded but not
//! shown, so that its use can be measured by comparison.

use std::sync::Arc;

use serde::{Deserialize, Deserializer, de};
use utoipa::IntoParams;
use uuid::Uuid;

use super::text::{self, Part};
use crate::domain::Domain;
use crate::error::Result;
use crate::generations::similar::{self, Example};
use crate::http::Check;
use crate::http::memory::Memory;
use crate::memories::event::{Event, Suggest};
use crate::memories::help::{self, Help, Item, ItemKind};
use crate::memories::rules::signs::{signs, written};
use crate::memories::suggest::{self, Moment};
use crate::memories::suggestion::NewSuggest;
use crate::privacy::capture::Capture;
use crate::projects::Tenant;
use crate::searches::hints::{self, Asked, Asker, Hint};
use crate::searches::rules::paths;
use crate::searches::rules::repository::{file_id, repository};
use crate::sharing::Kind;
use crate::state::App;
use crate::types::derived_id;

/// The maximum number of memories at a time.
const MOST_MEMORIES: usize = 3;
/// The maximum number of files at a time.
const MOST_FILES: usize = 2;
/// The minimum similarity of a solved example.
const LEAST_SIMILARITY: f64 = 0.6;
/// The number of characters of a prompt that are used to find files and examples.
const LONGEST_TEXT: usize = 1_000;

/// The help that an agent wants in the response to a hook.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
pub struct Wanted {
    /// The kinds of help that the response may contain although the agent has not asked a question, separated by
    /// commas: `memories`, `files` and `examples`. The key then needs the scope `read` besides `write`. Without
    /// `read`, the response contains no help.
    #[param(value_type = Option<String>, pattern = "^ *(memories|files|examples)? *(, *(memories|files|examples)? *)*$",
        example = "memories,files,examples")]
    suggest: Kinds,
}

impl Check for Wanted {}

/// The kinds of help that are wanted.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Kinds {
    memories: bool,
    files: bool,
    examples: bool,
}

impl<'de> Deserialize<'de> for Kinds {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut kinds = Self::default();
        for name in String::deserialize(deserializer)?.split(',') {
            match name.trim() {
                "memories" => kinds.memories = true,
                "files" => kinds.files = true,
                "examples" => kinds.examples = true,
                "" => {}
                other => {
                    let said =
                        format!("unknown variant `{other}`, expected one of `memories`, `files`, `examples`");
                    return Err(de::Error::custom(said));
                }
            }
        }
        Ok(kinds)
    }
}

impl Wanted {
    /// Returns whether any help is wanted, and the project stores what help is made of.
    #[must_use]
    pub fn is_wanted(&self, tenant: &Tenant) -> bool {
        self.suggest != Kinds::default()
            && tenant.memories.proactive_suggestions_enabled.unwrap_or(true)
            && tenant.policy.capture(Domain::Memories) == Capture::Full
    }
}

/// The situation of an agent, for which help is looked for.
#[derive(Debug)]
pub struct At<'a> {
    /// The name of the agent session.
    pub session: &'a str,
    /// The folder in which the agent works.
    pub root: Option<&'a str>,
    /// The prompt, or the query of the search.
    pub text: &'a str,
    /// Whether the text is the query of a search without results, and not a prompt.
    pub is_search: bool,
}

/// Help that was found.
#[derive(Debug)]
pub struct Found {
    /// The text for the agent. There is none in a session from which help is withheld.
    pub text: Option<String>,
    help: Help,
    suggest: Option<Suggest>,
}

/// Finds help for a situation. Returns none if nothing helps.
pub async fn find(
    app: &App,
    tenant: &Arc<Tenant>,
    wanted: &Wanted,
    at: &At<'_>,
    memory: &Memory,
) -> Result<Option<Found>> {
    let look = Box::pin(look(app, tenant, wanted, at, memory));
    app.among_readers(&tenant.name, memory, look).await
}

async fn look(
    app: &App,
    tenant: &Arc<Tenant>,
    wanted: &Wanted,
    at: &At<'_>,
    memory: &Memory,
) -> Result<Option<Found>> {
    let kinds = wanted.suggest;
    let turn = app.work.turn(&tenant.name, Kind::Read).await;
    // The place is for one connection, so these do not look at the same time.
    let remembered = memories(app, tenant, at, kinds.memories, memory).await?;
    let files = files(app, tenant, at, kinds.files).await?;
    let examples = examples(app, tenant, at, kinds.examples && !at.is_search, memory).await?;
    drop(turn);
    let Remembered { suggest, told: memories, queries } = remembered;
    let parts = [
        Part { heading: "Memories:", pieces: memories.iter().map(told_memory).collect() },
        Part { heading: "Files that are likely needed:", pieces: files.iter().map(told_file).collect() },
        Part { heading: "A solved example:", pieces: examples.iter().map(told_example).collect() },
    ];
    let (text, taken) = text::write(&parts);
    let key = tenant.policy.key();
    // A name that the agent knows, from this prompt or one before it, or was not shown, is no sign.
    let said = queries.iter().map(String::as_str).chain([at.text]);
    let known = said.flat_map(written).collect();
    let words = |text: &str| -> Vec<_> {
        signs(text::shown(text), &known).into_iter().map(|sign| help::word(key, sign)).collect()
    };
    let mut items = Vec::new();
    for Told { id, content, .. } in &memories[..taken[0]] {
        items.push(Item { kind: ItemKind::Memory, subject: *id, signs: words(content) });
    }
    for file in &files[..taken[1]] {
        let path = paths::normalise(&file.path, file.root.as_deref().or(at.root), None);
        let root = file.root.as_deref().unwrap_or_default();
        let subject = file.id.unwrap_or_else(|| file_id(&repository(root), &file.path));
        items.push(Item { kind: ItemKind::File, subject, signs: vec![help::file(key, &path)] });
    }
    for example in &examples[..taken[2]] {
        let told = told_example(example);
        let program = text::shown(&told).get(told.len() - example.valid_dsl.len()..);
        let signs = words(program.unwrap_or_default());
        items.push(Item { kind: ItemKind::Example, subject: example.generation_id, signs });
    }
    if items.is_empty() {
        return Ok(None);
    }
    let held_out = is_held_out(tenant, at.session);
    let shown = taken[0];
    let suggest = suggest.filter(|_| shown > 0 && !held_out).map(|mut suggest| {
        suggest.shown.truncate(shown);
        suggest
    });
    let help = Help { session: at.session.to_owned(), held_out, items };
    Ok(Some(Found { text: (!held_out).then_some(text), help, suggest }))
}

/// Records the help that was found, as shown or as withheld.
pub async fn note(app: &App, tenant: &Arc<Tenant>, found: Found, memory: &Memory) -> Result<()> {
    if let Some(suggest) = found.suggest {
        app.writer.write(tenant, Event::suggest(suggest), memory).await?;
    }
    app.writer.write(tenant, Event::help(found.help), memory).await.map(|_| ())
}

/// The memories that an agent may be told of.
#[derive(Default)]
struct Remembered {
    /// The event that records them.
    suggest: Option<Suggest>,
    told: Vec<Told>,
    /// The last queries of the conversation.
    queries: Vec<String>,
}

/// A memory as an agent is told of it.
struct Told {
    id: Uuid,
    content: String,
    reason: String,
}

async fn memories(
    app: &App,
    tenant: &Arc<Tenant>,
    at: &At<'_>,
    wanted: bool,
    memory: &Memory,
) -> Result<Remembered> {
    if !wanted {
        return Ok(Remembered::default());
    }
    let most = tenant.memories.suggestion_max_results.unwrap_or(MOST_MEMORIES).min(MOST_MEMORIES);
    let rules = NewSuggest { max_suggestions: Some(most), ..NewSuggest::default() }.over(&tenant.memories);
    let moment = Moment { search: Some(at.text).filter(|_| at.is_search), ..Moment::now() };
    let (mut suggest, queries) = suggest::propose(app, tenant, at.session, &rules, &moment).await?;
    let mut contents = suggest::contents(&app.db, &tenant.name, &suggest, memory).await?;
    suggest.shown.retain(|shown| contents.contains_key(&shown.memory));
    let told = suggest.shown.iter().filter_map(|shown| {
        let content = contents.remove(&shown.memory)?;
        Some(Told { id: shown.memory, content, reason: shown.reason.clone() })
    });
    let told = told.collect();
    if at.is_search {
        // The reasons contain words of the search, which is kept and erased elsewhere.
        suggest.shown.iter_mut().for_each(|shown| shown.reason.clear());
    }
    Ok(Remembered { suggest: Some(suggest), told, queries })
}

async fn files(app: &App, tenant: &Arc<Tenant>, at: &At<'_>, wanted: bool) -> Result<Vec<Hint>> {
    if !wanted || at.text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let text: String = at.text.chars().take(LONGEST_TEXT).collect();
    let asked = Asked {
        query: &text,
        root: at.root,
        asker: Asker::Agent { session: at.session, agent: None },
        limit: MOST_FILES,
        ..Asked::default()
    };
    let _turn = app.similar.take(&tenant.name, 1).await;
    hints::find(&app.db, &app.samples, &tenant.name, &tenant.rules, &asked).await
}

async fn examples(
    app: &App,
    tenant: &Arc<Tenant>,
    at: &At<'_>,
    wanted: bool,
    memory: &Memory,
) -> Result<Vec<Example>> {
    if !wanted || at.text.trim().is_empty() {
        return Ok(Vec::new());
    }
    let intent: String = at.text.chars().take(LONGEST_TEXT).collect();
    let wanted = similar::Wanted::of(intent, 1, LEAST_SIMILARITY);
    let _turn = app.similar.take(&tenant.name, 1).await;
    similar::find(&app.db, &app.samples, &tenant.name, &wanted, memory).await
}

fn told_memory(Told { id, content, reason }: &Told) -> String {
    format!("{content} ({reason}; memory {id})")
}

fn told_file(file: &Hint) -> String {
    match &file.query {
        Some(query) => format!("{} (found for \"{query}\")", file.path),
        None => file.path.clone(),
    }
}

fn told_example(example: &Example) -> String {
    format!("\"{}\": {}", example.user_intent, example.valid_dsl)
}

/// Returns whether help is withheld from a session. A hash of the session's name decides, so that the answer is the
/// same throughout the session.
fn is_held_out(tenant: &Tenant, session: &str) -> bool {
    let (high, _) = derived_id(&[b"holdout", tenant.name.as_bytes(), session.as_bytes()]).as_u64_pair();
    // The version of the UUID is not in these bits.
    let share = (high >> 32) as f64 / f64::from(u32::MAX);
    share < tenant.memories.holdout.unwrap_or(0.0)
}
