//! Conversations: the completed pairs of a topic, oldest first. Pairs without a topic belong to the conversation of
//! their session, and pairs without either are conversations of their own.

use std::borrow::Cow;

use clap::Args;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgRow;
use sqlx::types::Json;
use sqlx::{Postgres, QueryBuilder, Row as _};
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use crate::exports::chat::{Message, Prompt};
use crate::exports::format::{Example, Shape};
use crate::exports::params::Common;
use crate::exports::schema;
use crate::exports::split::{Contents, Sides, Split};
use crate::exports::text::Text;
use crate::exports::{Dataset, Described, Description, Lines, RowKey, Told};
use crate::http::Checks;
use crate::types::Timestamp;

/// The parameters of conversations.
#[derive(Debug, Clone, Default, Deserialize, IntoParams, Args)]
#[serde(deny_unknown_fields, default)]
#[into_params(parameter_in = Query)]
#[group(skip)]
pub struct Conversations {
    /// Only pairs of this topic.
    #[arg(long, value_name = "NAME")]
    topic_id: Option<String>,
    /// Only pairs of this model.
    #[arg(long, value_name = "NAME")]
    model: Option<String>,
    /// Only pairs with this number of stars.
    #[arg(long, value_name = "N")]
    #[param(minimum = 0, maximum = 3)]
    star: Option<i16>,
    /// Only pairs with this color flag.
    #[arg(long, value_name = "TEXT")]
    color_flag: Option<String>,
}

/// A pair of a conversation. Its texts are those of the row, which may be long, and are copied only if they have escapes.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct Said<'a> {
    id: Uuid,
    model: Option<String>,
    #[serde(borrow)]
    user_text: Cow<'a, str>,
    #[serde(borrow)]
    assistant_text: Cow<'a, str>,
    star: i16,
    color_flag: Option<String>,
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    topic_id: Option<&'a str>,
    session_id: Option<&'a str>,
    pairs: &'a [Said<'a>],
}

#[derive(Serialize, ToSchema)]
struct Metadata<'a> {
    topic_id: Option<&'a str>,
    session_id: Option<&'a str>,
    pairs: usize,
    created_at: Timestamp,
    completed_at: Timestamp,
}

impl Described for Conversations {
    const DESCRIPTION: Description = Description {
        name: "conversations",
        summary: "Chats of completed message pairs.",
        notes: "A row is the pairs of a topic, or of a session if they have no topic, or a single pair without either. The oldest \
            pair comes first. A conversation of more than 16 MiB of JSON is left out. If several calls answered the same \
            message, as when tools are used, the last one counts, and a message is left out if that one calls a tool, has no text, or \
            did not end by itself, as when it reached a limit, and so is a message with a picture or another file. \
            `split` divides the rows by the message that they begin with.",
        shapes: &[Shape::Answer, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: Split::ByQuestion,
        tables: &["pairs"],
        count: Some(
            "from (
                select distinct conversation from (
                    select p.*, row_number() over (
                        partition by conversation, coalesce(turn, id) order by created_at desc, id desc) as later
                    from pairs p where project = $1 and lifecycle_state = 'complete'
                ) p
                where later = 1 and tool_calls is null and not is_partial and not has_media
                    and has_text(user_text) and has_text(assistant_text)
            ) pairs",
        ),
        skipped: Some("from pairs where project = $1 and lifecycle_state = 'complete' and user_text is null"),
    };
}

impl Dataset for Conversations {
    fn check(&self, _: Shape, checks: &mut Checks) {
        checks.require(self.star.is_none_or(|star| (0..=3).contains(&star)), "star", "must be from 0 to 3");
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, _: Shape) {
        self.push_conversations(query, common);
        if common.is_exact() {
            // No index has the texts of whole conversations, so each page reads all conversations: once, because a condition
            // that is compared with true is no join, which would read them for each row.
            query.push(
                " and (last.id in (select id from (
                    select last.id, row_number() over (partition by c.texts order by last.completed_at, last.id) as nth",
            );
            self.push_conversations(query, common);
            query.push(") equal where nth = 1)) is true");
        }
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["last.completed_at", "last.id", "0"]
    }

    fn columns(&self, _: &Common, _: Shape) -> String {
        "c.topic_id, c.session_id, c.created_at, c.completed_at, c.pairs".to_owned()
    }

    fn told(&self, _: Shape) -> Told {
        Told::Chat
    }

    fn write(&self, row: &PgRow, _: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let Json(pairs): Json<Vec<Said<'_>>> = row.try_get("pairs")?;
        lines.has_records(pairs.iter().map(|pair| pair.id));
        let (topic_id, session_id) = (row.try_get("topic_id")?, row.try_get("session_id")?);
        let (created_at, completed_at) = (row.try_get("created_at")?, row.try_get("completed_at")?);
        let metadata = common.with_metadata().then_some(Metadata {
            topic_id,
            session_id,
            pairs: pairs.len(),
            created_at,
            completed_at,
        });
        let Some((last, before)) = pairs.split_last() else { return Ok(()) };
        let example = if lines.shape() == Shape::Raw {
            Example::Raw(Raw { topic_id, session_id, pairs: &pairs })
        } else {
            let before = before.iter().flat_map(|pair| {
                [Message::new("user", &*pair.user_text), Message::new("assistant", &*pair.assistant_text)]
            });
            let asked = Message::new("user", &*last.user_text);
            let prompt = Prompt { messages: before.chain([asked]).collect(), tools: vec![] };
            let prompt = prompt.with_system(common.system.as_deref());
            Example::Answer { prompt, answer: &last.assistant_text }
        };
        lines.write(example, metadata)
    }
}

