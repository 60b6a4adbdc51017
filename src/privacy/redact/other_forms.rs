//! Values that look random, but are of forms that no secret has.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::random::{is_key, is_random, is_very_random};
use super::value_ends::ending;

/// Returns whether a value is of a form that no secret has.
pub(super) fn is_of_other_form(value: &str) -> bool {
    is_path(value)
        || is_time(value)
        || is_account(value)
        || is_type(value)
        || is_number(value)
        || is_header(value)
        || is_algorithm(value)
        || is_member(value)
        || is_test(value)
        || is_option(value)
        || is_assignment(value)
        || is_place(value)
        || is_constraint(value)
        || is_hashed_name(value)
        || is_public_key(value)
}

/// Returns whether a value that looks random is none of a secret.
pub(super) fn is_no_secret(text: &str, value: Range<usize>) -> bool {
    is_tag(&text[..value.start], &text[value.clone()]) || is_of_other_form(&text[value])
}

/// Returns whether a value is a path in code or the name of a type of or for secrets, as behind the name of a variable.
fn is_type(value: &str) -> bool {
    const ENDS: [&str; 8] = ["Config", "Header", "Key", "KeyPair", "Pair", "Scheme", "Secret", "Token"];
    let name = value.trim_end_matches(|c: char| c.is_ascii_punctuation());
    let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.:".contains(&byte);
    let is_digits = |part: &str| part.len() >= 16 && part.bytes().all(|byte| byte.is_ascii_hexdigit());
    let is_name = |part: &str| !is_very_random(part) && !is_digits(part);
    let stem = ENDS.iter().find_map(|end| name.strip_suffix(end));
    name.bytes().all(is_of_name)
        && stem.unwrap_or(name).split(':').all(is_name)
        && (stem.is_some() || name.contains("::") || is_type_for_secrets(name))
}

/// Returns whether a name is that of a type in a program for secrets, such as `ApiKeyService`: nothing but capitalized words.
fn is_type_for_secrets(name: &str) -> bool {
    const WORDS: [&str; 5] = ["ApiKey", "Credential", "Password", "Secret", "Token"];
    const SHORTEST: usize = 3;
    let starts: Vec<_> = name.match_indices(|c: char| c.is_ascii_uppercase()).map(|(at, _)| at).collect();
    let ends = starts.iter().skip(1).copied().chain([name.len()]);
    let is_word = |(start, end): (&usize, usize)| end - start >= SHORTEST;
    name.bytes().all(|byte| byte.is_ascii_alphabetic())
        && starts.first() == Some(&0)
        && starts.len() > 1
        && starts.iter().zip(ends).all(is_word)
        && WORDS.iter().any(|word| name.contains(word))
}

/// Returns whether a value is a public key of SSH (RFC 4253, section 6.6).
fn is_public_key(value: &str) -> bool {
    const BEGINNINGS: [&str; 6] = [
        "AAAAB3NzaC1kc3MAAACB",
        "AAAAB3NzaC1yc2EAAAADAQAB",
        "AAAAC3NzaC1lZDI1NTE5AAAAI",
        "AAAAE2VjZHNhLXNoYTItbmlzdH",
        "AAAAGnNrLXNzaC1lZDI1NTE5",
        "AAAAInNrLWVjZHNhLXNoYTIt",
    ];
    let key = value.rsplit(' ').next().unwrap_or_default();
    BEGINNINGS.iter().any(|beginning| value.starts_with(beginning) || key.starts_with(beginning))
}

/// Returns whether a value is the path of a member in a program, such as `app.settings.DryRun`.
fn is_member(value: &str) -> bool {
    let is_name = |part: &str| {
        !part.is_empty()
            && part.bytes().all(|byte| byte.is_ascii_alphabetic() || byte == b'_')
            && !is_random(part)
    };
    value.contains('.') && value.split('.').all(is_name)
}

/// Returns whether a value is the name of a test, as programs write it behind `PASS`.
fn is_test(value: &str) -> bool {
    let name = value
        .strip_prefix("Test")
        .filter(|name| name.starts_with(|c: char| c.is_ascii_uppercase() || c == '_'));
    name.is_some_and(|name| {
        name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_/".contains(&byte))
            && !is_very_random(name)
    })
}

