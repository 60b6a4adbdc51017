//! Passwords in the arguments of programs, and in files, statements and calls in which their place tells what they are.

use std::ops::Range;
use std::sync::LazyLock;

use super::expression::Expression;
use super::lists::elements;
use super::other_forms::is_account;
use super::pattern::{CODE, Pattern, always};
use super::random::{is_key, is_long_number, is_random, is_very_random};
use super::value_ends::{LONGEST, ending};

/// A quotation mark, also in the escapes of code.
const QUOTE: &str = r#"(?:\\*["'])?"#;

/// What is between an option and its value, also if each is a string of an array.
const THEN: &str = r#"(?:\\*["']\s*,|=)?\s*(?:\\*["'])?"#;

/// A password between blanks or quotation marks.
const PASSWORD: &str = r#"([^\s"'\\]{8,})"#;

/// The rest of a command up to one of its arguments. It goes on in the next line behind the mark of a shell, and in an array behind
/// each element.
const ARGUMENTS: &str = r#"(?:[^\n|;&]|[\\`^,\[(]\r?\n){0,400}?[\s,"']"#;

/// What is given to a program that reads a password, perhaps behind the name of a user, and perhaps twice.
const GIVEN: &str = r#"(?:[$a-z0-9_.{}-]+:)?([^\s"'\\|$`:][^\s"'\\|]{7,}(?:\\+n[^\s"'\\|]{8,})?)"#;

/// What tells that a command reads a password from its input.
const READS: &str = r"(?:(?-u:\b)chpasswd(?-u:\b)|(?-u:\b)kinit(?-u:\b)|cryptsetup(?-u:\b)|sudo\s(?:[^\n|;&<]{0,64}?\s)?-[a-z]*(?-i:S)|(?-u:\b)(?:passwd|htpasswd|smbpasswd|su)\s|(?-u:\b)(?:sudo|login)\s(?:[^\n|;&<]{0,64}?\s)?--stdin|--pass(?:word)?-stdin|--with-token|--passphrase-fd[ =]0|-pass(?:in|out)?\s+stdin|(?-u:\b)secrets?\s+(?:set|create|put|add|versions\s+add)(?-u:\b)|\senv\s+add\s|vault\s+login|devops\s+login)";

/// The pipe to a command and its beginning, which may go on in the next line. What is given may be stripped of its end on the way.
const PIPE: &str =
    r"\s*(?:\\\r?\n\s*)?\|\s*(?:\\\r?\n\s*)?(?:tr\s[^|\n]{1,32}\|\s*)?(?:[^\n|;&]|\\\r?\n){0,300}?";

/// The beginning of a document in a command of a shell.
const DOCUMENT: &str = r#"<<-?\s*\\*["']?[a-z_]+\\*["']?"#;

/// The end of a line, also in a string, and the blanks before the next one.
const LINE: &str = r"(?:\r?\n|\\+n)\s*";

/// The ends of the names of functions that log in, sign or encrypt, and of arguments with a user and a password.
const CALLS: [&str; 44] = [
    "auth(",
    "auth=(",
    "auth = (",
    "authentication(",
    "auth.basic(",
    "login(",
    "simple_bind_s(",
    "algoliasearch(",
    "hmac.hexdigest(",
    "hmacsha256(encoding.utf8.getbytes(",
    "pgp_sym_encrypt(",
    "credential(",
    "credentials(",
    "mysqli(",
    "connect(",
    "connection(",
    "sequelize(",
    "pdo->__construct(",
    "username_pw_set(",
    "hmac(",
    "hmac.new(",
    "jwt.encode(",
    "jwt.sign(",
    "jwt.verify(",
    "fernet(",
    "pdo(",
    "hmac256(",
    "hmac384(",
    "hmac512(",
    "hmacshakeyfor(",
    "jwt::encode(",
    "jwt::decode(",
    "signwith(",
    "symmetricsecuritykey(encoding.utf8.getbytes(",
    "aes.encrypt(",
    "aes.decrypt(",
    "aes.new(",
    "openssl_encrypt(",
    "cipheriv(",
    "cookieparser(",
    "privatekeytoaccount(",
    "startbroadcast(",
    "wallet(",
    "wifi.begin(",
];

