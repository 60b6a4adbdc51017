//! Tokens whose issuers have put a mark elsewhere than at their beginning, or of which a form tells more than a prefix.

use super::named::QUOTE;
use super::pattern::{CODE, Pattern, always};
use super::random::{is_varied, is_very_random};

/// The beginnings of JSON objects in base64, which may have blanks or the end of a line behind the brace.
const OBJECTS: [&str; 8] = ["eyJ", "eyAg", "eyAi", "ew0K", "ewki", "ewoJ", "ewog", "ewoi"];

/// Returns the patterns of these tokens.
pub(super) fn patterns() -> [Pattern; 31] {
    [
        // Application secrets of Entra ID, and API tokens of HCP Terraform, have their mark in the middle.
        Pattern::matches(
            &["Q~"],
            &format!("(?:^|[^A-Za-z0-9_~.-]|{CODE})([A-Za-z0-9_~.-]{{3}}[0-9]Q~[A-Za-z0-9_~.-]{{31,34}})"),
            always,
        ),
        // Keys of New Relic and MaxMind have their marks at the end.
        Pattern::matches(&["NRAL"], "([0-9a-f]{36}NRAL)", is_varied),
        Pattern::matches(&["_mmk"], "([A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk)", is_varied),
        Pattern::matches(&[".atlasv1."], r"([A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=-]{60,70})", always),
        // Bots of Telegram, also without the word before the token in the address of the API, and webhooks and bots of Discord.
        Pattern::matches(
            &[":AA"],
            &format!("(?:^|[^A-Za-z0-9_-]|{CODE})([0-9]{{8,10}}:AA[A-Za-z0-9_-]{{33}})(?:[^A-Za-z0-9_-]|$)"),
            always,
        ),
        Pattern::matches(
            &["/webhooks/"],
            r"discord(?:app)?\.com/api/(?:v[0-9]+/)?webhooks/([0-9]+/[A-Za-z0-9_-]{40,})",
            always,
        ),
        Pattern::matches(
            &["login(", "discord"],
            &format!(
                r"(?:^|[^A-Za-z0-9_.-]|{CODE})([MNO][A-Za-z0-9_-]{{23,27}}\.[A-Za-z0-9_-]{{6}}\.[A-Za-z0-9_-]{{27,}})"
            ),
            always,
        ),
        // Signatures of shared access in Azure, and keys of Mailchimp, which end with a data center.
        Pattern::matches(&["sig="], "(?:[?&;]|u0026)sig=([A-Za-z0-9%+/_-]{40,}=?)", always),
        Pattern::matches(
            &["-us"],
            &format!("(?:^|[^A-Za-z0-9]|{CODE})([0-9a-f]{{32}}-us[0-9]{{1,2}})(?:[^A-Za-z0-9]|$)"),
            always,
        ),
        // The token of an account of Twilio behind its number, and the secret of a key behind that of the key.
        Pattern::matches(
            &["\"AC", "'AC", "\"SK", "'SK"],
            r#"["'](?:AC|SK)[0-9a-f]{32}\\*["']\s*,\s*\\*["']([0-9A-Za-z]{32})\\*["']"#,
            is_varied,
        ),
        // A token of Copilot.
        Pattern::matches(&["tid="], r#"\b(tid=[0-9a-f]{32};exp=[^\s"']*?:[0-9a-f]{64})"#, always),
        Pattern::matches(&["T3BlbkFJ"], r"(sk-[A-Za-z0-9_-]{20,}T3BlbkFJ[A-Za-z0-9_-]{20,})", always),
        // JSON Web Tokens (RFC 7519), whose first two parts are JSON objects in base64url, or, if they are encrypted, of which
        // the first of five parts is (RFC 7516).
        Pattern::matches(
            &OBJECTS,
            &format!(
                r"(?:^|[^A-Za-z0-9]|{CODE})({object}\.(?:{object}(?:\.[A-Za-z0-9_-]*)?|[A-Za-z0-9_-]*(?:\.[A-Za-z0-9_-]{{8,}}){{3}}))",
                object = format_args!("(?:{})[A-Za-z0-9_-]{{8,}}", OBJECTS.join("|")),
            ),
            always,
        ),
        // Shares of the key with which a vault is sealed, in the output and the arguments of its program.
        Pattern::matches(
            &["unseal key", "recovery key", "operator unseal "],
            r"(?i)(?:(?:unseal|recovery) key(?: [0-9]+)?:|operator unseal)\s+([0-9a-f]{64,66}|[a-z0-9+/]{43}[a-z0-9+/=])",
            is_varied,
        ),
        // Webhooks of Teams, whose hosts have the names of tenants.
        Pattern::matches(
            &[".webhook.office.com"],
            r"\.webhook\.office\.com(?:\\*/|%2F)webhookb2(?:\\*/|%2F)((?:\\*/|%2F|%40|[A-Za-z0-9@-]){40,})",
            always,
        ),
        // Those of WeCom and Feishu, whose keys are ids.
        Pattern::matches(
            &["/cgi-bin/webhook/", "/bot/v2/hook/"],
            r"/(?:cgi-bin/webhook/[a-z_]+\?key=|bot/v2/hook/)([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})",
            always,
        ),
        // Addresses of nodes of block chains, which have keys in them.
        Pattern::matches(
            &[".alchemy.com", ".infura.io", ".quiknode.pro"],
            r"(?:\.(?:alchemy\.com|infura\.io)\\?/(?:(?:nft|ws)\\?/)?v[0-9]|\.quiknode\.pro)\\?/([A-Za-z0-9_-]{30,})",
            is_varied,
        ),
        // Keys of accounts on a block chain, in the settings of its programs.
        Pattern::matches(
            &["accounts", "_pk"],
            &format!(
                r"(?i-u)(?:\baccounts\s*:\s*\[\s*|(?:account|deployer|eth|funder|owner|sender|signer|wallet)_pk{QUOTE}?\s*[:=]\s*){QUOTE}?(?:0x)?([0-9a-f]{{64}})\b"
            ),
            is_varied,
        ),
        // The identifier by which a program logs in to Vault or Nomad.
        Pattern::matches(
            &["secret_id ", "secret id "],
            r"(?i-u)\bsecret[ _]id(?:[ \t]*=[ \t]*|[ \t]{2,})([0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12})",
            is_varied,
        ),
        // Keys whose prefixes names begin with, too: those of Voyage, GoCardless, Brave, Unkey, Lichess, Yandex, Thunderstore, Val Town,
        // Mollie and others.
        Pattern::token("pa-", "^pa-[A-Za-z0-9_-]{43}", is_very_random),
        Pattern::token("live_", "^live_(?:[A-Za-z0-9_-]{40}|[A-Za-z0-9]{30}(?-u:\\b))", is_very_random),
        Pattern::token("test_", "^test_[A-Za-z0-9]{30}(?-u:\\b)", is_very_random),
        Pattern::token("sandbox_", "^sandbox_[A-Za-z0-9_-]{40}", is_very_random),
        Pattern::token("BSA", "^BSA[A-Za-z0-9_-]{24,}", is_very_random),
        Pattern::token("unkey_", "^unkey_[A-Za-z0-9]{20,}", is_very_random),
        Pattern::token("lip_", "^lip_[A-Za-z0-9]{20}", is_very_random),
        Pattern::token("y0_", "^y0_[A-Za-z0-9_-]{30,}", is_very_random),
        Pattern::token("tss_", "^tss_[A-Za-z0-9]{36}", is_very_random),
        Pattern::token("vtwn_", "^vtwn_[A-Za-z0-9]{20,}", is_very_random),
        Pattern::token("sk-", "^sk-[A-Za-z0-9_-]{20,}", is_very_random),
        // Tokens of other services whose prefixes say what they are.
        Pattern::matches(
            &["_live_", "_prod_", "_api_", "_pat_", "_secret_"],
            &format!(
                "(?:^|{CODE}|[^A-Za-z0-9_])([a-z][a-z0-9]{{1,11}}_(?:live|prod|api|pat|secret)_[A-Za-z0-9]{{20,}})"
            ),
            |token| token.rsplit('_').next().is_some_and(is_very_random),
        ),
    ]
}
