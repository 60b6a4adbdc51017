//! The table of results.

/// A line of the table.
#[derive(Default)]
pub(crate) struct Line {
    what: String,
    ours: String,
    before: String,
    baseline: String,
    ratio: Option<f64>,
    goal: String,
    met: Option<bool>,
}

impl Line {
    /// Makes a line with the result of the measured server, and that of the earlier build if there is one.
    pub(crate) fn of<T>(what: impl Into<String>, results: &[T], text: impl Fn(&T) -> String) -> Self {
        let mut texts = results.iter().map(text);
        let (ours, before) = (texts.next().unwrap_or_default(), texts.next().unwrap_or_default());
        Self { what: what.into(), ours, before, ..Self::default() }
    }

    /// Makes a line with the result of the measured server alone.
    pub(crate) fn new(what: impl Into<String>, ours: String) -> Self {
        Self { what: what.into(), ours, ..Self::default() }
    }

    pub(crate) fn baseline(self, baseline: String) -> Self {
        Self { baseline, ..self }
    }

    /// Adds a minimum ratio to the baseline as the goal.
    pub(crate) fn at_least(self, ratio: f64, goal: f64) -> Self {
        Self { ratio: Some(ratio), goal: format!("≥ {goal}"), met: Some(ratio >= goal), ..self }
    }

    /// Adds a goal of another kind.
    pub(crate) fn goal(self, goal: &str, met: bool) -> Self {
        Self { goal: goal.to_owned(), met: Some(met), ..self }
    }
}

/// Prints the lines as Markdown.
pub(crate) fn print(lines: &[Line]) {
    let has_before = lines.iter().any(|line| !line.before.is_empty());
    let row = |what: &str, ours: &str, before: &str, rest: [&str; 4]| {
        let before = if has_before { format!(" {before} |") } else { String::new() };
        println!("| {what} | {ours} |{before} {} |", rest.join(" | "));
    };
    row("what", "gleaner", "before", ["baseline", "ratio", "goal", "met"]);
    row("---", "---", "---", ["---"; 4]);
    for Line { what, ours, before, baseline, ratio, goal, met } in lines {
        let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        let met = met.map_or("", |met| if met { "yes" } else { "no" });
        row(what, ours, before, [baseline, &ratio, goal, met]);
    }
}
