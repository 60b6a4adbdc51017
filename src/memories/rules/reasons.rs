//! Writes the reason for a suggestion as a sentence for users.

use super::context::Context;
use super::ranking::{Statistics, in_common};
use super::terms::Indexed;

/// The number of words that a reason names.
const MOST_WORDS: usize = 3;

/// Returns the reason for suggesting a memory of this age in days.
#[must_use]
pub fn reason(context: &Context, indexed: &Indexed, statistics: &Statistics, days: f64) -> String {
    let (words, of_last) = in_common(context, indexed, statistics, MOST_WORDS);
    let words: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    let age = age(days);
    let Some((last, before)) = words.split_last() else {
        return format!("It is worded like the last question, and was stored {age}.");
    };
    let words = if before.is_empty() { last.clone() } else { format!("{} and {last}", before.join(", ")) };
    let about = if of_last { "the last question is about" } else { "an earlier question was about" };
    format!("It mentions {words}, which {about}, and was stored {age}.")
}

/// Returns an age in words.
fn age(days: f64) -> String {
    let count = |unit: f64, one: &str, several: &str| {
        let count = (days / unit).floor();
        if count < 2.0 { one.to_owned() } else { format!("{count:.0} {several} ago") }
    };
    match days {
        days if days < 1.0 => "today".to_owned(),
        days if days < 60.0 => count(1.0, "yesterday", "days"),
        days if days < 730.0 => count(30.44, "a month ago", "months"),
        _ => count(365.25, "a year ago", "years"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_names_what_both_are_about_and_when_it_was_stored() {
        let context = Context::of("p", ["Why does AuthMiddleware refuse a JWT?", "invoices"]);
        let of = |text: &str, days: f64| {
            let indexed = Indexed::of("p", [text]);
            reason(&context, &indexed, &Statistics::default(), days)
        };
        assert_eq!(
            of("The JWT of AuthMiddleware", 3.5),
            "It mentions `AuthMiddleware` and `JWT`, which the last question is about, and was stored 3 days ago."
        );
        assert_eq!(
            of("Invoices", 0.1),
            "It mentions `invoices`, which an earlier question was about, and was stored today."
        );
        assert_eq!(of("x", 1.5), "It is worded like the last question, and was stored yesterday.");
    }

    #[test]
    fn ages_are_told_in_the_unit_that_people_use() {
        let ages = [0.0, 1.0, 2.0, 59.0, 61.0, 100.0, 729.0, 731.0, 1_100.0].map(age);
        let expected = [
            "today",
            "yesterday",
            "2 days ago",
            "59 days ago",
            "2 months ago",
            "3 months ago",
            "23 months ago",
            "2 years ago",
            "3 years ago",
        ];
        assert_eq!(ages, expected);
    }
}
