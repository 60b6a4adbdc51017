//! The frames of HTTP/2 (RFC 9113, section 4), as far as they tell which requests begin and end, and how much of them comes.

/// What a client that speaks HTTP/2 sends first (RFC 9113, section 3.4).
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The number of bytes of a frame's head (RFC 9113, section 4.1).
pub(super) const HEAD: usize = 9;
/// The type of a frame with a part of a body (section 6.1).
pub(super) const DATA: u8 = 0;
/// The type of a frame with a head, or its beginning (section 6.2).
pub(super) const HEADERS: u8 = 1;
/// The type of a frame that ends a request before its answer (section 6.4).
pub(super) const RST_STREAM: u8 = 3;
/// The type of a frame with more of a head (section 6.10).
pub(super) const CONTINUATION: u8 = 9;
/// The flag of the last frame of a request or an answer.
pub(super) const END_STREAM: u8 = 1;
/// The flag of a frame that ends with bytes which mean nothing, and begins with their number.
pub(super) const PADDED: u8 = 8;
/// The bits of the number of a request. The first one of the four bytes means nothing.
pub(super) const NUMBER: u32 = 0x7fff_ffff;

/// Where in the frames a connection is.
#[derive(Debug)]
pub(super) enum Position {
    /// In the preface, of which so many bytes have come.
    Preface(usize),
    /// In the head of a frame, of which so many bytes have come.
    Head([u8; HEAD], usize),
    /// Behind the head of a part of a body that begins with the number of its bytes that mean nothing.
    Padding([u8; HEAD]),
    /// In the rest of a frame, of which so many bytes are to come.
    Rest(usize),
    /// In HTTP/1.1, which has no frames.
    NoFrames,
}

/// What a step through the bytes of a connection has come upon.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// The end of the preface: the connection is one of HTTP/2.
    Http2,
    /// The head of a frame, which is of a request or of the connection.
    Frame { kind: u8, flags: u8, request: u32, bytes: usize },
    /// A part of either, or something else.
    Nothing,
}

/// Returns the number of bytes of a frame behind its head.
fn length(head: &[u8; HEAD]) -> usize {
    usize::try_from(u32::from_be_bytes([0, head[0], head[1], head[2]])).unwrap_or(usize::MAX)
}

impl Seen {
    /// Returns the frame with this head and so many bytes that mean something.
    fn frame(head: &[u8; HEAD], bytes: usize) -> Self {
        let request = u32::from_be_bytes([head[5], head[6], head[7], head[8]]) & NUMBER;
        Self::Frame { kind: head[3], flags: head[4], request, bytes }
    }
}

impl Position {
    /// Before the preface of a client.
    pub(super) const BEGIN: Self = Self::Preface(0);
    /// Before a frame.
    pub(super) const BETWEEN: Self = Self::Head([0; HEAD], 0);

    /// Goes on by some of what was read, which is not empty. Returns by how many bytes, and what has come with them.
    pub(super) fn step(&mut self, read: &[u8]) -> (usize, Seen) {
        let first = read[0];
        let (passed, come) = match self {
            Self::NoFrames => (read.len(), Seen::Nothing),
            Self::Preface(come) if PREFACE[*come] != first => {
                *self = Self::NoFrames;
                (read.len(), Seen::Nothing)
            }
            Self::Preface(come) => {
                *come += 1;
                let is_all = *come == PREFACE.len();
                if is_all {
                    *self = Self::BETWEEN;
                }
                (1, if is_all { Seen::Http2 } else { Seen::Nothing })
            }
            Self::Head(head, come) => {
                head[*come] = first;
                *come += 1;
                if *come < HEAD {
                    return (1, Seen::Nothing);
                }
                if head[3] == DATA && head[4] & PADDED != 0 && length(head) > 0 {
                    *self = Self::Padding(*head);
                    return (1, Seen::Nothing);
                }
                let bytes = length(head);
                let frame = Seen::frame(head, bytes);
                *self = Self::Rest(bytes);
                (1, frame)
            }
            Self::Padding(head) => {
                let rest = length(head) - 1;
                let frame = Seen::frame(head, rest.saturating_sub(first.into()));
                *self = Self::Rest(rest);
                (1, frame)
            }
            Self::Rest(bytes) => {
                let come = read.len().min(*bytes);
                *bytes -= come;
                (come, Seen::Nothing)
            }
        };
        if let Self::Rest(0) = self {
            *self = Self::BETWEEN;
        }
        (passed, come)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    pub(in crate::http) fn frame(kind: u8, bytes: usize) -> Vec<u8> {
        frame_of(1, kind, 0, bytes)
    }

    pub(in crate::http) fn frame_of(request: u32, kind: u8, flags: u8, bytes: usize) -> Vec<u8> {
        let length = u32::try_from(bytes).expect("it is short").to_be_bytes();
        [&length[1..], &[kind, flags], &request.to_be_bytes(), &vec![b'x'; bytes]].concat()
    }

    proptest! {
        #[test]
        fn frames_are_told_apart_wherever_the_pieces_end(
            frames in prop::collection::vec((0..=10_u8, 0..300_usize), 0..20),
            piece in 1..400_usize,
        ) {
            let sent = frames.iter().flat_map(|&(kind, bytes)| frame(kind, bytes));
            let sent: Vec<_> = PREFACE.iter().copied().chain(sent).collect();
            let mut position = Position::BEGIN;
            let mut come = Vec::new();
            for mut piece in sent.chunks(piece) {
                while !piece.is_empty() {
                    let (passed, next) = position.step(piece);
                    piece = &piece[passed..];
                    come.extend(Some(next).filter(|next| *next != Seen::Nothing));
                }
            }
            let expected = frames.iter().map(|&(kind, bytes)| Seen::Frame { kind, flags: 0, request: 1, bytes });
            prop_assert_eq!(come, [Seen::Http2].into_iter().chain(expected).collect::<Vec<_>>());
        }
    }
}
