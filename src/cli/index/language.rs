//! The languages whose functions are recognized, by their grammars.

use std::path::Path;

use tree_sitter::Language as Grammar;

/// A language of source code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    /// C.
    C,
    /// Go.
    Go,
    /// Java.
    Java,
    /// JavaScript, with JSX.
    JavaScript,
    /// Python.
    Python,
    /// Rust.
    Rust,
    /// TypeScript without JSX.
    TypeScript,
    /// TypeScript with JSX.
    Tsx,
}

impl Language {
    /// Returns the language of a file, by its extension.
    pub(super) fn of(path: &Path) -> Option<Self> {
        Some(match path.extension()?.to_str()? {
            "c" | "h" => Self::C,
            "go" => Self::Go,
            "java" => Self::Java,
            "js" | "jsx" | "mjs" | "cjs" => Self::JavaScript,
            "py" | "pyi" => Self::Python,
            "rs" => Self::Rust,
            "ts" | "mts" | "cts" => Self::TypeScript,
            "tsx" => Self::Tsx,
            _ => return None,
        })
    }

    pub(super) fn grammar(self) -> Grammar {
        match self {
            Self::C => tree_sitter_c::LANGUAGE.into(),
            Self::Go => tree_sitter_go::LANGUAGE.into(),
            Self::Java => tree_sitter_java::LANGUAGE.into(),
            Self::JavaScript => tree_sitter_javascript::LANGUAGE.into(),
            Self::Python => tree_sitter_python::LANGUAGE.into(),
            Self::Rust => tree_sitter_rust::LANGUAGE.into(),
            Self::TypeScript => tree_sitter_typescript::LANGUAGE_TYPESCRIPT.into(),
            Self::Tsx => tree_sitter_typescript::LANGUAGE_TSX.into(),
        }
    }

    /// Returns the role of a node of the syntax tree, by its kind.
    pub(super) fn role(self, kind: &str) -> Role {
        const SCRIPT: (&[&str], &[&str]) = (
            &["function_declaration", "generator_function_declaration", "method_definition"],
            &["class_declaration", "abstract_class_declaration", "internal_module"],
        );
        let (pieces, scopes): (&[&str], &[&str]) = match self {
            Self::C => (
                &[
                    "function_definition",
                    "struct_specifier",
                    "enum_specifier",
                    "union_specifier",
                    "type_definition",
                ],
                &[],
            ),
            Self::Go => (&["function_declaration", "method_declaration", "type_declaration"], &[]),
            Self::Java => (
                &["method_declaration", "constructor_declaration", "enum_declaration", "record_declaration"],
                &["class_declaration", "interface_declaration"],
            ),
            Self::JavaScript => SCRIPT,
            Self::Python => (&["function_definition"], &["class_definition"]),
            Self::Rust => (
                &["function_item", "struct_item", "enum_item", "union_item", "type_item", "macro_definition"],
                &["impl_item", "trait_item", "mod_item"],
            ),
            Self::TypeScript | Self::Tsx => match kind {
                "interface_declaration" | "type_alias_declaration" | "enum_declaration" => {
                    return Role::Piece;
                }
                _ => SCRIPT,
            },
        };
        if pieces.contains(&kind) {
            Role::Piece
        } else if scopes.contains(&kind) {
            Role::Scope
        } else {
            Role::Other
        }
    }

    /// Returns whether a node belongs to the next one, such as a comment or an attribute.
    pub(super) fn leads(kind: &str) -> bool {
        kind.contains("comment") || ["attribute_item", "decorator"].contains(&kind)
    }
}

/// The role of a node in a syntax tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// A piece, such as a function or a type.
    Piece,
    /// A definition that contains pieces and gives them its name, such as a class.
    Scope,
    /// Any other node, which may contain pieces.
    Other,
}
