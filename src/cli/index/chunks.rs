//! The pieces of a file's text: functions and types of source code, by its grammar, and paragraphs of other texts.

use std::path::Path;

use tree_sitter::{Node, Parser};

use super::language::{Language, Role};
use crate::privacy::cut::beginning;

/// The maximum number of characters of a piece. A longer piece is divided by its lines.
const MOST: usize = 6_000;
/// The maximum number of characters of a piece that consists of lines.
const MOST_OF_LINES: usize = 2_000;
/// The maximum depth at which definitions are found.
const DEPTH: usize = 64;
/// The longest name of a symbol.
const LONGEST_SYMBOL: usize = 200;

/// A piece of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Chunk {
    /// The symbol, preceded by those that contain it: `Server::start`.
    pub(super) symbol: Option<String>,
    /// The text of the piece.
    pub(super) content: String,
}

/// Divides a file into pieces. A text without letters has none.
pub(super) fn chunks(path: &Path, text: &str) -> Vec<Chunk> {
    let found = Language::of(path).map(|language| definitions(language, text)).unwrap_or_default();
    if found.is_empty() { lines(None, text, MOST_OF_LINES) } else { found }
}

/// Returns the definitions in source code, in order.
fn definitions(language: Language, text: &str) -> Vec<Chunk> {
    let mut parser = Parser::new();
    if parser.set_language(&language.grammar()).is_err() {
        return Vec::new();
    }
    let Some(tree) = parser.parse(text, None) else { return Vec::new() };
    let mut finder = Finder { language, text, chunks: Vec::new() };
    finder.enter(tree.root_node(), tree.root_node().start_byte(), &[], 0);
    finder.chunks
}

struct Finder<'a> {
    language: Language,
    text: &'a str,
    chunks: Vec<Chunk>,
}

