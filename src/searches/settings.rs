//! The settings of searches. A project's own settings take precedence over the server's.

use chrono::TimeDelta;
use clap::Args;
use clap::builder::BoolishValueParser;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::agents::ToolPatterns;
use crate::http::{Check, Checks};

/// The settings of searches. A setting that is null has the server's value.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, Args)]
#[serde(deny_unknown_fields, default)]
#[command(next_help_heading = "Searches")]
pub struct SearchSettings {
    /// Whether associations are learned. Searches are tracked in any case. The default is true.
    #[arg(long = "learn-from-search", env = "GLEANER_LEARN_FROM_SEARCH", global = true, value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub learn: Option<bool>,
    /// The score below which a search is weak. The default is 0.65.
    #[arg(long = "learn-threshold", env = "GLEANER_LEARN_THRESHOLD", global = true, value_name = "SCORE",
        value_parser = number)]
    #[schema(minimum = -1e9, maximum = 1e9)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_threshold: Option<f64>,
    /// The longest silence of an agent, in seconds, after which its actions still count for a search. The default is
    /// 60.
    #[arg(long = "learn-timeout", env = "GLEANER_LEARN_TIMEOUT", global = true, value_name = "SECONDS",
        value_parser = number)]
    #[schema(minimum = 1, maximum = 86_400)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_timeout: Option<f64>,
    /// The number of files that must be read for a search to be resolved. The default is 1.
    #[arg(long = "learn-min-reads", env = "GLEANER_LEARN_MIN_READS", global = true, value_name = "N")]
    #[schema(minimum = 1, maximum = 1_000)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_fallback_reads: Option<u32>,
    /// The names of the tools that search an index, with `*` for any characters, and `!` before those that do not. The default
    /// is `mcp__ultrasync__jit_search` and `mcp__*search*`, without searches for web pages, issues and the like.
    #[arg(
        long = "learn-tools",
        env = "GLEANER_LEARN_TOOLS",
        global = true,
        value_name = "NAMES",
        value_delimiter = ','
    )]
    #[schema(max_items = 100)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tools: Option<Vec<String>>,
    /// Whether a built-in search (Grep, Glob, `rg`, `grep`, `find` in a shell) that finds nothing counts as a weak
    /// search. The default is true.
    #[arg(long = "learn-builtin", env = "GLEANER_LEARN_BUILTIN", global = true, value_name = "BOOL",
        value_parser = BoolishValueParser::new())]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub track_builtin: Option<bool>,
    /// The number of days after which evidence counts half. The default is 30.
    #[arg(long = "learn-half-life", env = "GLEANER_LEARN_HALF_LIFE", global = true, value_name = "DAYS",
        value_parser = number)]
    #[schema(minimum = 0.05, maximum = 36_500)]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub half_life_days: Option<f64>,
}

fn number(text: &str) -> Result<f64, &'static str> {
    text.parse().map_err(|_| "it must be a number")
}

impl Check for SearchSettings {
    fn check(&self, checks: &mut Checks) {
        let within = |value: Option<f64>, least: f64, most: f64| {
            value.is_none_or(|value| (least..=most).contains(&value))
        };
        checks.require(
            within(self.score_threshold, -1e9, 1e9),
            "score_threshold",
            "must be from -1000000000 to 1000000000",
        );
        checks.require(
            within(self.session_timeout, 1.0, 86_400.0),
            "session_timeout",
            "must be from 1 to 86400 seconds",
        );
        let fits = self.min_fallback_reads.is_none_or(|least| (1..=1_000).contains(&least));
        checks.require(fits, "min_fallback_reads", "must be from 1 to 1000");
        checks.require(
            within(self.half_life_days, 0.05, 36_500.0),
            "half_life_days",
            "must be from 0.05 to 36500",
        );
        let tools = self.tools.as_deref().unwrap_or_default();
        checks.require(tools.len() <= 100, "tools", "has more than 100 names");
        for (index, name) in tools.iter().enumerate() {
            checks.text(&format!("tools/{index}"), name, 200);
        }
    }
}

/// The settings in force for a project.
#[derive(Debug, Clone)]
pub struct Rules {
    /// Whether associations are learned.
    pub learn: bool,
    /// The score below which a search is weak.
    pub threshold: f64,
    /// The longest silence of an agent, after which its actions still count.
    pub window: TimeDelta,
    /// The number of files that must be read for a search to be resolved.
    pub min_reads: usize,
    /// The tools that search an index.
    pub tools: ToolPatterns,
    /// Whether built-in searches that find nothing count as weak searches.
    pub track_builtin: bool,
    /// The number of seconds after which evidence counts half.
    pub half_life: f64,
}

impl Rules {
    /// Combines a project's `own` settings with the `server`'s.
    #[must_use]
    pub fn new(own: &SearchSettings, server: &SearchSettings) -> Self {
        let window = own.session_timeout.or(server.session_timeout).unwrap_or(60.0);
        let min_reads = own.min_fallback_reads.or(server.min_fallback_reads).unwrap_or(1);
        let tools = own.tools.as_ref().or(server.tools.as_ref());
        Self {
            learn: own.learn.or(server.learn).unwrap_or(true),
            threshold: own.score_threshold.or(server.score_threshold).unwrap_or(0.65),
            window: micros(window),
            min_reads: usize::try_from(min_reads).unwrap_or(usize::MAX),
            tools: tools.map_or_else(ToolPatterns::default, ToolPatterns::new),
            track_builtin: own.track_builtin.or(server.track_builtin).unwrap_or(true),
            half_life: own.half_life_days.or(server.half_life_days).unwrap_or(30.0) * 86_400.0,
        }
    }

    /// Returns whether a search with this best score is weak. A search without a known score is not.
    #[must_use]
    pub fn is_weak(&self, best_score: Option<f64>) -> bool {
        best_score.is_some_and(|score| score < self.threshold)
    }
}

#[expect(clippy::cast_possible_truncation, reason = "a float beyond i64 saturates")]
fn micros(seconds: f64) -> TimeDelta {
    TimeDelta::microseconds((seconds * 1e6) as i64)
}
