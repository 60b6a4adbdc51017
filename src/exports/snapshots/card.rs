//! The data set card of a snapshot: a description of the data set in Markdown, with the metadata that the Hugging
//! Face Hub reads.

use std::fmt::Write as _;

use serde_json::Value;

use super::{File, Snapshot, State};
use crate::exports::columns::Column;

/// Returns the card in Markdown.
#[must_use]
pub fn card(snapshot: &Snapshot) -> String {
    let Snapshot { dataset, format, rows, bytes, as_of, .. } = snapshot;
    let mut card = front_matter(snapshot);
    let parameters: Value = serde_json::from_str(snapshot.parameters.as_str()).unwrap_or_default();
    let description = snapshot.row_schema["description"].as_str().unwrap_or_default();
    let _ = write!(card, "\n# {dataset}\n\n{description} Exported by Gleaner in the format `{format}`.\n\n");
    if snapshot.state != State::Complete {
        card.push_str("**The snapshot is not complete.**\n\n");
    }
    if snapshot.erased_records > 0 {
        let were = if snapshot.erased_records == 1 { "was" } else { "were" };
        let _ = write!(
            card,
            "**{} of the records in this file {were} erased from the server after it was made. Replace copies of it by a newer \
             snapshot.**\n\n",
            snapshot.erased_records
        );
    }
    let _ = write!(
        card,
        "| | |\n|---|---|\n| file | `{}` |\n| rows | {rows} |\n| bytes | {bytes} |\n",
        snapshot.file_name()
    );
    if let Some(sha256) = &snapshot.sha256 {
        let _ = writeln!(card, "| SHA-256 | `{sha256}` |");
    }
    let _ = writeln!(card, "| state of the data | {as_of} |");
    if let Some(dropped) = snapshot.rows_dropped {
        let _ = writeln!(
            card,
            "| rows dropped because their texts are also in another part of the split | {dropped} |"
        );
    }
    let licence = snapshot.licence.as_deref().unwrap_or("not given");
    let _ = writeln!(card, "| licence | {} |", cell(licence));
    card.push_str("\n## Filters\n\n");
    match parameters.as_object().filter(|parameters| !parameters.is_empty()) {
        None => card.push_str("None: all rows that the data set has.\n"),
        Some(parameters) => {
            card.push_str("| parameter | value |\n|---|---|\n");
            for (name, value) in parameters {
                let value = value.as_str().map_or_else(|| value.to_string(), ToOwned::to_owned);
                let _ = writeln!(card, "| `{}` | {} |", cell(name), cell(&value));
            }
        }
    }
    card
}

/// Returns a text in a form that is valid in a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace(['\n', '\r'], " ").replace('<', "&lt;")
}

fn front_matter(snapshot: &Snapshot) -> String {
    let parameters: Value = serde_json::from_str(snapshot.parameters.as_str()).unwrap_or_default();
    let split = parameters["split"].as_str().unwrap_or("train");
    let licence = snapshot.licence.as_deref().unwrap_or("unknown");
    // JSON texts are also valid YAML texts.
    let text = |text: &str| Value::from(text).to_string();
    let mut front = format!("---\nlicense: {}\ndataset_info:\n", text(licence));
    if let (File::Parquet, Column::Struct(members)) = (snapshot.file, Column::of(&snapshot.row_schema)) {
        front.push_str("  features:\n");
        push_features(&mut front, &members, 2);
    }
    let Snapshot { rows, bytes, .. } = snapshot;
    let _ = write!(
        front,
        "  splits:\n  - name: {split}\n    num_bytes: {bytes}\n    num_examples: {rows}\n  download_size: {bytes}\n  \
         dataset_size: {bytes}\nconfigs:\n- config_name: default\n  data_files:\n  - split: {split}\n    path: {}\n---\n",
        text(&snapshot.file_name())
    );
    front
}

fn push_features(front: &mut String, members: &[(String, Column)], depth: usize) {
    let indent = " ".repeat(depth);
    for (name, column) in members {
        let _ = writeln!(front, "{indent}- name: {}", Value::from(name.as_str()));
        match column {
            Column::List(items) => match &**items {
                Column::Struct(members) => {
                    let _ = writeln!(front, "{indent}  list:");
                    push_features(front, members, depth + 2);
                }
                items => {
                    let _ = writeln!(front, "{indent}  list: {}", dtype(items));
                }
            },
            Column::Struct(members) => {
                let _ = writeln!(front, "{indent}  struct:");
                push_features(front, members, depth + 2);
            }
            column => {
                let _ = writeln!(front, "{indent}  dtype: {}", dtype(column));
            }
        }
    }
}

fn dtype(column: &Column) -> &'static str {
    match column {
        Column::Integer => "int64",
        Column::Number => "float64",
        Column::Boolean => "bool",
        Column::Text | Column::Json | Column::List(_) | Column::Struct(_) => "string",
    }
}
