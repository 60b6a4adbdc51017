//! What a user does before they submit something: looks at a suggestion, or types.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::rules::views::{Direction, Look};
use crate::http::{Check, Checks};
use crate::privacy::redact::{Redaction, Texts as _};
use crate::types::{Timestamp, derived_id};

/// The maximum number of views of a record. A list shows those of many records.
pub const MOST_VIEWS: usize = 1_000;

/// The maximum number of inputs of a record. The texts of all of them are removed in one statement when it is discarded.
pub const MOST_INPUTS: usize = 10_000;

/// Something that a user did before they submitted something.
#[derive(Debug, Clone)]
pub struct Activity {
    /// The activity's id in its record: the client's own, or one derived from what was done and when, or a
    /// new one.
    pub id: Uuid,
    /// Whether the client chose the id.
    pub id_given: bool,
    /// What was done.
    pub act: Act,
    /// When it was done, if the client said so.
    pub at: Option<Timestamp>,
}

impl Activity {
    /// Replaces in the text typed what the project's rules say, and hides what the id was derived from.
    pub fn redact(&mut self, redaction: &mut Redaction<'_>) {
        if let Act::Typed(text) = &mut self.act {
            text.texts(redaction);
            if !self.id_given {
                redaction.hide_id(&mut self.id);
            }
        }
    }

    /// Removes the text typed.
    pub fn reduce(&mut self) {
        if let Act::Typed(text) = &mut self.act {
            *text = None;
        }
    }
}

/// What a user can do before they submit something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// The user looked at a suggestion.
    Viewed(Look),
    /// The user typed, and the input now contains this text. None if the project stores no text.
    Typed(Option<String>),
}

impl Act {
    /// Returns the value of the column `kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Viewed(_) => "view",
            Self::Typed(_) => "input",
        }
    }

    /// Returns the index of the suggestion that was viewed, or none for a step to the next or previous one.
    #[must_use]
    pub fn index(&self) -> Option<i32> {
        match self {
            Self::Viewed(Look::At(index)) => i32::try_from(*index).ok(),
            Self::Viewed(Look::Go(_)) | Self::Typed(_) => None,
        }
    }

    /// Returns the direction of a step: 1 to the next suggestion, -1 to the previous one.
    #[must_use]
    pub fn direction(&self) -> Option<i16> {
        match self {
            Self::Viewed(Look::Go(Direction::Next)) => Some(1),
            Self::Viewed(Look::Go(Direction::Prev)) => Some(-1),
            Self::Viewed(Look::At(_)) | Self::Typed(_) => None,
        }
    }

    /// Returns the text that was typed.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Typed(text) => text.as_deref(),
            Self::Viewed(_) => None,
        }
    }
}

/// The sources of ids for the activities of one request that have no id of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names {
    /// The id that the request's `Idempotency-Key` stands for.
    key: Option<Uuid>,
    /// The id of the line of an import. It is used for an activity without a time.
    line: Option<Uuid>,
}

impl Names {
    /// Derives ids from an `Idempotency-Key`, if there is one.
    #[must_use]
    pub fn of_key(key: Option<Uuid>) -> Self {
        Self { key, line: None }
    }

    /// Derives ids from the line of an import, if it is one.
    #[must_use]
    pub fn of_line(line: Option<Uuid>) -> Self {
        Self { key: None, line }
    }

    /// Gives ids to the activities of the record `suggestion`. Of several with the same id, the first stays.
    fn give(
        self,
        suggestion: Uuid,
        activities: impl Iterator<Item = (Option<Uuid>, Act, Option<Timestamp>)>,
    ) -> Vec<Activity> {
        let mut seen = HashSet::new();
        let named = activities.zip(0_u64..).map(|((id, act, at), position)| {
            let of = |whole: Option<Uuid>| {
                Some(derived_id(&[b"move", whole?.as_bytes(), &position.to_be_bytes()]))
            };
            let of_time = || {
                let act = format!("{:?}", (act.index(), act.direction(), act.text()));
                Some(derived_id(&[
                    b"move",
                    suggestion.as_bytes(),
                    act.as_bytes(),
                    &at?.micros().to_be_bytes(),
                ]))
            };
            let id_given = id.is_some();
            let id = id.or_else(|| of(self.key)).or_else(of_time).or_else(|| of(self.line));
            Activity { id: id.unwrap_or_else(Uuid::now_v7), id_given, act, at }
        });
        named.filter(|named| seen.insert(named.id)).collect()
    }
}

