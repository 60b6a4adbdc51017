//! The texts of rows, which are compared by a hash that ignores case, white space and quotation marks (`split_hash` in
//! the migrations).

use std::iter::once;
use std::mem::take;

use md5::{Digest as _, Md5};
use sqlx::PgPool;

/// A text of a row that is compared with other texts by its hash.
#[derive(Debug, Clone, Copy)]
pub struct Text<'a> {
    /// What the text is. Equal texts of two kinds have different hashes.
    pub kind: &'static str,
    /// The text, as SQL over the row.
    pub sql: &'a str,
}

/// The question and the answer of a row, each with the name of the [column](super::Dataset::columns) that is the text,
/// if there is one.
pub type QuestionAndAnswer = [(Text<'static>, Option<&'static str>); 2];

/// The number of bytes of texts that are sent to the database at once.
const SENT: usize = 1 << 20;

/// Each character of ASCII as it is compared. Those that are left out of the comparison are zero.
const COMPARED: [u8; 128] = {
    let mut compared = [0; 128];
    let mut byte: u8 = 0;
    while byte < 128 {
        if !matches!(byte, b'\t'..=b'\r' | b' ' | b'"' | b'\'' | b'`') {
            compared[byte as usize] = byte.to_ascii_lowercase();
        }
        byte += 1;
    }
    compared
};

impl Text<'_> {
    /// Returns the SQL of the text's hash.
    #[must_use]
    pub fn hash(self) -> String {
        format!("split_hash('{}', {})", self.kind, self.sql)
    }
}

/// The hashes of texts, as the database computes them. The server computes those of texts in ASCII, in a fraction of the
/// time. The case of other letters depends on the database's locale, so that the database is asked for the others.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    known: Vec<i64>,
    /// The kinds of the texts whose hashes are not known yet.
    kinds: Vec<&'static str>,
    /// Those texts.
    texts: Vec<String>,
    /// Their number of bytes.
    bytes: usize,
}

impl Hashes {
    /// Adds a text of this kind.
    pub(super) fn add(&mut self, kind: &'static str, content: &str) {
        if let Some(hash) = of_ascii(kind, content) {
            self.known.push(hash);
        } else {
            self.kinds.push(kind);
            self.texts.push(content.to_owned());
            self.bytes += content.len();
        }
    }

    /// Asks the database for the hashes that are not known, if their texts take much memory.
    pub(super) async fn limit(&mut self, db: &PgPool) -> sqlx::Result<()> {
        if self.bytes < SENT { Ok(()) } else { self.ask(db).await }
    }

    /// Returns the hashes in ascending order, each once.
    pub(super) async fn take(&mut self, db: &PgPool) -> sqlx::Result<Vec<i64>> {
        if !self.texts.is_empty() {
            self.ask(db).await?;
        }
        let mut hashes = take(&mut self.known);
        hashes.sort_unstable();
        hashes.dedup();
        Ok(hashes)
    }

    async fn ask(&mut self, db: &PgPool) -> sqlx::Result<()> {
        const SQL: &str =
            "select split_hash(kind, content) from unnest($1::text[], $2::text[]) as t (kind, content)";
        let asked: Vec<i64> = sqlx::query_scalar(SQL)
            .bind(take(&mut self.kinds))
            .bind(take(&mut self.texts))
            .fetch_all(db)
            .await?;
        self.known.extend(asked);
        self.bytes = 0;
        Ok(())
    }
}

/// Returns the hash of a text, if it is ASCII.
fn of_ascii(kind: &str, content: &str) -> Option<i64> {
    if !content.is_ascii() {
        return None;
    }
    let mut text: Vec<u8> = kind.bytes().chain(once(b':')).collect();
    let mut length = text.len();
    text.resize(length + content.len(), 0);
    for byte in content.bytes() {
        let compared = COMPARED[usize::from(byte)];
        // What is left out is overwritten by the next character.
        text[length] = compared;
        length += usize::from(compared != 0);
    }
    Md5::digest(&text[..length]).first_chunk().map(|first| i64::from_be_bytes(*first))
}
