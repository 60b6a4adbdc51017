//! MCP servers in an agent's settings. The file belongs to the user: everything else in it stays as it is, with its
//! comments.

use anyhow::{Context as _, Result, ensure};
use jsonc_parser::ast::Object;
use jsonc_parser::common::Ranged as _;
use serde::Serialize as _;
use serde_json::ser::{PrettyFormatter, Serializer};
use serde_json::{Value, json};
use toml_edit::{Array, DocumentMut, Item, Table, value};

use crate::agents::ServersFormat;
use crate::cli::edit::{self, Change, Edit, List, Removal};

/// The name of our server in the settings.
pub(super) const NAME: &str = "gleaner";

/// This program as a server.
pub(super) struct Server {
    /// The path of this program.
    pub(super) program: String,
    /// The address of the server that has the data.
    pub(super) url: String,
}

impl Server {
    fn arguments(&self) -> [&str; 3] {
        ["mcp", "--url", &self.url]
    }
}

/// Returns the settings `text` with our server, or without it if `server` is none, and what has changed.
pub(super) fn change(format: ServersFormat, text: &str, server: Option<&Server>) -> Result<(String, Change)> {
    match format {
        ServersFormat::Json => in_json(text, server),
        ServersFormat::Toml => in_toml(text, server),
    }
}

/// The member of JSON settings that has the servers.
const MEMBER: &str = "mcpServers";

fn in_json(text: &str, server: Option<&Server>) -> Result<(String, Change)> {
    let wanted = server.map(|server| {
        // The agent passes its own environment on, and with it GLEANER_KEY.
        json!({"type": "stdio", "command": server.program, "args": server.arguments()})
    });
    let root = edit::read(text)?;
    let servers = root.as_ref().map(|root| edit::member(root, MEMBER)).transpose()?.flatten();
    let own = servers.and_then(|servers| servers.get(NAME));
    let (edit, change) = match (&wanted, own) {
        (None, None) => return Ok((text.to_owned(), Change::Kept)),
        (Some(wanted), Some(own)) => {
            if Value::from(own.value.clone()) == *wanted {
                return Ok((text.to_owned(), Change::Kept));
            }
            let place = edit::place_of(servers.context("it has servers")?, NAME);
            let servers = servers.context("it has servers")?;
            let indentation = List::new(text, servers, &servers.properties).indentation_of(place).to_owned();
            let entry = written(wanted, edit::unit(text, root.as_ref()), &indentation);
            (Edit::replace(own.value.start()..own.value.end(), entry), Change::Replaced)
        }
        (Some(wanted), None) => (add(text, root.as_ref(), servers, wanted), Change::Added),
        (None, Some(_)) => (remove(text, root.as_ref(), servers), Change::Removed),
    };
    let mut text = text.to_owned();
    edit.apply(&mut text);
    Ok((text, change))
}

/// Adds our server at the end of the servers.
fn add(text: &str, root: Option<&Object<'_>>, servers: Option<&Object<'_>>, wanted: &Value) -> Edit {
    let unit = edit::unit(text, root);
    let entry = |indentation: &str| format!("\"{NAME}\": {}", written(wanted, unit, indentation));
    let all = |indentation: &str| {
        let inner = format!("{indentation}{unit}");
        format!("\"{MEMBER}\": {{\n{inner}{}\n{indentation}}}", entry(&inner))
    };
    match (root, servers) {
        (_, Some(servers)) => List::new(text, servers, &servers.properties).append(entry),
        (Some(root), None) => List::new(text, root, &root.properties).append(all),
        (None, None) => Edit::replace(0..text.len(), format!("{{\n{unit}{}\n}}\n", all(unit))),
    }
}

/// Removes our server, and what was added only for it.
fn remove(text: &str, root: Option<&Object<'_>>, servers: Option<&Object<'_>>) -> Edit {
    let lists = [(servers, NAME), (root, MEMBER)];
    for (list, name) in lists.into_iter().filter_map(|(list, name)| Some((list?, name))) {
        match List::new(text, list, &list.properties).remove(edit::place_of(list, name)) {
            Removal::Entry(edit) => return edit,
            Removal::List => {}
        }
    }
    Edit::replace(0..text.len(), String::new())
}

/// Writes JSON in several lines, of which the first is not indented.
fn written(value: &Value, unit: &str, indentation: &str) -> String {
    let mut text = Vec::new();
    let formatter = PrettyFormatter::with_indent(unit.as_bytes());
    value.serialize(&mut Serializer::with_formatter(&mut text, formatter)).expect("it is JSON");
    String::from_utf8(text).expect("JSON is UTF-8").replace('\n', &format!("\n{indentation}"))
}

/// The table of TOML settings that has the servers.
const TABLE: &str = "mcp_servers";