impl NewViews {
    /// Returns the views as activities of the record `suggestion`.
    #[must_use]
    pub fn into_activities(self, suggestion: Uuid, names: Names) -> Vec<Activity> {
        let Self { id, index, direction, at, views } = self;
        let views = views.unwrap_or_else(|| vec![NewView { id, index, direction, at }]);
        let activities = views.into_iter().filter_map(|NewView { id, index, direction, at }| {
            let index = index.and_then(|index| usize::try_from(index).ok());
            let look = index.map(Look::At).or(direction.map(Look::Go))?;
            Some((id, Act::Viewed(look), at))
        });
        names.give(suggestion, activities)
    }
}

impl NewPartialInputs {
    /// Returns the inputs as activities of the record `suggestion`.
    #[must_use]
    pub fn into_activities(self, suggestion: Uuid, names: Names) -> Vec<Activity> {
        let activities =
            self.inputs.into_iter().map(|NewPartialInput { id, text, at }| (id, Act::Typed(Some(text)), at));
        names.give(suggestion, activities)
    }
}

/// A view of a suggestion, given by its `index` or as a step to the next or previous suggestion.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewView {
    /// The view's id, which makes it safe to send the view again. Without an id, the same move with the same `at`
    /// counts once.
    pub id: Option<Uuid>,
    /// The index of the suggestion, from 0.
    #[schema(minimum = 0)]
    pub index: Option<i32>,
    /// The direction of the step. The step after the last suggestion leads to the first.
    pub direction: Option<Direction>,
    /// When the user viewed the suggestion.
    pub at: Option<Timestamp>,
}

impl Check for NewView {
    fn check(&self, checks: &mut Checks) {
        checks.count("index", self.index);
        if self.index.is_some() == self.direction.is_some() {
            checks.fail("index", "either index or direction must be given");
        }
    }
}

/// One view of a suggestion, or several in `views`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewViews {
    /// The view's id, which makes it safe to send the view again. Without an id, the same move with the same `at`
    /// counts once.
    pub id: Option<Uuid>,
    /// The index of the suggestion, from 0.
    #[schema(minimum = 0)]
    pub index: Option<i32>,
    /// The direction of the step. The step after the last suggestion leads to the first.
    pub direction: Option<Direction>,
    /// When the user viewed the suggestion.
    pub at: Option<Timestamp>,
    /// Several views. They are ordered by their times, or as listed if they have none.
    #[schema(max_items = 1000)]
    pub views: Option<Vec<NewView>>,
}

impl Check for NewViews {
    fn check(&self, checks: &mut Checks) {
        let Self { id, index, direction, at, views } = self;
        let Some(views) = views else {
            return NewView { id: *id, index: *index, direction: *direction, at: *at }.check(checks);
        };
        checks.require(!views.is_empty(), "views", "must not be empty");
        checks.require(views.len() <= MOST_VIEWS, "views", "has more than 1000 views");
        for (place, view) in views.iter().enumerate() {
            checks.nested(&format!("views/{place}"), view);
        }
        for (field, given) in [
            ("id", id.is_some()),
            ("index", index.is_some()),
            ("direction", direction.is_some()),
            ("at", at.is_some()),
        ] {
            checks.require(!given, field, "must be given for each of the views instead");
        }
    }
}

/// The content of the input field at some point in time.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPartialInput {
    /// The input's id, which makes it safe to send the input again. Without an id, the same text with the same `at`
    /// counts once.
    pub id: Option<Uuid>,
    /// The whole content of the input field.
    pub text: String,
    /// When the input field contained this text.
    pub at: Option<Timestamp>,
}

/// Texts that the input field contained before the user submitted.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPartialInputs {
    /// The inputs. They are ordered by their times, or as listed if they have none.
    #[schema(min_items = 1, max_items = 10000)]
    pub inputs: Vec<NewPartialInput>,
}

impl Check for NewPartialInputs {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.inputs.is_empty(), "inputs", "must not be empty");
        checks.require(self.inputs.len() <= MOST_INPUTS, "inputs", "has more than 10000 inputs");
    }
}
