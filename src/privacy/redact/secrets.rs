//! The built-in rule `secrets`: keys and tokens by the forms that their issuers have published, and passwords by the
//! names before them.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

use super::named::QUOTE;
use super::random::{is_key, is_random, is_varied, is_very_random};
use super::{CODE, Pattern, always, azure, builtin, commands, named, pairs, private_keys};

/// A token that begins with its issuer's prefix and continues with at least this many characters of a class.
struct Shape {
    issuer: &'static str,
    prefix: &'static str,
    rest: &'static str,
}

const fn shape(issuer: &'static str, prefix: &'static str, rest: &'static str) -> Shape {
    Shape { issuer, prefix, rest }
}

/// The tokens that are recognized by their prefix. The rest are regular expressions.
const SHAPES: &[Shape] = &[
    shape("1password", "A3-", "[A-Z0-9]{6}-(?:[A-Z0-9]{11}|[A-Z0-9]{6}-[A-Z0-9]{5})(?:-[A-Z0-9]{5}){3}"),
    shape("adafruit", "aio_", "[A-Za-z0-9]{28}"),
    shape("adobe", "p8e-", "[A-Za-z0-9_-]{32}"),
    shape("age", "AGE-SECRET-KEY-1", "[A-Z0-9]{50,}"),
    shape("age", "AGE-SECRET-KEY-PQ-1", "[A-Z0-9]{50,}"),
    shape("aiven", "AVNS_", "[A-Za-z0-9_-]{15,}"),
    shape("airtable", "pat", r"[A-Za-z0-9]{14}\.[0-9a-f]{60,}"),
    shape("alibaba", "LTAI", "[A-Za-z0-9]{12,30}"),
    shape("amazon", "amzn1.oa2-cs.v1.", "[0-9a-f]{64}"),
    shape("amazon", "amzn.mws.", "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("anthropic", "sk-ant-", "[A-Za-z0-9_-]{20,}"),
    shape("anyscale", "esecret_", "[a-z0-9]{20,}"),
    shape("apify", "apify_api_", "[A-Za-z0-9]{30,}"),
    shape("artifactory", "AKCp", "[A-Za-z0-9]{60,}"),
    shape("artifactory", "cmVmdGtu", "[A-Za-z0-9]{56}"),
    shape("astra", "AstraCS:", "[A-Za-z0-9]{20,}:[0-9a-f]{60,}"),
    shape("atlassian", "ATATT3", "[A-Za-z0-9_=-]{40,}"),
    shape("atlassian", "ATCTT3", "[A-Za-z0-9_=-]{40,}"),
    shape("aws", "AKIA", "[A-Z0-9]{16}"),
    shape("aws", "ASIA", "[A-Z0-9]{16}"),
    shape("aws", "ABIA", "[A-Z0-9]{16}"),
    shape("aws", "ACCA", "[A-Z0-9]{16}"),
    shape("aws-bedrock", "ABSK", "[A-Za-z0-9+/=]{60,}"),
    shape("aws-bedrock", "bedrock-api-key-", "[A-Za-z0-9+/=]{60,}"),
    shape("axiom", "xaat-", "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("axiom", "xapt-", "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("bitbucket", "ATBB", "[A-Za-z0-9]{32}"),
    shape("bitbucket", "BBDC-", "[A-Za-z0-9+/_-]{40,}"),
    shape("braintree", "access_token$", r"(?:production|sandbox)\$[0-9a-z]{16}\$[0-9a-f]{32}"),
    shape("browserbase", "bb_live_", "[A-Za-z0-9_-]{20,}"),
    shape("buildkite", "bkua_", "[0-9a-f]{40}"),
    shape("cerebras", "csk-", "[a-z0-9]{40,}"),
    shape("circleci", "CCIPAT_", "[A-Za-z0-9_]{40,}"),
    shape("circleci", "CCIPRJ_", "[A-Za-z0-9_]{40,}"),
    shape("clojars", "CLOJARS_", "[a-z0-9]{60}"),
    shape("cloudflare-origin", "v1.0-", "[0-9a-f]{24}-[0-9a-f]{146}"),
    shape("cloudflare", "cf", "(?:ut|at|k)_[A-Za-z0-9]{40,}"),
    // The token of a tunnel is a JSON object in base64.
    shape("cloudflare", "eyJhIjoi", "[A-Za-z0-9+/=_-]{100,}"),
    shape("cockroach", "CCDB1_", "[A-Za-z0-9_-]{20,}"),
    shape("contentful", "CFPAT-", "[A-Za-z0-9_-]{40,}"),
    shape("context7", "ctx7sk-", "[A-Za-z0-9-]{30,}"),
    shape("crates", "cio", "[A-Za-z0-9]{32}"),
    shape("cursor", "crsr_", "[A-Za-z0-9]{40,}"),
    shape("databricks", "dapi", "[0-9a-f]{32}"),
    shape("databricks", "dose", "[0-9a-f]{32}"),
    shape("datadog", "ddapp_", "[A-Za-z0-9]{34,}"),
    shape("deepseek", "sk-", "[0-9a-f]{32}"),
    shape("defined-networking", "dnkey-", "[A-Za-z0-9]{26}-[A-Za-z0-9]{52}"),
    shape("deno", "ddp_", "[A-Za-z0-9]{36,}"),
    shape("devcycle", "dvc_", "(?:server|mobile)_[A-Za-z0-9_-]{20,}"),
    shape("digitalocean", "dop_v1_", "[0-9a-f]{64}"),
    shape("digitalocean", "doo_v1_", "[0-9a-f]{64}"),
    shape("digitalocean", "dor_v1_", "[0-9a-f]{64}"),
    shape("docker", "dckr_pat_", "[A-Za-z0-9_-]{20,}"),
    shape("docker", "dckr_oat_", "[A-Za-z0-9_-]{20,}"),
    shape("django", "django-insecure-", "[a-z0-9!@#$%^&*(=+)_-]{40,}"),
    shape("doppler", "dp.", r"(?:pt|st|ct|sa|scim|audit)\.(?:[a-z0-9_-]+\.)?[A-Za-z0-9]{40,}"),
    shape("dropbox", "sl.", "[A-Za-z0-9_.-]{100,}"),
    shape("duffel", "duffel_", "(?:test|live)_[A-Za-z0-9_-]{40,}"),
    shape("dynatrace", "dt0c01.", r"[A-Z0-9]{24}\.[A-Z0-9]{60,}"),
    shape("dynatrace", "dt0s02.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{60,}"),
    shape("dynatrace", "dt0s16.", r"[A-Z0-9]{8,24}\.[A-Z0-9]{60,}"),
    shape("e2b", "e2b_", "[0-9a-f]{40}"),
    shape("ebay", "v^1.1#i^1#", "[A-Za-z0-9^#+/=]{40,}"),
    shape("easypost", "EZAK", "[A-Za-z0-9]{54}"),
    shape("easypost", "EZTK", "[A-Za-z0-9]{54}"),
    shape("elastic", "essu_", "[A-Za-z0-9+/=_-]{40,}"),
    shape("elevenlabs", "sk_", "[0-9a-f]{48}"),
    shape("facebook", "EAA", "[A-Za-z0-9]{80,}"),
    shape("figma", "figd_", "[A-Za-z0-9_-]{38,}"),
    shape("figma", "figu_", "[A-Za-z0-9_-]{38,}"),
    shape("firecrawl", "fc-", "[0-9a-f]{32}"),
    shape("fireworks", "fw_", "[A-Za-z0-9]{22,}"),
    shape("flutterwave", "FLWSECK", "[A-Za-z0-9_-]{20,}"),
    shape("fly", "FlyV1 fm", "[A-Za-z0-9_+/=,-]{40,}"),
    shape("fly", "fm1", "[ar]_[A-Za-z0-9+/=,-]{40,}"),
    shape("fly", "fm2_", "[A-Za-z0-9_+/=,-]{40,}"),
    shape("fly", "fo1_", "[A-Za-z0-9_-]{40,}"),
    shape("frameio", "fio-u-", "[A-Za-z0-9_=-]{60,}"),
    shape("fullstory", "na1.", "[A-Za-z0-9+/=]{80,}"),
    shape("gcp", "AIza", "[A-Za-z0-9_-]{35}"),
    shape("gcp", "AQ.Ab8", "[A-Za-z0-9_-]{40,}"),
    shape("gcp-oauth", "GOCSPX-", "[A-Za-z0-9_-]{24,}"),
    shape("gcp-oauth", "1//0", "[A-Za-z0-9_-]{40,}"),
    shape("gcp-oauth", "ya29.", "[A-Za-z0-9_-]{30,}"),
    shape("github", "ghp_", "[A-Za-z0-9]{36,}"),
    shape("github", "gho_", "[A-Za-z0-9]{36,}"),
    shape("github", "ghu_", "[A-Za-z0-9]{36,}"),
    shape("github", "ghs_", "[A-Za-z0-9]{36,}"),
    // The token of an installation has the number of the application before a JSON Web Token.
    shape("github", "ghs_", r"[0-9]+_eyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+"),
    shape("github", "ghr_", "[A-Za-z0-9]{36,}"),
    shape("github", "github_pat_", "[A-Za-z0-9_]{60,}"),
    shape("gitlab", "glpat-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glrt-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glrtr-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "gldt-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glft-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glffct-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "gloas-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glwt-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glsoat-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glimt-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glagent-", "[A-Za-z0-9_.-]{40,}"),
    shape("gitlab", "glcbt-", "[A-Za-z0-9_.-]{20,}"),
    shape("gitlab", "glptt-", "[A-Za-z0-9_.-]{40,}"),
    shape("gitlab", "GR1348941", "[A-Za-z0-9_-]{20,}"),
    shape("grafana", "glsa_", "[A-Za-z0-9]{32}_[A-Za-z0-9]{8}"),
    shape("grafana", "glc_", "[A-Za-z0-9+/=]{32,}"),
    shape("grafana", "eyJrIjoi", "[A-Za-z0-9+/=_-]{60,}"),
    shape("groq", "gsk_", "[A-Za-z0-9]{40,}"),
    shape("harness", "pat.", r"[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    shape("harness", "sat.", r"[A-Za-z0-9_-]{22}\.[0-9a-f]{24}\.[A-Za-z0-9]{20}"),
    shape("helicone", "sk-helicone-", "[a-z0-9-]{20,}"),
    shape("heroku", "HRKU-", "[A-Za-z0-9_-]{36,}"),
    shape("hubspot", "pat-", "(?:ap|eu|na)[0-9]-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("huggingface", "hf_", "[A-Za-z0-9]{30,}"),
    shape("huggingface", "api_org_", "[A-Za-z0-9]{30,}"),
    shape("infracost", "ico-", "[A-Za-z0-9]{32}"),
    shape("inngest", "signkey-", "(?:prod|test|branch|staging)-[0-9a-f]{32,}"),
    shape("instagram", "IGQV", "[A-Za-z0-9_-]{80,}"),
    shape("instagram", "IGAA", "[A-Za-z0-9_-]{80,}"),
    shape("intercom", "dG9rOj", "[A-Za-z0-9+/=]{40,}"),
    shape("jina", "jina_", "[0-9a-f]{32}[A-Za-z0-9_-]{20,}"),
    shape("k3s", "K10", "[0-9a-f]{64}::(?:[a-z]+:)?[A-Za-z0-9.]{16,}"),
    shape("langfuse", "sk-lf-", "[0-9a-f-]{36}"),
    shape("langsmith", "lsv2_", "(?:pt|sk)_[0-9a-f]{32}_[0-9a-f]{10}"),
    shape("langsmith", "ls__", "[0-9a-f]{32}"),
    shape("launchdarkly", "sdk-", "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("lichess", "lip_", "[A-Za-z0-9]{20}"),
    shape("lightspeed", "lsxs_pt_", "[A-Za-z0-9]{20,}"),
    shape("linear", "lin_api_", "[A-Za-z0-9]{40}"),
    shape("linear", "lin_oauth_", "[A-Za-z0-9]{40,}"),
    shape("llamacloud", "llx-", "[A-Za-z0-9]{40,}"),
    shape("lob", "live_", "[0-9a-f]{35}"),
    shape("logfire", "pylf_v1_", "[a-z]{2}_[A-Za-z0-9]{40,}"),
    shape("mailchimp", "md-", "[A-Za-z0-9]{22}"),
    shape("mailgun", "key-", "[0-9a-f]{32}"),
    shape("mailersend", "mlsn.", "[0-9a-f]{64}"),
    shape("mapbox", "sk.eyJ", r"[A-Za-z0-9_-]{40,}\.[A-Za-z0-9_-]{20,}"),
    shape("mem0", "m0-", "[A-Za-z0-9]{40}"),
    shape("midtrans", "Mid-server-", "[A-Za-z0-9_-]{20,}"),
    shape("mongodb", "mdb_sa_sk_", "[A-Za-z0-9_-]{40,}"),
    shape("moonshot", "sk-", "[A-Za-z0-9]{48}"),
    shape("n8n", "n8n_api_", "[A-Za-z0-9]{40,}"),
    shape("neon", "napi_", "[a-z0-9]{60,}"),
    shape("neon", "npg_", "[A-Za-z0-9]{12,}"),
    shape("netlify", "nfp_", "[A-Za-z0-9]{36,}"),
    shape("newrelic", "NRAK-", "[A-Z0-9]{27}"),
    shape("newrelic", "NRII-", "[A-Za-z0-9_-]{32}"),
    shape("newrelic", "NRIQ-", "[A-Za-z0-9_-]{32}"),
    shape("newrelic", "NRRA-", "[0-9a-f]{42}"),
    shape("newrelic", "NRSP-", "[A-Za-z0-9]{30,}"),
    shape("notion", "ntn_", "[A-Za-z0-9]{40,}"),
    shape("notion", "secret_", "[A-Za-z0-9]{43}"),
    shape("npm", "npm_", "[A-Za-z0-9]{36}"),
    shape("nuget", "oy2", "[a-z0-9]{43}"),
    shape("nvidia", "nvapi-", "[A-Za-z0-9_-]{60,}"),
    shape("octopus", "API-", "[A-Z0-9]{26}"),
    shape("onfido", "api_live", r"(?:_us|_ca)?\.[A-Za-z0-9-]{8,}\.[A-Za-z0-9_-]{32}"),
    shape("onfido", "api_sandbox", r"(?:_us|_ca)?\.[A-Za-z0-9-]{8,}\.[A-Za-z0-9_-]{32}"),
    shape("onepassword", "ops_eyJ", "[A-Za-z0-9+/=_-]{100,}"),
    shape("openai", "sk-", "(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}"),
    shape("openai", "sk-", "[A-Za-z0-9]{20}T3BlbkFJ[A-Za-z0-9]{20}"),
    shape("openai", "ek_", "[A-Za-z0-9]{30,}"),
    shape("openai", "sess-", "[A-Za-z0-9]{40}"),
    shape("openrouter", "sk-or-", "[A-Za-z0-9-]{40,}"),
    shape("openshift", "sha256~", "[A-Za-z0-9_-]{43}"),
    shape("paddle", "pdl_", "(?:live|sdbx)_apikey_[a-z0-9]{26}_[A-Za-z0-9]{22}_[A-Za-z0-9]{3}"),
    shape("pagerduty", "pdeu+_", "[A-Za-z0-9_-]{20,}"),
    shape("pagerduty", "pdus+_", "[A-Za-z0-9_-]{20,}"),
    shape("perplexity", "pplx-", "[A-Za-z0-9]{40,}"),
    shape("persona", "persona_", "(?:production|sandbox)_[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("pinecone", "pcsk_", "[A-Za-z0-9_]{40,}"),
    shape("pinterest", "pina_", "[A-Za-z0-9]{30,}"),
    shape(
        "plaid",
        "access-",
        "(?:development|production|sandbox)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}",
    ),
    shape("planetscale", "pscale_", "(?:tkn|pw|oauth)_[A-Za-z0-9_.=-]{30,}"),
    shape("polar", "polar_", "(?:oat|pat|rst|whs)_[A-Za-z0-9]{40,}"),
    shape("posthog", "phx_", "[A-Za-z0-9]{40,}"),
    shape("posthog", "phs_", "[A-Za-z0-9]{40,}"),
    shape("postman", "PMAK-", "[0-9a-f]{24}-[0-9a-f]{34}"),
    shape("postman", "PMAT-", "[A-Z0-9]{26}"),
    shape("prefect", "pnu_", "[A-Za-z0-9]{36}"),
    shape("prefect", "pnb_", "[A-Za-z0-9]{36}"),
    shape("pulumi", "pul-", "[0-9a-f]{40}"),
    shape("pypi", "pypi-", "[A-Za-z0-9_-]{50,}"),
    shape("quicknode", "QN_", "[0-9a-f]{32}"),
    shape("readme", "rdme_", "[a-z0-9]{70}"),
    shape("render", "rnd_", "[A-Za-z0-9]{28,}"),
    shape("replicate", "r8_", "[A-Za-z0-9]{37}"),
    shape("resend", "re_", "[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    shape("rootly", "rootly_", "[0-9a-f]{64}"),
    shape("rubygems", "rubygems_", "[0-9a-f]{48}"),
    shape("runpod", "rpa_", "[A-Za-z0-9]{40,}"),
    shape("salesforce", "00D", "[A-Za-z0-9]{12,15}![A-Za-z0-9._]{60,}"),
    shape("samsara", "samsara_api_", "[A-Za-z0-9]{28,}"),
    shape("scalingo", "tk-us-", "[A-Za-z0-9_-]{48}"),
    shape("segment", "sgp_", "[A-Za-z0-9]{64}"),
    shape("sendgrid", "SG.", r"[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{32,}"),
    shape("sendinblue", "xkeysib-", "[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    shape("sendinblue", "xsmtpsib-", "[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    shape("sentry", "sntryu_", "[0-9a-f]{64}"),
    shape("sentry", "sntrys_", "[A-Za-z0-9+/=_-]{60,}"),
    shape("shippo", "shippo_", "(?:live|test)_[0-9a-f]{40}"),
    shape("shopify", "shpat_", "[0-9a-fA-F]{32}"),
    shape("shopify", "shpca_", "[0-9a-fA-F]{32}"),
    shape("shopify", "shppa_", "[0-9a-fA-F]{32}"),
    shape("shopify", "shpss_", "[0-9a-fA-F]{32}"),
    shape("shopify", "shpua_", "[0-9a-fA-F]{32}"),
    shape("shopify", "shptka_", "[0-9a-fA-F]{32}"),
    shape("sindri", "sindri_", "[A-Za-z0-9]{32}"),
    shape("slack", "xoxb-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxo-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxp-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxa-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxr-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxs-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxc-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xoxd-", "[A-Za-z0-9%+/=-]{20,}"),
    shape("slack", "xoxe", "[.-][A-Za-z0-9.-]{20,}"),
    shape("slack", "xapp-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "xwfp-", "[A-Za-z0-9-]{20,}"),
    shape("slack", "https://hooks.slack.com/", "(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"),
    shape("slack", "https://hooks.slack-gov.com/", "(?:services|workflows|triggers)/[A-Za-z0-9/_-]{20,}"),
    // JSON may escape each slash (RFC 8259, section 7), and may stand in a text that is none.
    shape(
        "slack",
        r"https:\/\/hooks.slack.com\/",
        r"(?:services|workflows|triggers)(?:\\/|[A-Za-z0-9_-]){20,}",
    ),
    shape("snyk", "snyk_", r"(?:uat|pat|sat)\.[0-9a-f]{8}\.[A-Za-z0-9_.-]{20,}"),
    shape("sonar", "sqp_", "[0-9a-f]{40}"),
    shape("sonar", "squ_", "[0-9a-f]{40}"),
    shape("sonar", "sqa_", "[0-9a-f]{40}"),
    shape("sourcegraph", "sgp_", "(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    shape("square", "EAAA", "[A-Za-z0-9_-]{60}"),
    shape("square", "sq0", "(?:atp|csp|idp)-[A-Za-z0-9_-]{22,}"),
    shape("stripe", "sk_", "(?:live|test|prod|dev)_[A-Za-z0-9]{16,}"),
    shape("stripe", "sk_org_", "(?:live|test)_[A-Za-z0-9]{16,}"),
    shape("stripe", "rk_", "(?:live|test|prod)_[A-Za-z0-9]{16,}"),
    shape("stripe", "ek_", "(?:live|test)_[A-Za-z0-9]{16,}"),
    shape("stripe", "whsec_", "[A-Za-z0-9+/=]{24,}"),
    shape("supabase", "sbp_", "(?:oauth_)?[0-9a-f]{40}"),
    shape("supabase", "sb_secret_", "[A-Za-z0-9_-]{20,}"),
    shape("tailscale", "tskey-", "[a-z]+-[A-Za-z0-9]+-[A-Za-z0-9]{20,}"),
    shape("tavily", "tvly-", "[A-Za-z0-9-]{20,}"),
    shape("teams", "https://outlook.office.com/webhook/", "[A-Za-z0-9@/-]{40,}"),
    shape("teams", r"https:\/\/outlook.office.com\/webhook\/", r"(?:\\/|[A-Za-z0-9@-]){40,}"),
    shape("telegram", "bot", "[0-9]{8,10}:AA[A-Za-z0-9_-]{33}"),
    shape("telnyx", "KEY01", "[0-9A-F]{30}_[A-Za-z0-9]{22}"),
    shape("thunderstore", "tss_", "[A-Za-z0-9]{36}"),
    shape("tencent", "AKID", "[A-Za-z0-9]{32}"),
    shape("tinybird", "p.eyJ", r"[A-Za-z0-9_-]{20,}\.[A-Za-z0-9_-]{20,}"),
    shape("together", "tgp_v1_", "[A-Za-z0-9_-]{40,}"),
    shape("trigger", "tr_", "(?:dev|preview|prod|stg)_[A-Za-z0-9]{20,}"),
    shape("twilio", "SK", "[0-9a-f]{32}"),
    shape("twitch", "oauth:", "[a-z0-9]{30}"),
    shape("typeform", "tfp_", "[A-Za-z0-9_.=-]{40,}"),
    shape("ubidots", "BBFF-", "[A-Za-z0-9]{30}"),
    shape("unkey", "unkey_", "[A-Za-z0-9]{20,}"),
    shape("val-town", "vtwn_", "[A-Za-z0-9]{20,}"),
    shape("vault", "hvs.", "[A-Za-z0-9_-]{24,}"),
    shape("vault", "hvb.", "[A-Za-z0-9_-]{24,}"),
    shape("vault", "hvr.", "[A-Za-z0-9_-]{24,}"),
    shape("vercel", "vercel_", "[A-Za-z0-9_]{24,}"),
    shape("vercel", "vc", "[acikpr]_[A-Za-z0-9]{24,}"),
    shape("volcengine", "AKLT", "[A-Za-z0-9_-]{40,}"),
    shape("wakatime", "waka_", "[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    shape("workato", "wrk", "(?:aus|eu|us)-[A-Za-z0-9_-]{30,}"),
    shape("weights-and-biases", "wandb_v1_", "[A-Za-z0-9_]{40,}"),
    shape("xai", "xai-", "[A-Za-z0-9]{70,}"),
    shape("x", "AAAAAAAAAAAAAAAAAAAA", "[A-Za-z0-9%]{60,}"),
    shape("xata", "xau_", "[A-Za-z0-9]{40,}"),
    shape("yandex", "AQVN", "[A-Za-z0-9_-]{35,38}"),
    shape("yandex", "t1.9eu", r"[A-Za-z0-9_-]{20,}={0,2}\.[A-Za-z0-9_-]{60,}"),
    shape("yandex", "y0_", "[A-Za-z0-9_-]{30,}"),
    shape("yandex", "YCAJ", "[A-Za-z0-9_-]{30,}"),
    shape("zoho", "1000.", r"[0-9a-f]{32}\.[0-9a-f]{32}"),
    shape("zuplo", "zpka_", "[0-9a-f]{32}_[0-9a-f]{8}"),
    shape("discord-hook", "https://discord.com/api/webhooks/", "[0-9]+/[A-Za-z0-9_-]{40,}"),
    shape("discord-hook", r"https:\/\/discord.com\/api\/webhooks\/", r"[0-9]+\\/[A-Za-z0-9_-]{40,}"),
    shape("gleaner", "glnr_", "[A-Za-z0-9_-]{40,}"),
];

/// The beginnings of JSON objects in base64, which may have blanks or the end of a line behind the brace.
const OBJECTS: [&str; 8] = ["eyJ", "eyAg", "eyAi", "ew0K", "ewki", "ewoJ", "ewog", "ewoi"];

/// Returns the patterns of the rule.
pub(super) fn patterns() -> Vec<Pattern> {
    let by_shape = SHAPES.iter().map(|Shape { prefix, rest, .. }| {
        Pattern::token(prefix, &format!("^{}{rest}", regex::escape(prefix)), is_varied)
    });
    let others = [
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
        // The file of credentials of OpenCode, whose members have no names of secrets.
        Pattern::matches(
            &["\"api\"", "\"api\\"],
            r#""type\\*"\s*:\s*\\*"api\\*"\s*,\s*\\*"key\\*"\s*:\s*\\*"([^"\s\\]{12,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["refresh\"", "refresh\\", "access\"", "access\\"],
            r#""(?:refresh|access)\\*"\s*:\s*\\*"([^"\s\\]{20,})"#,
            is_random,
        ),
        // Outputs of Terraform, parameters of CloudFormation, and the key of tokens in the settings of .NET, which say in another
        // member that they are secret.
        Pattern::matches(
            &["sensitive\""],
            r#""sensitive"\s*:\s*true\s*,\s*"type"\s*:\s*"string"\s*,\s*"value"\s*:\s*"([^"\s\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["noecho"],
            r#"(?i)noecho"?\s*:\s*"?true"?,?\s+"?default"?\s*:\s*["']?([^\s"'\\]{8,})"#,
            is_random,
        )
        .on_two_lines(),
        Pattern::matches(
            &["\"jwt"],
            r#"(?i)"jwt[a-z]*"\s*:\s*\{[^{}]{0,300}?"key"\s*:\s*"([^"\s\\]{12,})"#,
            is_random,
        )
        .on_two_lines(),
        // A token of Copilot.
        Pattern::matches(&["tid="], r#"\b(tid=[0-9a-f]{32};exp=[^\s"']*?:[0-9a-f]{64})"#, always),
        pairs::pattern(),
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
            &["unseal key ", "recovery key ", "operator unseal "],
            r"(?i)(?:(?:unseal|recovery) key [0-9]+:|operator unseal)\s+([0-9a-f]{64,66}|[a-z0-9+/]{43}[a-z0-9+/=])",
            is_varied,
        ),
        // Webhooks of Teams, whose hosts have the names of tenants.
        Pattern::matches(
            &[".webhook.office.com"],
            r"\.webhook\.office\.com(?:\\*/|%2F)webhookb2(?:\\*/|%2F)((?:\\*/|%2F|%40|[A-Za-z0-9@-]){40,})",
            always,
        ),
        // Keys whose prefixes names begin with, too, such as those of Voyage, GoCardless, Brave and others.
        Pattern::token("pa-", "^pa-[A-Za-z0-9_-]{43}", is_very_random),
        Pattern::token("live_", "^live_[A-Za-z0-9_-]{40}", is_very_random),
        Pattern::token("sandbox_", "^sandbox_[A-Za-z0-9_-]{40}", is_very_random),
        Pattern::token("BSA", "^BSA[A-Za-z0-9_-]{24,}", is_very_random),
        Pattern::token("sk-", "^sk-[A-Za-z0-9_-]{20,}", is_very_random),
        // Tokens of other services whose prefixes say what they are.
        Pattern::matches(
            &["_live_", "_prod_", "_api_", "_pat_", "_secret_"],
            &format!(
                "(?:^|{CODE}|[^A-Za-z0-9_])([a-z][a-z0-9]{{1,11}}_(?:live|prod|api|pat|secret)_[A-Za-z0-9]{{20,}})"
            ),
            |token| token.rsplit('_').next().is_some_and(is_very_random),
        ),
        private_keys::pattern(),
        private_keys::numbers(),
        // The private members of an RSA key in XML, as .NET writes it.
        Pattern::matches(
            &["<RSAKeyValue>"],
            r"<(?:D|P|Q|DP|DQ|InverseQ)>\s*([A-Za-z0-9+/]{40,}={0,2})\s*</",
            always,
        ),
        Pattern::matches(
            &["Private-Lines:"],
            r"Private-Lines: [0-9]+((?:(?:\s|\\+[nr])+[A-Za-z0-9+/=]{40,})+(?:(?:\s|\\+[nr])+[A-Za-z0-9+/=]{1,63}(?:\s|\\+[nr])+Private-MAC)?)",
            always,
        ),
    ];
    by_shape
        .chain(others)
        .chain(azure::patterns())
        .chain(sent())
        .chain(named::patterns())
        .chain(commands::patterns())
        .collect()
}

/// Returns the patterns of credentials in headers and addresses.
fn sent() -> [Pattern; 9] {
    const SCHEMES: &str = "(?:apikey|basic|bearer|bot|key|ssws|token)";
    // What is in code between the name of a header and its value: the end of a string, a sign, and the beginning of the next
    // string, also in a call.
    let sets = format!(
        r"{QUOTE}?[\])]?\s*(?:[:=]>?|,|[ \t])\s*(?:[a-z_:.]+\()?(?:\[[a-z]*\][a-z]*)?(?:[\[{{(]\s*)?[a-z]{{0,2}}{QUOTE}"
    );
    // The name of the header, and what is between it and its value, which may be the only one in a list.
    let authorization = format!(r"authorization(?:{QUOTE}?\s*[:=]>?\s*[\[{{(]?\s*{QUOTE}?|{sets})");
    // What tables, documents and programs have there.
    let between = format!(r"(?:{QUOTE}|[\s:=>|*\\\[\](){{}},-]|string\([0-9]+\)|</?[a-z][^<>\n]{{0,40}}>)");
    [
        // The credentials of an Authorization header (RFC 9110), also in the quotes and escapes of code.
        Pattern::matches(
            &["authorization"],
            &format!(r"(?i){authorization}{SCHEMES}\s+{JOINED}({CREDENTIALS})"),
            is_credential,
        ),
        Pattern::matches(
            &["authorization"],
            &format!(r"(?i)authorization{between}{{1,40}}{SCHEMES}(?:\s|%20|[+\\]){{1,3}}({CREDENTIALS})"),
            is_random,
        ),
        // A user and a password, as files of clients have them.
        Pattern::matches(
            &["authorization"],
            r"(?i)authorization:\s*(?:basic|digest)\s+[^\s:]+[\s:]\s*([^\s:]{8,})",
            is_random,
        ),
        Pattern::matches(
            &["authorization", "basic ", "bearer "],
            &format!(
                r"(?i)(?:{authorization}(?:[a-z0-9-]{{2,20}}\s+{JOINED})?|(?:(?-u:\b)|{CODE})(?:basic|bearer)\s+{JOINED})({CREDENTIALS})"
            ),
            is_token,
        ),
        Pattern::matches(
            &["cookie"],
            &format!(r#"(?i)\bcookie{between}{{1,20}}([a-z0-9_.%-]+=[^\r\n|"'<&]{{8,}})"#),
            has_random_value,
        ),
        // A line of headers, in whose values there may be strings, before which is another sign than before the mark that ends it.
        Pattern::matches(
            &["cookie"],
            r#"(?im)^[<>*\s]*(?:set-)?cookie: ([a-z0-9_.%-]+(?:[{:,\[=]["'][^"'\r\n\\]*["']|[^\r\n"'\\])*)"#,
            has_random_value,
        ),
        Pattern::matches(
            &["cookie"],
            &format!(
                r#"(?i)(?:(?:(?-u:\b)|{CODE})cookie(?:{sets}|{QUOTE}?:\s{{0,3}}{QUOTE}?|=\[)|_cookie{QUOTE}?\]?\s*[:=]>?\s*{QUOTE}?)((?:[^\r\n"'\\&]|="|";|\\+/|&[a-z0-9_.-]+=){{8,}})"#
            ),
            has_random_value,
        ),
        // A password in an address (RFC 3986, section 3.2.1), also with an at sign that should be a percent code. One that
        // begins with a dollar sign is a variable.
        Pattern::matches(
            &["://", r":\/\/"],
            r#"[A-Za-z][A-Za-z0-9+.-]+:\\?/\\?/([^\s:/"'<>{}$`]*:[^\s/@"'<>{}$`][^\s/"<>{}`]{2,})@"#,
            is_login,
        ),
        Pattern::values(&["://", r":\/\/"], users),
    ]
}

/// Returns the users of addresses that are tokens, without a password or with one that says nothing. The keys in the addresses
/// of Sentry, whose path is the number of a project, are public.
fn users(text: &str) -> Vec<Range<usize>> {
    static USER: LazyLock<Regex> = LazyLock::new(|| {
        builtin(
            r#"[A-Za-z][A-Za-z0-9+.-]+:\\?/\\?/([^\s:/"'<>{}$`@]{16,200})(?::(?:X|x-oauth-basic)?)?@[A-Za-z0-9.-]+(?::[0-9]+)?(?:(\\?/[0-9]+)(?:[^A-Za-z0-9_/.-]|$))?"#,
        )
    });
    let found = USER.captures_iter(text).filter(|found| found.get(2).is_none());
    let users = found.filter_map(|found| found.get(1)).filter(|user| is_key(user.as_str()));
    users.map(|user| user.range()).collect()
}

/// What is in code between the scheme and its credentials, if they are two strings.
const JOINED: &str = r#"(?:\\*["'`]\s*[+.]\s*\\*["'`])?"#;

/// Credentials in a header: a token68, or what servers that do not keep to the standard accept. A slash may be escaped.
const CREDENTIALS: &str = r"(?:[A-Za-z0-9._~+/=|:!%@-]|\\+/){12,}";

/// Returns whether the text after a scheme is a credential, rather than a description of one.
fn is_credential(text: &str) -> bool {
    const WORDS: [&str; 8] = ["token", "key", "your", "secret", "example", "password", "xxx", "credential"];
    let lower = text.to_ascii_lowercase();
    let is_long = text.len() >= 20 || text.bytes().any(|byte| byte.is_ascii_digit());
    is_random(text) || is_long && !text.contains("://") && !WORDS.iter().any(|word| lower.contains(word))
}

/// Returns whether a text is a credential without a scheme, rather than the name of the next header in a list of them.
fn is_token(text: &str) -> bool {
    let mut parts = text.split(|c: char| !c.is_ascii_alphanumeric());
    (is_random(text) || parts.any(is_very_random)) && !text.starts_with("X-") && !text.starts_with("x-")
}

/// Returns whether one of a cookie's values looks random.
fn has_random_value(cookie: &str) -> bool {
    cookie.split(['=', ';', ' ', ',', '"', '\'']).any(is_random)
}

/// Returns whether a user and a password in an address are probably real. Examples repeat the user's name or use a
/// word as the password.
fn is_login(login: &str) -> bool {
    const EXAMPLES: [&str; 20] = [
        "pass", "password", "passwd", "secret", "postgres", "root", "admin", "user", "test", "example",
        "changeme", "guest", "gleaner", "xxx", "xxxx", "pwd", "redacted", "hidden", "masked", "removed",
    ];
    let (user, password) = login.split_once(':').unwrap_or(("", login));
    // The reference of an image has a version and a digest, as in `docker://alpine:3.20@sha256:…`.
    let is_version =
        password.contains('.') && password.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    password != user
        && !is_version
        && !EXAMPLES.contains(&password.to_ascii_lowercase().as_str())
        && !password.bytes().all(|byte| byte == b'*')
}

/// Returns the issuers whose tokens are recognized by their form, for the documentation.
pub fn issuers() -> impl Iterator<Item = &'static str> {
    SHAPES.iter().map(|shape| shape.issuer)
}
