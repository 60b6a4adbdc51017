//! Hooks in an agent's settings: `{"hooks": {"<event>": [{"matcher": …, "hooks": [<hook>, …]}, …]}}`. The file is the
//! user's; what is not ours stays byte for byte where and as it is, with its comments.

use anyhow::{Context as _, Result};
use jsonc_parser::ast::{Array, Object, ObjectProp};
use jsonc_parser::common::Ranged as _;
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{PrettyFormatter, Serializer};

use crate::cli::edit::{self, Change, Edit, List, Removal};

/// A hook as it is written in the settings.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Hook {
    /// How the agent reports: `http` or `command`.
    #[serde(rename = "type")]
    pub(super) kind: &'static str,
    /// Where an event is posted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) url: Option<String>,
    /// What is run for an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) command: Option<String>,
    /// How long the agent waits, in seconds.
    pub(super) timeout: u8,
    /// What is sent along with an event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) headers: Option<Value>,
    /// The environment variables whose values the agent may put into the headers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) allowed_env_vars: Option<Value>,
}

/// A hook for an event.
#[derive(Debug, Clone)]
pub(super) struct Group {
    /// The name of the event.
    pub(super) event: &'static str,
    /// Whether the event comes with a tool, so that the hook has to say that it is for all of them.
    pub(super) of_tools: bool,
    /// The hook.
    pub(super) hook: Hook,
}

/// Settings that were read: an object, or nothing yet.
struct Settings<'a> {
    text: &'a str,
    root: Option<Object<'a>>,
}

/// The settings `text` with the hooks of `groups` in them and no others that are `ours`, and what was done about each
/// event. Nothing is left where there was nothing but ours.
pub(super) fn change(
    text: &str,
    groups: &[Group],
    ours: impl Fn(&Value) -> bool,
) -> Result<(String, Vec<(String, Change)>)> {
    let mut text = text.to_owned();
    let mut changes: Vec<(String, Change)> = Vec::new();
    while let Some((event, change, edit)) = Settings::read(&text)?.sweep(groups, &ours) {
        edit.apply(&mut text);
        match changes.iter_mut().find(|(known, _)| *known == event) {
            Some((_, known)) if change == Change::Replaced => *known = change,
            Some(_) => {}
            None => changes.push((event, change)),
        }
    }
    changes.reverse();
    for group in groups {
        let settings = Settings::read(&text)?;
        if settings.has(group) {
            if !changes.iter().any(|(event, _)| event == group.event) {
                changes.push((group.event.to_owned(), Change::Kept));
            }
            continue;
        }
        let edit = settings.add(group)?;
        edit.apply(&mut text);
        match changes.iter_mut().find(|(event, _)| event == group.event) {
            Some((_, change)) => *change = Change::Replaced,
            None => changes.push((group.event.to_owned(), Change::Added)),
        }
    }
    Ok((text, changes))
}

/// The hooks in the settings `text` that are `ours`.
pub(super) fn own_hooks(text: &str, ours: impl Fn(&Value) -> bool) -> Result<Vec<Value>> {
    let settings = Settings::read(text)?;
    let hooks = settings.groups().flat_map(|(_, _, group)| hooks_of(group));
    Ok(hooks.filter(ours).collect())
}

impl<'a> Settings<'a> {
    /// Reads settings.
    fn read(text: &'a str) -> Result<Self> {
        let root = edit::read(text)?;
        if let Some(root) = &root {
            edit::member(root, "hooks")?;
        }
        Ok(Self { text, root })
    }

