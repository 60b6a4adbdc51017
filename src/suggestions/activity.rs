//! What a user does before the submit: looks at a suggestion, or types.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::rules::views::{Direction, Look};
use crate::http::{Check, Checks};
use crate::privacy::hash_key::HashKey;
use crate::types::{Timestamp, derived_id};

/// Something that a user did, with its name in its record.
#[derive(Debug, Clone)]
pub struct Activity {
    /// The activity's name: the client's own id, else one made of what was done and when, else a new one.
    pub id: Uuid,
    /// Whether the name is the client's own id.
    pub id_given: bool,
    /// What was done.
    pub act: Act,
    /// When it was done, where the client said so.
    pub at: Option<Timestamp>,
}

impl Activity {
    /// Leaves out what was typed, and what the name was derived from.
    pub fn reduce(&mut self, key: &HashKey) {
        if let Act::Typed(text) = &mut self.act {
            *text = None;
            if !self.id_given {
                self.id = key.id(self.id);
            }
        }
    }
}

/// What a user can do before the submit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Act {
    /// They looked at a suggestion.
    Viewed(Look),
    /// They typed, and this stood in the input; none where no text is kept.
    Typed(Option<String>),
}

impl Act {
    /// The act as the column `kind`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Viewed(_) => "view",
            Self::Typed(_) => "input",
        }
    }

    /// The index that was viewed, as a column; none of a step to the next or previous one.
    #[must_use]
    pub fn index(&self) -> Option<i32> {
        match self {
            Self::Viewed(Look::At(index)) => i32::try_from(*index).ok(),
            Self::Viewed(Look::Go(_)) | Self::Typed(_) => None,
        }
    }

    /// The direction of a step, as a column: 1 to the next suggestion, -1 to the previous one.
    #[must_use]
    pub fn direction(&self) -> Option<i16> {
        match self {
            Self::Viewed(Look::Go(Direction::Next)) => Some(1),
            Self::Viewed(Look::Go(Direction::Prev)) => Some(-1),
            Self::Viewed(Look::At(_)) | Self::Typed(_) => None,
        }
    }

    /// What was typed, as a column.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Typed(text) => text.as_deref(),
            Self::Viewed(_) => None,
        }
    }
}

/// What the activities of one request are named by that have no id of their own.
#[derive(Debug, Clone, Copy, Default)]
pub struct Names {
    /// The id that the request's `Idempotency-Key` stands for.
    key: Option<Uuid>,
    /// The id of the line of an import, where not even its time names a move.
    line: Option<Uuid>,
}

impl Names {
    /// By an `Idempotency-Key`, if there is one.
    #[must_use]
    pub fn of_key(key: Option<Uuid>) -> Self {
        Self { key, line: None }
    }

    /// By the line of an import, if it is one.
    #[must_use]
    pub fn of_line(line: Option<Uuid>) -> Self {
        Self { key: None, line }
    }

    /// Names the activities in the record `suggestion`; of those with the same name, one is left.
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
    /// The views as activities in the record `suggestion`.
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
    /// The inputs as activities in the record `suggestion`.
    #[must_use]
    pub fn into_activities(self, suggestion: Uuid, names: Names) -> Vec<Activity> {
        let activities =
            self.inputs.into_iter().map(|NewPartialInput { id, text, at }| (id, Act::Typed(Some(text)), at));
        names.give(suggestion, activities)
    }
}

/// A look at a suggestion: at one by its `index`, or at the next or previous one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewView {
    /// Makes sending it again harmless; so do the same move and the same `at`.
    pub id: Option<Uuid>,
    /// The suggestion looked at.
    #[schema(minimum = 0)]
    pub index: Option<i32>,
    /// Or the way gone; past the end it begins anew.
    pub direction: Option<Direction>,
    /// When.
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

/// One look at a suggestion, or several as `views`.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewViews {
    /// Makes sending it again harmless; so do the same move and the same `at`.
    pub id: Option<Uuid>,
    /// The suggestion looked at.
    #[schema(minimum = 0)]
    pub index: Option<i32>,
    /// Or the way gone; past the end it begins anew.
    pub direction: Option<Direction>,
    /// When.
    pub at: Option<Timestamp>,
    /// Several, in this order where their times do not tell.
    pub views: Option<Vec<NewView>>,
}

impl Check for NewViews {
    fn check(&self, checks: &mut Checks) {
        let Self { id, index, direction, at, views } = self;
        let Some(views) = views else {
            return NewView { id: *id, index: *index, direction: *direction, at: *at }.check(checks);
        };
        checks.require(!views.is_empty(), "views", "must not be empty");
        for (place, view) in views.iter().enumerate() {
            checks.nested(&format!("views/{place}"), view);
        }
        for (field, given) in [
            ("id", id.is_some()),
            ("index", index.is_some()),
            ("direction", direction.is_some()),
            ("at", at.is_some()),
        ] {
            checks.require(!given, field, "is said of each of the views");
        }
    }
}

/// What stood in the input at some moment.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPartialInput {
    /// Makes sending it again harmless; so do the same text and the same `at`.
    pub id: Option<Uuid>,
    /// All of it.
    pub text: String,
    /// When.
    pub at: Option<Timestamp>,
}

/// What was typed on the way.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewPartialInputs {
    /// What stood there, in this order where the times do not tell.
    #[schema(min_items = 1)]
    pub inputs: Vec<NewPartialInput>,
}

impl Check for NewPartialInputs {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.inputs.is_empty(), "inputs", "must not be empty");
    }
}