/// Returns whether a value is the option of a command.
fn is_option(value: &str) -> bool {
    value
        .strip_prefix("--")
        .is_some_and(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()) && !is_key(name))
}

/// Returns whether a value is a variable of an environment with a value of its own, as on the line after one without a value.
fn is_assignment(value: &str) -> bool {
    let is_name = |name: &str| {
        name.contains('_')
            && name.starts_with(|c: char| c.is_ascii_uppercase())
            && name.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_')
    };
    value.split_once('=').is_some_and(|(name, rest)| is_name(name) && !rest.trim_matches('=').is_empty())
}

/// Returns whether a value begins with the number of a line, as in a list of matches, behind the name of a file.
fn is_place(value: &str) -> bool {
    const MOST_DIGITS: usize = 6;
    value.split_once(':').is_some_and(|(number, rest)| {
        (1..=MOST_DIGITS).contains(&number.len())
            && number.bytes().all(|byte| byte.is_ascii_digit())
            && !is_key(rest)
    })
}

/// Returns whether a value is the name of a constraint or an index that `TypeORM` or Hibernate has made of a hash.
fn is_constraint(value: &str) -> bool {
    static NAME: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            "^(?-u)(?:(?:CHK|DF|FK|IDX|PK|REL|UQ|XCL)_[0-9a-f]{26,27}|(?:FK|UK_?)[a-z0-9]{24,25})$",
        )
    });
    NAME.is_match(value)
}

/// Returns whether a value is the name of an object of Kubernetes with a hash of its content, as `kustomize` writes it: hexadecimal
/// digits, of which those that may make words are replaced.
fn is_hashed_name(value: &str) -> bool {
    const DIGITS: usize = 10;
    let is_of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"-.".contains(&byte);
    value.rsplit_once('-').is_some_and(|(name, hash)| {
        hash.len() == DIGITS
            && hash.bytes().all(|byte| b"2456789bcdfghkmt".contains(&byte))
            && name.bytes().all(is_of_name)
            && !is_random(name)
    })
}

/// Returns whether a value is a checksum: of the file whose name is before it, in the form of BSD, or in an annotation of Kubernetes,
/// as charts of Helm have. `before` is the text up to what looks like the name of a secret, and `between` what is from there to the
/// value.
pub(super) fn is_checksum(before: &str, between: &str, value: &str) -> bool {
    static NAME: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r"(?i-u)(?:\bchecksum/[a-z0-9_.-]*|\b(?:blake2[bps]+(?:-?[0-9]+)?|md[45]|rmd160|sha(?:-?[0-9]{1,3}(?:-[0-9]{3})?)?|sm3) ?\((?u:[^()\n])*)$",
        )
    });
    const DIGITS: [usize; 6] = [32, 40, 56, 64, 96, 128];
    const LONGEST: usize = 200;
    if !DIGITS.contains(&value.len()) || !value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return false;
    }
    let near = ending(before, LONGEST);
    let line = near.rsplit('\n').next().unwrap_or_default();
    // What is in the parentheses is the whole name of a file, and no argument.
    let is_of_file =
        || between.trim_end().strip_suffix('=').is_some_and(|name| name.trim_end().ends_with(')'));
    NAME.find(line).is_some_and(|name| !name.as_str().contains('(') || is_of_file())
}

/// Returns whether a name with its sign is that of a module or a package of which a log says what follows. `before` is the text
/// up to it.
pub(super) fn is_source(before: &str, name: &str) -> bool {
    const LONGEST: usize = 80;
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let near = ending(before, LONGEST);
    let path = near.trim_end_matches(is_of_name);
    let scope = path.strip_suffix('/').map(|path| path.trim_end_matches(is_of_name));
    // Something else than the path is before it in the line, as settings may have such names, too.
    let line = path.rsplit('\n').next().unwrap_or_default();
    let is_logger = path.ends_with("::") && line.trim_start().contains([' ', '\t']);
    let is_path = is_logger || scope.is_some_and(|scope| scope.ends_with('@'));
    is_path && name.ends_with(": ") && !name.contains(['"', '\'', '`'])
}