impl Finder<'_> {
    /// Finds definitions below a node. `scope` has the names that contain it, and `begins` is the start of the
    /// comments right before it.
    fn enter(&mut self, node: Node<'_>, begins: usize, scope: &[String], depth: usize) {
        if depth > DEPTH {
            return;
        }
        let mut cursor = node.walk();
        let children: Vec<_> = node.named_children(&mut cursor).collect();
        // The comments and attributes right before the next node.
        let mut lead = (begins < node.start_byte()).then(|| begins..node.start_byte());
        for child in children {
            let touching = lead.take().filter(|lead| self.touches(lead.end, child.start_byte()));
            let begins = touching.map_or(child.start_byte(), |lead| lead.start);
            if Language::leads(child.kind()) {
                lead = Some(begins..child.end_byte());
                continue;
            }
            match self.role(child) {
                Role::Piece => self.piece(child, begins, scope),
                Role::Scope => {
                    self.head(child, begins, scope);
                    let mut inner = scope.to_vec();
                    inner.extend(self.name(child));
                    self.enter(child, child.start_byte(), &inner, depth + 1);
                }
                Role::Other => self.enter(child, begins, scope, depth + 1),
            }
        }
    }

    /// Returns whether there is no blank line between two positions.
    fn touches(&self, end: usize, start: usize) -> bool {
        // A comment may include its line break.
        let end = self.text[..end].trim_end().len();
        let between = self.text.get(end..start).unwrap_or_default();
        between.matches('\n').count() <= 1
    }

    /// Returns the role of a node. In scripts, a constant with a function is a piece. Types that are only mentioned
    /// are not.
    fn role(&self, node: Node<'_>) -> Role {
        let is_script = matches!(self.language, Language::JavaScript | Language::TypeScript | Language::Tsx);
        if is_script
            && ["lexical_declaration", "variable_declaration", "public_field_definition"]
                .contains(&node.kind())
        {
            return if holds_function(node) { Role::Piece } else { Role::Other };
        }
        let role = self.language.role(node.kind());
        let is_type_of_c = self.language == Language::C && node.kind().ends_with("_specifier");
        if is_type_of_c && node.child_by_field_name("body").is_none() { Role::Other } else { role }
    }

    fn piece(&mut self, node: Node<'_>, begins: usize, scope: &[String]) {
        let symbol = self.symbol(node, scope);
        self.push(symbol, &self.text[begins..node.end_byte()]);
    }

    /// Adds the part of a class or similar definition before its members: its documentation and signature.
    fn head(&mut self, node: Node<'_>, begins: usize, scope: &[String]) {
        if node.kind() == "mod_item" || node.kind() == "impl_item" {
            return;
        }
        let whole = &self.text[begins..node.end_byte()];
        let first = first_member(self.language, node).map_or(node.end_byte(), |member| member.start_byte());
        let head = if whole.chars().count() <= MOST_OF_LINES {
            whole
        } else {
            &self.text[begins..first.max(begins)]
        };
        let symbol = self.symbol(node, scope);
        self.push(symbol, head);
    }

    fn push(&mut self, symbol: Option<String>, content: &str) {
        if content.chars().count() > MOST {
            self.chunks.extend(lines(symbol.as_deref(), content, MOST));
        } else if content.chars().any(char::is_alphanumeric) {
            self.chunks.push(Chunk { symbol, content: content.trim_end().to_owned() });
        }
    }

    fn symbol(&self, node: Node<'_>, scope: &[String]) -> Option<String> {
        let separator = if self.language == Language::Rust { "::" } else { "." };
        let names: Vec<_> = scope.iter().cloned().chain(self.name(node)).collect();
        let symbol: String = names.join(separator).chars().take(LONGEST_SYMBOL).collect();
        (!symbol.is_empty()).then_some(symbol)
    }

    /// Returns the name of a definition. If it has none, this is the name of the type that it is about, or of the
    /// declaration that contains it.
    fn name(&self, node: Node<'_>) -> Option<String> {
        let named = ["name", "declarator", "type"].iter().find_map(|field| node.child_by_field_name(field));
        let mut named = if let Some(named) = named {
            named
        } else {
            let mut cursor = node.walk();
            node.named_children(&mut cursor).find_map(|child| child.child_by_field_name("name"))?
        };
        // In C, the name is inside the declarator of a pointer or a function.
        while let Some(inner) = named.child_by_field_name("declarator") {
            named = inner;
        }
        let receiver = node.child_by_field_name("receiver").map(|receiver| self.receiver(receiver));
        let name = self.text[named.byte_range()].split_whitespace().collect::<Vec<_>>().join(" ");
        let name = name.split(['{', '\n']).next().unwrap_or_default().trim().to_owned();
        Some(receiver.into_iter().flatten().chain([name]).collect::<Vec<_>>().join("."))
            .filter(|name| !name.is_empty())
    }

    /// Returns the type of which a function in Go is a method.
    fn receiver(&self, node: Node<'_>) -> Option<String> {
        let text = self.text[node.byte_range()].trim_matches(['(', ')']);
        let name = text.rsplit([' ', '*']).next()?;
        Some(name.split('[').next()?.to_owned())
    }
}

/// Returns whether a declaration names a function.
fn holds_function(node: Node<'_>) -> bool {
    let is_function = |value: Node<'_>| {
        ["arrow_function", "function_expression", "generator_function"].contains(&value.kind())
    };
    if node.child_by_field_name("value").is_some_and(is_function) {
        return true;
    }
    let mut cursor = node.walk();
    node.named_children(&mut cursor).any(|child| child.child_by_field_name("value").is_some_and(is_function))
}