/// Returns the strings among the arguments of such functions that look like nothing but secrets. The others are users, hosts
/// and databases.
fn arguments(text: &str) -> Vec<Range<usize>> {
    static CALL: LazyLock<Expression> = LazyLock::new(|| {
        let names = CALLS.map(regex::escape).join("|");
        Expression::builtin(&format!(
            r#"(?i)([a-z0-9_.]*(?:{names}))((?:[^"'`)]|"[^"\n]*"|'[^'\n]*'|`[^`\n]*`)*)"#
        ))
    });
    static STRING: LazyLock<Expression> =
        LazyLock::new(|| Expression::builtin(r#"["'`]([^\s"'`\\]+)\\*["'`]"#));
    let calls = CALL.captures_iter(text).filter_map(|call| call.get(1).zip(call.get(2)));
    let strings = calls.flat_map(|(name, arguments)| {
        let name = ending(name.as_str(), LONGEST);
        let strings = STRING.captures_iter(arguments.as_str()).filter_map(|string| string.get(1));
        strings
            .enumerate()
            .filter(move |(place, string)| is_password(name, *place, string.as_str()))
            .map(move |(_, string)| arguments.start() + string.start()..arguments.start() + string.end())
    });
    strings.collect()
}

/// Returns whether a string in this place among those in the arguments of a function is a secret. A hexadecimal number may also
/// be an identifier, a digest, or the address of an account.
fn is_password(name: &str, place: usize, string: &str) -> bool {
    const OTHERS: [&str; 4] = ["verif", "check", "valid", "disconnect"];
    /// The number of digits of a private key.
    const DIGITS: usize = 64;
    let name = name.to_ascii_lowercase();
    let connects = ["connect(", "connection("].iter().any(|end| name.ends_with(end));
    let is_number = string
        .strip_prefix("0x")
        .map_or_else(|| is_long_number(string), |digits| digits.len() == DIGITS && is_long_number(digits));
    let is_other = OTHERS.iter().any(|word| name.contains(word)) || connects && place == 0;
    !is_account(string) && (is_very_random(string) || is_number && !is_other)
}

/// Returns the defaults of variables of Terraform that have the names of secrets. One may be a list.
fn defaults(text: &str) -> Vec<Range<usize>> {
    static DEFAULT: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(
            r#"(?i)variable\s+"[^"\n]*(?:pass|pwd|secret|token|key)[^"\n]*"\s*\{[^}]{0,1000}?\bdefault\s*=\s*(?:\[\s*)?"([^"\n]{8,})""#,
        )
    });
    let defaults = DEFAULT.captures_iter(text).filter_map(|found| found.get(1));
    let values = defaults.filter(|value| is_random(value.as_str())).map(|value| value.range());
    values.flat_map(|value| elements(text, value.start, &value).into_iter().chain([value])).collect()
}

/// Returns the passwords of the accounts that are on lines of their own behind `chpasswd`: in a document that the program reads, or in
/// the configuration of a machine in a cloud.
fn accounts(text: &str) -> Vec<Range<usize>> {
    static LINES: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(
            r"(?i)(?-u:\b)chpasswd(?::(?:\s|expire:\s*[a-z]+)*list:[ \t]*\|?|[^\n|;&\\]{{0,64}}?{DOCUMENT}[^\n\\]{{0,64}})((?:{LINE}(?:- )?[a-z_][a-z0-9_.-]*:[^\s\\]+)+)"
        ))
    });
    static ACCOUNT: LazyLock<Expression> = LazyLock::new(|| {
        Expression::builtin(&format!(r"(?i){LINE}(?:- )?[a-z_][a-z0-9_.-]*:([^\s\\]{{8,}})"))
    });
    let lines = LINES.captures_iter(text).filter_map(|found| found.get(1));
    let passwords = lines.flat_map(|lines| {
        let passwords = ACCOUNT.captures_iter(lines.as_str()).filter_map(|account| account.get(1));
        passwords.map(move |password| lines.start() + password.start()..lines.start() + password.end())
    });
    passwords.filter(|password| is_random(&text[password.clone()])).collect()
}