/// Returns whether a value is the tag of an image: the number of a commit, or a version, words, times and such a number. `before` is
/// the text up to it.
pub(super) fn is_tag(before: &str, value: &str) -> bool {
    static TAG: LazyLock<Expression> = LazyLock::new(|| {
        // A word, a number or a version, and the number of a commit, also behind the letter that `git describe` writes.
        Expression::builtin(
            "^(?-u)(?:(?:[A-Za-z]{1,16}|v?[0-9]{1,14}|[0-9]{8}T[0-9]{4,6}Z?)[._-])*\
            (?:g?(?:[0-9a-f]{7,12}|[0-9a-f]{40}|[0-9a-f]{64})|v?[0-9]{1,14}|[0-9]{8}T[0-9]{4,6}Z?)$",
        )
    });
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let name = before.strip_suffix(':').unwrap_or_default();
    let path = name.trim_end_matches(is_of_name);
    path.len() < name.len() && path.ends_with('/') && TAG.is_match(value)
}

/// Returns whether a value is the name of a header.
fn is_header(value: &str) -> bool {
    let is_word = |word: &str| word.bytes().all(|byte| byte.is_ascii_alphabetic()) && !is_random(word);
    value
        .strip_prefix("X-")
        .or_else(|| value.strip_prefix("x-"))
        .is_some_and(|name| name.split('-').all(is_word))
}

/// Returns whether a value is the name of an algorithm, such as `PBKDF2WithHmacSHA256`.
fn is_algorithm(value: &str) -> bool {
    static ALGORITHM: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            "^(?i-u:aes|and|argon2(?:id?)?|bcrypt|bit|cbc|chacha20|desede|des|ecb|ecdh|ecdsa|gcm|hasher|hmac|md5|mgf1|nopadding\
            |oaep|password|pbe|pbkdf2|pkcs[0-9]padding|poly1305|rsa|scrypt|sha|with|[0-9]{1,4}|[-_/+])+$",
        )
    });
    ALGORITHM.is_match(value)
}

/// Returns whether a value is a number of at most 64 bits, as languages write it.
fn is_number(value: &str) -> bool {
    let digits = value.strip_prefix("0x").or_else(|| value.strip_prefix("0X"));
    let digits = digits.map(|digits| digits.trim_end_matches(['u', 'U', 'l', 'L', 'n', ';', ',', ')']));
    digits.is_some_and(|digits| digits.len() <= 16 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a value is the address of an account or a contract (ERC-55), which may be one of a token.
pub(super) fn is_account(value: &str) -> bool {
    let digits = value.strip_prefix("0x").filter(|digits| digits.len() == 40);
    digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// Returns whether a value is the path of a file: from a folder at the root, or up to the extension of a name. The number of
/// a line may follow.
fn is_path(value: &str) -> bool {
    let value = value.trim_end_matches(|c: char| c.is_ascii_digit() || ":-".contains(c));
    let is_of_path = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./~".contains(&byte);
    let is_lower = |name: &str| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_lowercase());
    let from_root = value.strip_prefix('/').and_then(|path| path.split_once('/'));
    let file = value.rsplit_once('/').and_then(|(_, file)| file.rsplit_once('.'));
    let is_from_root = from_root.is_some_and(|(folder, _)| folder.len() >= 3 && is_lower(folder));
    let is_file =
        file.is_some_and(|(_, extension)| (2..=5).contains(&extension.len()) && is_lower(extension));
    value.bytes().all(is_of_path) && (is_from_root || is_file)
}

/// Returns whether a value is a time (RFC 3339), as logs have before each line.
fn is_time(value: &str) -> bool {
    let is_date = |date: &str| {
        let digits = |(place, byte): (usize, u8)| {
            if [4, 7].contains(&place) { byte == b'-' } else { byte.is_ascii_digit() }
        };
        date.len() == "2006-01-02".len() && date.bytes().enumerate().all(digits)
    };
    value
        .split_once('T')
        .is_some_and(|(date, time)| is_date(date) && time.starts_with(|c: char| c.is_ascii_digit()))
}

/// The beginning of the names of resources of AWS.
pub(super) const ARN: &str = "arn:aws";

/// Returns whether a text ends with the beginning of the name of a resource of AWS. The name of a secret is not one itself.
pub(super) fn is_in_arn(before: &str) -> bool {
    const LONGEST: usize = 80;
    let name = ending(before, LONGEST);
    name.ends_with(':')
        && name
            .rsplit(|c: char| c.is_whitespace() || "\"'`".contains(c))
            .next()
            .is_some_and(|arn| arn.contains(ARN))
}