    fn hooks(&self) -> Option<&Object<'a>> {
        self.root.as_ref()?.get("hooks")?.value.as_object()
    }

    /// The hooks of each event, in the order in which they stand there.
    fn events(&self) -> impl Iterator<Item = (&ObjectProp<'a>, &Array<'a>)> {
        let events = self.hooks().map_or(&[][..], |hooks| &hooks.properties);
        events.iter().filter_map(|event| Some((event, event.value.as_array()?)))
    }

    /// Every entry of every event: the event, the entry's place among those of its event, and the entry.
    fn groups(&self) -> impl Iterator<Item = (&ObjectProp<'a>, usize, Value)> {
        self.events().flat_map(|(event, entries)| {
            let entries = entries.elements.iter().enumerate();
            entries.map(move |(place, entry)| (event, place, entry.clone().into()))
        })
    }

    fn has(&self, group: &Group) -> bool {
        let wanted = value(group);
        self.groups().any(|(event, _, entry)| event.name.as_str() == group.event && entry == wanted)
    }

    /// The last entry that is ours and is to be another, or is not to be there; the name of its event, and what becomes of it.
    fn sweep(&self, groups: &[Group], ours: &impl Fn(&Value) -> bool) -> Option<(String, Change, Edit)> {
        let entries: Vec<_> = self.groups().collect();
        for (event, place, entry) in entries.iter().rev() {
            let (name, hooks) = (event.name.as_str(), hooks_of(entry.clone()));
            let own: Vec<_> = (0..hooks.len()).filter(|&hook| ours(&hooks[hook])).collect();
            let Some(last) = own.last() else { continue };
            let group = groups.iter().find(|group| group.event == name);
            let is_wanted = |entry: &Value| group.is_some_and(|group| *entry == value(group));
            let same = |earlier: &&(&ObjectProp<'a>, usize, Value)| {
                earlier.0.name.as_str() == name && earlier.1 < *place
            };
            let is_first = !entries
                .iter()
                .filter(same)
                .any(|(_, _, earlier)| hooks_of(earlier.clone()).iter().any(ours));
            if is_first && is_wanted(entry) {
                continue;
            }
            let array = event.value.as_array()?;
            let element = &array.elements[*place];
            if own.len() < hooks.len() {
                // Somebody has put ours beside theirs.
                let inner = element.as_object()?.get("hooks")?.value.as_array()?;
                let Removal::Entry(edit) = List::new(self.text, inner, &inner.elements).remove(*last) else {
                    return None;
                };
                return Some((name.to_owned(), Change::Removed, edit));
            }
            if let Some(group) = group.filter(|_| is_first) {
                let indentation =
                    List::new(self.text, array, &array.elements).indentation_of(*place).to_owned();
                let edit = Edit::replace(element.start()..element.end(), self.written(group, &indentation));
                return Some((name.to_owned(), Change::Replaced, edit));
            }
            return Some((name.to_owned(), Change::Removed, self.remove(event, *place)));
        }
        None
    }

    /// Takes an entry out, and what was there for it alone.
    fn remove(&self, event: &ObjectProp<'a>, place: usize) -> Edit {
        let whole = || Edit::replace(0..self.text.len(), String::new());
        let (Some(root), Some(hooks), Some(array)) = (&self.root, self.hooks(), event.value.as_array())
        else {
            return whole();
        };
        match List::new(self.text, array, &array.elements).remove(place) {
            Removal::Entry(edit) => return edit,
            Removal::List => {}
        }
        let name = event.name.as_str();
        match List::new(self.text, hooks, &hooks.properties).remove(edit::place_of(hooks, name)) {
            Removal::Entry(edit) => return edit,
            Removal::List => {}
        }
        match List::new(self.text, root, &root.properties).remove(edit::place_of(root, "hooks")) {
            Removal::Entry(edit) => edit,
            Removal::List => whole(),
        }
    }

    /// Adds a hook at the end of those of its event.
    fn add(&self, group: &Group) -> Result<Edit> {
        let unit = self.unit();
        let event = |indentation: &str| {
            let inner = format!("{indentation}{unit}");
            format!("{}: [\n{inner}{}\n{indentation}]", quoted(group.event), self.written(group, &inner))
        };
        let hooks = |indentation: &str| {
            let inner = format!("{indentation}{unit}");
            format!("\"hooks\": {{\n{inner}{}\n{indentation}}}", event(&inner))
        };
        let Some(root) = &self.root else {
            let all = format!("{{\n{unit}{}\n}}\n", hooks(unit));
            return Ok(Edit::replace(0..self.text.len(), all));
        };
        let Some(own) = self.hooks() else {
            return Ok(List::new(self.text, root, &root.properties).append(hooks));
        };
        let Some(property) = own.get(group.event) else {
            return Ok(List::new(self.text, own, &own.properties).append(event));
        };
        let array = property.value.as_array();
        let array = array.with_context(|| format!("its hooks for {} are not an array", group.event))?;
        Ok(List::new(self.text, array, &array.elements)
            .append(|indentation| self.written(group, indentation)))
    }

    /// A group in many lines, the first of which is not indented.
    fn written(&self, group: &Group, indentation: &str) -> String {
        let mut text = Vec::new();
        let formatter = PrettyFormatter::with_indent(self.unit().as_bytes());
        let written = entry(group).serialize(&mut Serializer::with_formatter(&mut text, formatter));
        written.expect("a hook is JSON");
        let text = String::from_utf8(text).expect("JSON is UTF-8");
        text.replace('\n', &format!("\n{indentation}"))
    }

    /// By how much these settings are indented.
    fn unit(&self) -> &'a str {
        edit::unit(self.text, self.root.as_ref())
    }
}

/// The hooks of an entry.
fn hooks_of(entry: Value) -> Vec<Value> {
    match entry {
        Value::Object(mut members) => match members.remove("hooks") {
            Some(Value::Array(hooks)) => hooks,
            _ => Vec::new(),
        },
        _ => Vec::new(),
    }
}

/// An entry for an event: a choice of tools where there is one, and the hook.
#[derive(Serialize)]
struct Entry<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    matcher: Option<&'static str>,
    hooks: [&'a Hook; 1],
}

fn entry(group: &Group) -> Entry<'_> {
    Entry { matcher: group.of_tools.then_some("*"), hooks: [&group.hook] }
}

fn value(group: &Group) -> Value {
    serde_json::to_value(entry(group)).expect("a hook is JSON")
}

fn quoted(name: &str) -> String {
    Value::from(name).to_string()
}

#[cfg(test)]
mod tests;