/// Returns the patterns of passwords at such places.
pub(super) fn patterns() -> impl Iterator<Item = Pattern> {
    let patterns: [(&'static [&'static str], String); 19] = [
        // The user and the password of curl, wget and others.
        (
            &["-u ", "-u=", "-u\"", "-u'", "-u\\", "--user ", "--user=", "--user\"", "--user'", "--user\\"],
            format!(r#"(?:^|[\s"'])(?:-u|--user){THEN}[^\s:"'\\]*:([^\s"'\\/][^\s"'\\]{{7,}})"#),
        ),
        (
            &["curl"],
            format!(r#"(?:(?-u:\b)|{CODE})curl{ARGUMENTS}(?:-[a-z]*u|--(?:proxy-)?user){THEN}[^\s:"'\\]*:([^\s"'\\/][^\s"'\\]{{7,}})"#),
        ),
        (&["mysql", "mariadb"], format!(r"(?:(?-u:\b)|{CODE})(?:mysql|mariadb)[a-z-]*{ARGUMENTS}(?:(?-i:-p)|--password=){QUOTE}{PASSWORD}")),
        (&["sshpass"], format!(r#"(?:(?-u:\b)|{CODE})sshpass(?:\\*["']\s*,)?\s*{QUOTE}-p{THEN}{PASSWORD}"#)),
        (&["redis-cli"], format!(r"redis-cli{ARGUMENTS}(?-i:-a){THEN}{PASSWORD}")),
        (&["mongo"], format!(r"(?:(?-u:\b)|{CODE})mongo[a-z]*{ARGUMENTS}(?-i:-p){THEN}{PASSWORD}")),
        (&["ldap"], format!(r"(?:(?-u:\b)|{CODE})ldap[a-z]+{ARGUMENTS}(?-i:-w){THEN}{PASSWORD}")),
        (
            &["sqlcmd", "unzip", "mosquitto_"],
            format!(r"(?:(?-u:\b)|{CODE})(?:sqlcmd|unzip|mosquitto_[ps]ub){ARGUMENTS}(?-i:-P){THEN}{PASSWORD}"),
        ),
        (
            &[" login ", "\"login", "'login"],
            format!(r#"[\s"']login\\*[\s"'](?:{ARGUMENTS})??-p{THEN}{PASSWORD}"#),
        ),
        // The words of .netrc and of the configuration of Redis.
        (&["password ", "requirepass ", "masterauth "], format!(r"(?:(?:(?-u:\b)|{CODE})password|requirepass|masterauth)[ \t]+{QUOTE}{PASSWORD}")),
        // A line of .pgpass, also in a listing, a quotation, a comparison or a string.
        (
            &[":5432:", ":5433:", ":6432:", ":*:"],
            r#"(?m)^\s*(?:[0-9]{1,6}(?:→|[:\t ])\s*|[>+-]\s?)?[^\s:]+:(?:[0-9]{2,5}|\*):[^\s:]+:[^\s:]+:([^\s:]{8,})\s*$|(?:["']|\\+[nr])[^\s:"'\\]+:(?:[0-9]{2,5}|\*):[^\s:]+:[^\s:]+:([^\s:"'\\]{8,})"#
                .to_owned(),
        ),
        // The address of a database in Go, in which the protocol and the host may be left out.
        (
            &["@tcp(", "@tcp4(", "@tcp6(", "@unix(", "@cloudsql", "@(", "@/"],
            r#"[A-Za-z0-9_.-]+:([^\s"'`]{8,})@(?:(?:tcp[46]?|unix|cloudsql[a-z-]*)?\(|/[A-Za-z0-9_%]*(?:[?"'`\s\\]|$))"#.to_owned(),
        ),
        // What a program reads from another one that writes it, or, in PowerShell, from a string.
        (
            &["echo ", "printf ", "write-output "],
            format!(
                r#"(?:(?-u:\b)|{CODE})(?:echo|printf|write-output)\s+(?:-[ne]+\s+)?(?:\\*["']?[^\s"'%|]{{0,64}}%s(?:\\+n)?\\*["']?\s+)?{QUOTE}{GIVEN}(?:\\+n[^"'|]{{0,64}})?{QUOTE}{PIPE}{READS}"#
            ),
        ),
        (&["\" |", "' |"], format!(r#"(?m)^\s*["']{GIVEN}["']{PIPE}{READS}"#)),
        // A document or a string in the command that reads it.
        (
            &["<<"],
            format!(
                r"(?:{READS}[^\n|;&<]{{0,200}}?(?:<<<\s*{QUOTE}|{DOCUMENT}[^\n|;&\\]{{0,64}}{LINE})|{DOCUMENT}\s*\|[^\n;&]{{0,200}}?{READS}[^\n\\]{{0,200}}{LINE}){GIVEN}"
            ),
        ),
        (&["identified"], format!(r"identified\s+(?:with\s+\S+\s+)?by\s+(?:password\s+)?{QUOTE}{PASSWORD}")),
        // A user and a password that a program encodes for a header.
        (
            &["btoa(", "b64encode(", "base64_encode(", "encodetostring(", "buffer.from(", "getbytes(", "base64.encode(", "| base64", "|base64"],
            r#"(?:btoa\(|b64encode\(|base64_encode\(|encodetostring\(|buffer\.from\(|getbytes\(|base64\.encode\()(?:\[\]byte\()?(?:[a-z_.]{1,32}\s*\+\s*)?[bf]?\\*["'`][^\s"':`\\]{0,64}:([^\s"'`\\/;,]{8,})\\*["'`]|(?:echo\s+-n|printf)\s+\\*["'`]?[^\s"':`\\]{0,64}:([^\s"'`\\/;,|]{8,})\\*["'`]?\s*\|\s*(?:openssl\s+)?base64"#.to_owned(),
        ),
        // The private members of a JSON Web Key (RFC 7518, section 6), which are strings.
        (
            &["kty\"", "kty'", "kty\\"],
            r#"["'](?:d|dp|dq|k|p|q|qi)\\*["']\s*:\s*\\*["']([a-z0-9_-]{16,})"#.to_owned(),
        ),
        // Keys of clients and credentials of registries, which are in base64.
        (
            &["client-key-data", "\"auth\"", "\"auth\\"],
            r#"(?:client-key-data|\\*"auth\\*")\\*"?\s*:\s*\\*"?((?:[A-Za-z0-9+/=]|\\+/){16,})"#.to_owned(),
        ),
    ];
    let patterns =
        patterns.map(|(anchors, regex)| Pattern::matches(anchors, &format!("(?i){regex}"), is_random));
    // A token in the place of the user, without a password or with one that says nothing.
    let user = Pattern::matches(
        &["curl", "-u ", "-u\"", "-u'", "--user ", "--user=", "--user\"", "--user'"],
        &format!(
            r#"(?:^|[\s"'])(?:-[A-Za-z]*u|--user){THEN}([^\s:"'\\]{{16,}}):(?:[Xx]|x-oauth-basic)?(?:[\s"'\\]|$)"#
        ),
        is_key,
    );
    // The first password of a database, which it prints when it is started or when the password is set anew.
    let first = Pattern::matches(
        &["password is generated for", "generated root password", "password for the"],
        r"(?i)(?:temporary password is generated for \S+:|generated root password:)\s+(\S{8,})|password for the \[?elastic\]? user[^\n]*\n\s*(?:new value: )?(\S{12,})",
        always,
    );
    let others = [
        first.on_two_lines(),
        Pattern::values(&CALLS, arguments),
        Pattern::values(&["variable \""], defaults),
        Pattern::values(&["chpasswd"], accounts),
        user,
    ];
    patterns.into_iter().chain(others)
}
