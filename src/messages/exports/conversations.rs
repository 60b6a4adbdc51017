//! Conversations: the completed pairs of a topic, oldest first. Pairs without a topic belong to the conversation of
//! their session, and pairs without either are conversations of their own.

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
use crate::exports::split::Sides;
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

/// A pair of a conversation.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
struct Said {
    id: Uuid,
    model: Option<String>,
    user_text: String,
    assistant_text: String,
    star: i16,
    color_flag: Option<String>,
    created_at: Timestamp,
}

#[derive(Serialize, ToSchema)]
struct Raw<'a> {
    topic_id: Option<&'a str>,
    session_id: Option<&'a str>,
    pairs: &'a [Said],
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
            pair comes first. If several calls answered the same message, as when tools are used, the last one counts. \
            `split` divides the rows by conversation.",
        shapes: &[Shape::Answer, Shape::Raw],
        raw: Some(schema::of::<Raw<'_>>),
        metadata: Some(schema::of::<Metadata<'_>>),
        split: None,
        table: "pairs",
        count: None,
        skipped: Some("from pairs where project = $1 and lifecycle_state = 'complete' and user_text is null"),
    };
}

impl Dataset for Conversations {
    fn check(&self, _: Shape, checks: &mut Checks) {
        checks.require(self.star.is_none_or(|star| (0..=3).contains(&star)), "star", "must be from 0 to 3");
    }

    fn push_from(&self, query: &mut QueryBuilder<Postgres>, common: &Common, _: Shape) {
        query.push(
            " from (
                select c.*, row_number() over (partition by c.texts order by c.completed_at, c.id) as nth
                from (
                    select md5(p.conversation)::uuid as id, p.conversation, max(p.completed_at) as completed_at,
                        min(p.created_at) as created_at, max(p.topic_id) as topic_id, max(p.session_id) as session_id,
                        md5(string_agg(length(p.user_text) || ':' || p.user_text || p.assistant_text, ',' order by p.created_at, p.id)) as texts,
                        json_agg(json_build_object('id', p.id, 'model', p.model, 'user_text', p.user_text,
                            'assistant_text', p.assistant_text, 'star', p.star, 'color_flag', p.color_flag,
                            'created_at', p.created_at) order by p.created_at, p.id) as pairs
                    from (
                        select pairs.*, coalesce('topic ' || topic_id, 'session ' || session_id, 'pair ' || id) as conversation,
                            row_number() over (partition by coalesce(turn, id) order by created_at desc, id desc) as later
                        from pairs
                        where project = $1 and lifecycle_state = 'complete'
                            and user_text ~ '\\S' and assistant_text ~ '\\S'",
        );
        for (column, value) in
            [("topic_id", &self.topic_id), ("model", &self.model), ("color_flag", &self.color_flag)]
        {
            if let Some(value) = value {
                query.push(format_args!(" and {column} = ")).push_bind(value.clone());
            }
        }
        if let Some(star) = self.star {
            query.push(" and star = ").push_bind(star);
        }
        if let Some(as_of) = common.as_of {
            // A conversation may continue. Later pairs are not part of this export.
            query.push(" and completed_at < ").push_bind(as_of);
        }
        query.push(") p where p.later = 1 group by p.conversation) c where true");
        common.push(query, "c.created_at", &Sides { session: "c.conversation", texts: None });
        query.push(") c where true");
        if common.is_exact() {
            query.push(" and c.nth = 1");
        }
    }

    fn sort_key(&self) -> [&'static str; 3] {
        ["c.completed_at", "c.id", "0"]
    }

    fn columns(&self, _: &Common, _: Shape) -> String {
        "c.topic_id, c.session_id, c.created_at, c.pairs".to_owned()
    }

    fn told(&self, _: Shape) -> Told {
        Told::Chat
    }

    fn write(&self, row: &PgRow, key: RowKey, common: &Common, lines: &mut Lines<'_>) -> anyhow::Result<()> {
        let Json(pairs): Json<Vec<Said>> = row.try_get("pairs")?;
        lines.has_records(pairs.iter().map(|pair| pair.id));
        let (topic_id, session_id) = (row.try_get("topic_id")?, row.try_get("session_id")?);
        let created_at = row.try_get("created_at")?;
        let metadata = common.with_metadata().then_some(Metadata {
            topic_id,
            session_id,
            pairs: pairs.len(),
            created_at,
            completed_at: key.completed_at,
        });
        let Some((last, before)) = pairs.split_last() else { return Ok(()) };
        let example = if lines.shape() == Shape::Raw {
            Example::Raw(Raw { topic_id, session_id, pairs: &pairs })
        } else {
            let before = before.iter().flat_map(|pair| {
                [
                    Message::new("user", pair.user_text.as_str()),
                    Message::new("assistant", pair.assistant_text.as_str()),
                ]
            });
            let asked = Message::new("user", last.user_text.as_str());
            let prompt = Prompt { messages: before.chain([asked]).collect(), tools: vec![] };
            let prompt = prompt.with_system(common.system.as_deref());
            Example::Answer { prompt, answer: &last.assistant_text }
        };
        lines.write(example, metadata)
    }
}