fn in_toml(text: &str, server: Option<&Server>) -> Result<(String, Change)> {
    let mut document: DocumentMut = text.parse().context("it is not TOML")?;
    if let Some(servers) = document.get(TABLE) {
        ensure!(servers.is_table_like(), "its {TABLE} is not a table");
    }
    let own = document.get(TABLE).and_then(|servers| servers.get(NAME)).map(ToString::to_string);
    let Some(server) = server else {
        if own.is_none() {
            return Ok((text.to_owned(), Change::Kept));
        }
        let servers = document.get_mut(TABLE).and_then(Item::as_table_like_mut).context("it has servers")?;
        servers.remove(NAME);
        if servers.is_empty() {
            document.remove(TABLE);
        }
        return Ok((document.to_string(), Change::Removed));
    };
    let mut table = Table::new();
    table["command"] = value(server.program.as_str());
    table["args"] = value(Array::from_iter(server.arguments()));
    // Codex passes on only those variables that are listed.
    table["env_vars"] = value(Array::from_iter(["GLEANER_KEY"]));
    let is_same = own.as_deref().is_some_and(|own| own.trim() == table.to_string().trim());
    if is_same {
        return Ok((text.to_owned(), Change::Kept));
    }
    let servers = document.entry(TABLE).or_insert_with(|| {
        let mut servers = Table::new();
        servers.set_implicit(true);
        Item::Table(servers)
    });
    let servers = servers.as_table_like_mut().context("its servers are no table")?;
    if own.is_none() && !text.is_empty() {
        table.decor_mut().set_prefix("\n");
    } else if let Some(before) = servers.get(NAME).and_then(Item::as_table) {
        *table.decor_mut() = before.decor().clone();
    }
    servers.insert(NAME, Item::Table(table));
    let change = if own.is_some() { Change::Replaced } else { Change::Added };
    Ok((document.to_string(), change))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(url: &str) -> Server {
        Server { program: "/usr/bin/gleaner".to_owned(), url: url.to_owned() }
    }

    /// Installs, installs again, installs another address and uninstalls, and compares the settings in between.
    #[track_caller]
    fn through(format: ServersFormat, before: &str) -> String {
        let (first, added) = change(format, before, Some(&server("http://a"))).expect("settings");
        assert_eq!(added, Change::Added);
        assert_eq!(
            change(format, &first, Some(&server("http://a"))).expect("settings"),
            (first.clone(), Change::Kept)
        );
        let (second, replaced) = change(format, &first, Some(&server("http://b"))).expect("settings");
        assert_eq!(
            (replaced, second.as_str()),
            (Change::Replaced, first.replace("http://a", "http://b").as_str())
        );
        let (after, removed) = change(format, &second, None).expect("settings");
        assert_eq!((removed, after.as_str()), (Change::Removed, before));
        assert_eq!(change(format, before, None).expect("settings"), (before.to_owned(), Change::Kept));
        first
    }

    #[test]
    fn json_settings_get_our_server_and_are_byte_for_byte_as_before_without_it() {
        let expected = "{\n  \"mcpServers\": {\n    \"gleaner\": {\n      \"args\": [\n        \"mcp\",\n        \"--url\",\n        \
            \"http://a\"\n      ],\n      \"command\": \"/usr/bin/gleaner\",\n      \"type\": \"stdio\"\n    }\n  }\n}\n";
        assert_eq!(through(ServersFormat::Json, ""), expected);
        for before in [
            "{}",
            "{\n    // Mine.\n    \"a\": [1, 2,],\n}\n",
            "{\"mcpServers\": {\"other\": {\"command\": \"x\"}}, \"numStartups\": 3}",
            "{\n\t\"mcpServers\": {},\n\t\"z\": null\n}",
        ] {
            let with = through(ServersFormat::Json, before);
            assert!(with.contains("\"gleaner\""), "{with}");
        }
    }

    #[test]
    fn toml_settings_get_our_server_and_are_as_before_without_it() {
        let expected = "[mcp_servers.gleaner]\ncommand = \"/usr/bin/gleaner\"\nargs = [\"mcp\", \"--url\", \"http://a\"]\n\
            env_vars = [\"GLEANER_KEY\"]\n";
        assert_eq!(through(ServersFormat::Toml, ""), expected);
        for before in [
            "model = \"large\" # Mine.\n",
            "# Mine.\n[mcp_servers.other]\ncommand = 'x'\n\n[profiles.a]\nmodel = \"b\"\n",
            "a = 1\n\n\n# The end.\n",
        ] {
            through(ServersFormat::Toml, before);
        }
    }

    #[test]
    fn what_cannot_be_understood_is_left_alone() {
        for text in ["[]", "{\"mcpServers\": []}", "{\"a\": 1, \"a\": 2}", "{"] {
            assert!(change(ServersFormat::Json, text, Some(&server("http://a"))).is_err(), "{text}");
        }
        for text in ["mcp_servers = 1", "a =", "[a"] {
            assert!(change(ServersFormat::Toml, text, Some(&server("http://a"))).is_err(), "{text}");
        }
    }
}