impl Conversations {
    /// Adds `from` and `where`. `last` is the last complete pair of a conversation, whether it is exported or not, and `c` is the
    /// conversation.
    ///
    /// Whether a pair is the last is found by the next one, whatever it says, so that one look into the index is enough. Which
    /// call is the last of its turn is found before any other condition, so that no earlier one takes its place.
    ///
    /// If a person goes back and says something else after the same message, what they had said there before, and what followed it,
    /// is left out: nothing that was said later knows of it. What follows no message of a person begins anew, and takes nothing back,
    /// as after a summary or in another session.
    ///
    /// A conversation belongs to the session in which it begins, whatever a filter leaves of it.
    ///
    /// Texts are read last, of the pairs that are kept, because those of a conversation may take many megabytes.
    ///
    /// The length of a row is limited twice: as text, because Postgres cannot build any JSON, and as JSON, in which a character
    /// may take six bytes and a short pair some hundreds.
    fn push_conversations(&self, query: &mut QueryBuilder<Postgres>, common: &Common) {
        query.push(
            " from pairs last
            cross join lateral (
                select min(p.created_at) filter (where p.is_wanted) as created_at,
                    max(p.completed_at) filter (where p.is_wanted) as completed_at,
                    max(p.topic_id) filter (where p.is_wanted) as topic_id,
                    coalesce(max(p.first_session), max(p.session_id) filter (where p.is_wanted)) as session_id,
                    (array_agg(p.user_text order by p.created_at, p.id) filter (where p.is_wanted))[1] as question,
                    md5(string_agg(md5(p.user_text) || md5(p.assistant_text), ',' order by p.created_at, p.id)
                        filter (where p.is_wanted)) as texts,
                    json_agg(json_build_object('id', p.id, 'model', p.model, 'user_text', p.user_text,
                        'assistant_text', p.assistant_text, 'star', p.star, 'color_flag', p.color_flag,
                        'created_at', p.created_at) order by p.created_at, p.id) filter (where p.is_wanted) as pairs
                from (
                    select p.*, kept.is_wanted,
                        sum(octet_length(p.user_text) + octet_length(p.assistant_text) + 150)
                            filter (where kept.is_wanted) over () as bytes,
                        first_value(p.session_id) over (order by p.created_at, p.id) as first_session
                    from (
                        select k.id, k.is_wanted, k.created_at, max(k.replaced_at) over (order by k.created_at, k.id) as taken_back
                        from (
                            select k.*, case
                                when k.after is not null and k.content <> last_value(k.content) over (partition by k.after
                                        order by k.created_at, k.id rows between unbounded preceding and unbounded following)
                                    then max(k.created_at) over (partition by k.after)
                                end as replaced_at
                            from (
                                select p.id, p.created_at, said.content, before.id as after,
                                    row_number() over (partition by coalesce(p.turn, p.id) order by p.created_at desc, p.id desc)
                                        as later,
                                    (true",
        );
        for (column, value) in [("model", &self.model), ("color_flag", &self.color_flag)] {
            if let Some(value) = value {
                query.push(format_args!(" and p.{column} = ")).push_bind(value.clone());
            }
        }
        if let Some(star) = self.star {
            query.push(" and p.star = ").push_bind(star);
        }
        query.push(
            ") as is_wanted
                                from pairs p
                                left join sent_messages said on said.project = $1 and said.id = p.turn
                                left join sent_messages before on before.project = $1 and before.id = said.parent
                                    and before.turn is not null
                                where p.conversation = last.conversation",
        );
        Self::push_complete(query, common, "p");
        query.push(
            ") k
            where k.later = 1) k) kept
            join pairs p on p.project = $1 and p.id = kept.id
            where (kept.taken_back is null or kept.taken_back <= kept.created_at) and p.tool_calls is null and not p.is_partial and not p.has_media and has_text(p.user_text)
                and has_text(p.assistant_text)
            ) p where p.bytes <= 16777216) c
            where octet_length(c.pairs::text) <= 16777216",
        );
        if let Some(topic) = &self.topic_id {
            // The pairs of a conversation have the same topic.
            query.push(" and last.topic_id = ").push_bind(topic.clone());
        }
        Self::push_complete(query, common, "last");
        query.push(
            " and not exists (select from (
                select from pairs p where p.conversation = last.conversation
                    and (p.completed_at, p.id) > (last.completed_at, last.id)",
        );
        Self::push_complete(query, common, "p");
        query.push(" order by p.completed_at, p.id limit 1) next)");
        let contents = Contents::Question(Text { kind: "message", sql: "c.question" });
        common.push(
            query,
            "c.created_at",
            &Sides { session: "coalesce(c.session_id, last.conversation::text)", contents },
        );
    }

    /// Adds the condition that a pair of the project is complete.
    fn push_complete(query: &mut QueryBuilder<Postgres>, common: &Common, pair: &str) {
        query.push(format_args!(" and {pair}.project = $1 and {pair}.lifecycle_state = 'complete'"));
        if let Some(as_of) = common.as_of {
            // A conversation may continue. Later pairs are not part of this export.
            query.push(format_args!(" and {pair}.completed_at < ")).push_bind(as_of);
        }
    }
}
