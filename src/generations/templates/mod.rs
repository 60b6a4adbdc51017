//! The registry of prompt templates (seed 001, section 1.2), which keeps every version.

pub(super) mod store;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::{Check, Checks};
use crate::types::Timestamp;

/// One version of a prompt template.
#[derive(Debug, Clone, Serialize, ToSchema, sqlx::FromRow)]
#[schema(as = PromptTemplate)]
pub struct Template {
    /// The template's name, which attempts refer to as `prompt_template`.
    pub template_id: String,
    /// The version's number, from 1.
    pub version: i32,
    /// The text with its placeholders.
    pub template_text: String,
    /// The area that programs made with the template belong to, such as `cbu`.
    pub domain_name: String,
    /// What the template is for.
    pub description: Option<String>,
    /// When this version was created.
    pub created_at: Timestamp,
    /// When the template was deprecated. Null if it is still in use.
    pub deprecated_at: Option<Timestamp>,
}

/// A new version of a prompt template.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewPromptTemplate)]
pub(super) struct NewTemplate {
    /// The text with its placeholders.
    #[schema(min_length = 1)]
    template_text: String,
    /// The area that programs made with the template belong to, such as `cbu`.
    #[schema(min_length = 1, max_length = 50)]
    domain_name: String,
    /// What the template is for.
    description: Option<String>,
}

crate::texts! {
    NewTemplate: template_text, domain_name, description;
}

impl Check for NewTemplate {
    fn check(&self, checks: &mut Checks) {
        checks.require(!self.template_text.is_empty(), "template_text", "must not be empty");
        checks.text("domain_name", &self.domain_name, 50);
    }
}
