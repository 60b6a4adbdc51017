//! The texts of rows, which are compared by a hash that ignores case, white space, quotation marks and how letters are composed
//! (`split_hash` in the migrations).

use std::mem::take;

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
    /// A text as it is compared.
    compared: Vec<u8>,
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
        if content.is_ascii() {
            self.compared.clear();
            self.compared.extend([kind.as_bytes(), b":"].concat());
            extend_compared(&mut self.compared, content);
            self.known.push(hash(&self.compared));
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

/// Adds the characters of an ASCII text that are compared.
fn extend_compared(compared: &mut Vec<u8>, content: &str) {
    let mut length = compared.len();
    compared.resize(length + content.len(), 0);
    for byte in content.bytes() {
        let byte = COMPARED[usize::from(byte)];
        // What is left out is overwritten by the next character.
        compared[length] = byte;
        length += usize::from(byte != 0);
    }
    compared.truncate(length);
}

/// Returns what `hashtextextended(text, 0)` returns in Postgres on a little-endian machine: Bob Jenkins's lookup3, with other
/// initial values, and with the last four bytes of an incomplete block in the upper part of their word.
fn hash(text: &[u8]) -> i64 {
    #[expect(clippy::cast_possible_truncation, reason = "a text of Postgres is below 1 GiB")]
    let start = 0x9e37_79b9_u32.wrapping_add(text.len() as u32).wrapping_add(3_923_095);
    let mut state = [start; 3];
    let (blocks, rest) = text.as_chunks();
    for block in blocks {
        add(&mut state, block, 0);
        for (step, rotation) in [4, 6, 8, 16, 19, 4].into_iter().enumerate() {
            let [x, y, z] = [step % 3, (step + 1) % 3, (step + 2) % 3];
            state[x] = state[x].wrapping_sub(state[z]) ^ state[z].rotate_left(rotation);
            state[z] = state[z].wrapping_add(state[y]);
        }
    }
    let mut last = [0; 12];
    last[..rest.len()].copy_from_slice(rest);
    add(&mut state, &last, 8);
    for (step, rotation) in [14, 11, 25, 16, 4, 14, 24].into_iter().enumerate() {
        let [x, z] = [(step + 2) % 3, (step + 1) % 3];
        state[x] = (state[x] ^ state[z]).wrapping_sub(state[z].rotate_left(rotation));
    }
    (i64::from(state[1]) << 32) | i64::from(state[2])
}

/// Adds the words of a block to the state, the last one shifted.
fn add(state: &mut [u32; 3], block: &[u8; 12], shift: u32) {
    let words = block.as_chunks().0.iter().copied().map(u32::from_le_bytes);
    for ((state, word), shift) in state.iter_mut().zip(words).zip([0, 0, shift]) {
        *state = state.wrapping_add(word << shift);
    }
}