/// Returns the first definition in a class or similar definition.
fn first_member(language: Language, node: Node<'_>) -> Option<Node<'_>> {
    let body = node.child_by_field_name("body")?;
    let mut cursor = body.walk();
    body.named_children(&mut cursor)
        .find(|child| language.role(child.kind()) != Role::Other || child.kind() == "decorated_definition")
}

/// Divides a text by its lines, between paragraphs if possible.
fn lines(symbol: Option<&str>, text: &str, most: usize) -> Vec<Chunk> {
    let mut chunks = Vec::new();
    let (mut piece, mut size) = (String::new(), 0);
    for line in text.split_inclusive('\n') {
        let length = line.chars().count();
        let is_break = line.trim().is_empty() && size > most / 2;
        if size > 0 && (size + length > most || is_break) {
            chunks.push(std::mem::take(&mut piece));
            size = 0;
        }
        // People rarely read or write a line that is longer than a piece.
        let end = line.char_indices().nth(most).map_or(line.len(), |(end, _)| end);
        piece.push_str(beginning(line, end));
        size += length.min(most);
    }
    chunks.push(piece);
    let has_words = |piece: &String| piece.chars().any(char::is_alphanumeric);
    let chunk =
        |content: String| Chunk { symbol: symbol.map(str::to_owned), content: content.trim_end().to_owned() };
    chunks.into_iter().filter(has_words).map(chunk).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn symbols(path: &str, text: &str) -> Vec<String> {
        chunks(Path::new(path), text).into_iter().map(|chunk| chunk.symbol.unwrap_or_default()).collect()
    }

    #[test]
    fn the_functions_and_types_of_each_language_are_pieces_with_their_names() {
        let rust = "/// A server.\npub struct Server;\n\nimpl Server {\n    /// Starts.\n    #[must_use]\n    fn start(&self) {}\n}\n\nmod inner {\n    fn helper() {}\n}\n";
        assert_eq!(symbols("a.rs", rust), ["Server", "Server::start", "inner::helper"]);
        let found = chunks(Path::new("a.rs"), rust);
        assert_eq!(found[0].content, "/// A server.\npub struct Server;");
        assert!(found[1].content.starts_with("/// Starts.\n"), "{:?}", found[1]);

        let python = "import os\n\n@cache\ndef verify_jwt(token):\n    return token\n\nclass Auth:\n    \"\"\"Checks.\"\"\"\n    def check(self):\n        pass\n";
        assert_eq!(symbols("a.py", python), ["verify_jwt", "Auth", "Auth.check"]);

        let script = "export const find = async (id) => id;\nexport default function main() {}\nclass A extends B { run() { return 1 } }\nconst x = 1;\n";
        assert_eq!(symbols("a.js", script), ["find", "main", "A", "A.run"]);
        let typed = "interface User { name: string }\ntype Id = string;\nexport class A { private run(): void {} }\nexport function f<T>(x: T): T { return x }\n";
        assert_eq!(symbols("a.ts", typed), ["User", "Id", "A", "A.run", "f"]);
        assert_eq!(symbols("a.tsx", "export const Button = () => <b>hi</b>;\n"), ["Button"]);

        let go = "package a\n\n// Serve serves.\nfunc Serve() {}\n\nfunc (s *Server[T]) Start() error { return nil }\n\ntype Server struct{}\n";
        assert_eq!(symbols("a.go", go), ["Serve", "Server.Start", "Server"]);
        let java = "package a;\npublic class A {\n  /** Runs. */\n  public void run() {}\n  A() {}\n  enum E { X }\n}\n";
        assert_eq!(symbols("A.java", java), ["A", "A.run", "A.A", "A.E"]);
        let c = "#include <a.h>\nstruct point { int x; };\nstatic int *add(int a, int b) { return 0; }\nstruct point p;\n";
        assert_eq!(symbols("a.c", c), ["point", "add"]);
    }

    #[test]
    fn other_texts_and_long_definitions_are_taken_apart_by_lines() {
        let text = format!("# Notes\n\n{}\n\n{}\n", "word ".repeat(300), "more ".repeat(300));
        let found = chunks(Path::new("notes.md"), &text);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found.iter().all(|chunk| chunk.symbol.is_none()));
        let long = format!("fn long() {{\n{}}}\n", "    call(1);\n".repeat(1_000));
        let found = chunks(Path::new("a.rs"), &long);
        assert!(
            found.len() > 1 && found.iter().all(|chunk| chunk.symbol.as_deref() == Some("long")),
            "{}",
            found.len()
        );
        assert!(chunks(Path::new("a.rs"), "").is_empty());
        assert!(chunks(Path::new("a.txt"), " \n--\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_is_taken_apart_and_no_piece_is_too_long(
            text in any::<String>(), ending in proptest::sample::select(vec!["rs", "py", "ts", "tsx", "js", "go", "java", "c", "txt"]),
        ) {
            for chunk in chunks(Path::new(&format!("a.{ending}")), &text) {
                prop_assert!(chunk.content.chars().count() <= MOST);
                prop_assert!(chunk.content.chars().any(char::is_alphanumeric));
            }
        }
    }
}
