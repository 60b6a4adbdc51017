//! The model providers that the server may call: their configuration and the client that calls them.
//!
//! Providers come from a file, and their keys from the environment. No address comes from a request, no redirect is
//! followed, and no key is stored, logged or sent back.

pub mod answer;
pub mod sse;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderValue, header};
use serde::Deserialize;

use crate::messages::failure;
use crate::messages::models::{Catalog, ModelLimits};
use answer::Api;

/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// The maximum number of connections to a provider that wait for requests.
const IDLE: usize = 64;
/// The longest silence of a provider.
const SILENCE: Duration = Duration::from_mins(10);
/// The version of Anthropic's API that is requested.
const ANTHROPIC_VERSION: &str = "2023-06-01";

/// The kind of a provider: whose API it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// `OpenAI`'s API, which most other providers offer too.
    Openai,
    /// Anthropic's API.
    Anthropic,
}

/// A provider of models.
#[derive(Debug)]
pub struct Provider {
    /// The provider's name.
    pub name: String,
    /// Whose API it speaks.
    pub kind: Kind,
    base_url: String,
    key: Option<HeaderValue>,
    models: Vec<String>,
}

/// The providers of models, and the client that calls them.
#[derive(Debug, Default)]
pub struct Providers {
    /// The client is made only if there is a provider.
    client: Option<reqwest::Client>,
    all: Vec<Provider>,
    models: Vec<(String, ModelLimits)>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    providers: Vec<Entry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    name: String,
    kind: Kind,
    base_url: String,
    api_key_env: Option<String>,
    #[serde(default)]
    models: Vec<ModelEntry>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ModelEntry {
    name: String,
    context_window: i64,
    tpm: Option<i64>,
    rpm: Option<i64>,
    tpd: Option<i64>,
}

impl Providers {
    /// Reads the providers file. `variable` looks up an environment variable.
    pub fn load(path: &Path, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let unusable = || format!("the providers file {} cannot be used", path.display());
        let text = std::fs::read_to_string(path).with_context(unusable)?;
        Self::parse(&text, variable).with_context(unusable)
    }

    /// Reads the text of a providers file.
    pub fn parse(text: &str, variable: impl Fn(&str) -> Option<String>) -> anyhow::Result<Self> {
        let File { providers } = toml::from_str(text).map_err(|error| malformed(text, &error))?;
        let (mut all, mut models) = (Vec::new(), Vec::new());
        for entry in providers {
            ensure!(
                is_base_url(&entry.base_url),
                "the base_url {:?} of the provider {:?} must be an HTTP address without a query, such as \
                 https://api.openai.com/v1",
                entry.base_url,
                entry.name
            );
            let key = match &entry.api_key_env {
                Some(name) => {
                    let key = variable(name).filter(|key| !key.trim().is_empty());
                    let key = key.with_context(|| {
                        format!(
                            "the variable {name} with the key of the provider {:?} is not set",
                            entry.name
                        )
                    })?;
                    let mut value = HeaderValue::try_from(key.trim()).map_err(|_| {
                        anyhow::anyhow!("the key in {name} has characters that a header cannot contain")
                    })?;
                    value.set_sensitive(true);
                    Some(value)
                }
                None => None,
            };
            models.extend(entry.models.iter().map(|model| {
                let limits = ModelLimits {
                    context_window: model.context_window,
                    tpm: model.tpm,
                    rpm: model.rpm,
                    tpd: model.tpd,
                    chars_per_token: None,
                };
                (model.name.clone(), limits)
            }));
            all.push(Provider {
                kind: entry.kind,
                base_url: entry.base_url.trim_end_matches('/').to_owned(),
                key,
                models: entry.models.into_iter().map(|model| model.name).collect(),
                name: entry.name,
            });
        }
        // The system's certificates are used, because a company's own proxy may be between.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            // A connection that has brought a large answer reads as much at once for the next one.
            .pool_max_idle_per_host(IDLE)
            .no_proxy()
            .build()?;
        Ok(Self { client: Some(client), all, models })
    }

    /// Returns the models of the file, with their limits.
    #[must_use]
    pub fn catalog(&self) -> Catalog {
        Catalog::new(self.models.iter().cloned())
    }

    /// Finds the provider of a model and the provider's name of the model. This is the provider that lists the model,
    /// the one named before a slash, or the only one of the kind.
    #[must_use]
    pub fn find<'a>(&'a self, kind: Option<Kind>, model: &'a str) -> Option<(&'a Provider, &'a str)> {
        let fitting =
            || self.all.iter().filter(move |provider| kind.is_none_or(|kind| provider.kind == kind));
        let named = model.split_once('/').and_then(|(name, model)| {
            fitting().find(|provider| provider.name == name).map(|provider| (provider, model))
        });
        let lists = || fitting().find(|provider| provider.models.iter().any(|known| known == model));
        let only = || {
            let mut fitting = fitting();
            fitting.next().filter(|_| fitting.next().is_none())
        };
        lists()
            .map(|provider| (provider, model))
            .or(named)
            .or_else(|| only().map(|provider| (provider, model)))
    }

    /// Returns the only provider of a kind, or the first.
    #[must_use]
    pub fn of_kind(&self, kind: Kind) -> Option<&Provider> {
        self.all.iter().find(|provider| provider.kind == kind)
    }

    fn client(&self) -> &reqwest::Client {
        self.client.as_ref().expect("whoever has a provider has read a file, which makes a client")
    }

    /// Posts a body to a path below a provider's address, which may have a query. `extra` are additional headers, and
    /// `key` takes precedence over the provider's configured key. A failed connection is tried once more, because
    /// nothing was sent.
    pub async fn post(
        &self,
        provider: &Provider,
        path: &str,
        extra: &HeaderMap,
        key: Option<&HeaderValue>,
        body: Bytes,
    ) -> reqwest::Result<reqwest::Response> {
        let url = format!("{}/{path}", provider.base_url);
        let headers = provider.headers(extra, key);
        let client = self.client();
        let send = || client.post(&url).headers(headers.clone()).body(body.clone()).send();
        match send().await {
            Err(error) if error.is_connect() => send().await,
            done => done,
        }
    }

    /// Gets what is at a path below a provider's address, which may have a query.
    pub async fn get(
        &self,
        provider: &Provider,
        path: &str,
        extra: &HeaderMap,
        key: Option<&HeaderValue>,
    ) -> reqwest::Result<reqwest::Response> {
        let url = format!("{}/{path}", provider.base_url);
        self.client().get(url).headers(provider.headers(extra, key)).send().await
    }
}

/// Returns what is wrong with a providers file, without the value in the line, because somebody may have put a key there.
fn malformed(text: &str, error: &toml::de::Error) -> anyhow::Error {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.matches('\n').count();
    let member = text.lines().nth(line).and_then(|line| line.split_once('='));
    let name = member.map_or("", |(name, _)| name.trim());
    // What is between quotation marks is the value.
    let message = error.message().split('"').next().unwrap_or_default().trim_end();
    anyhow::anyhow!("line {}, {name:?}: {message}", line + 1)
}

impl Provider {
    /// Returns the API by which this provider performs sends.
    #[must_use]
    pub fn api(&self) -> Api {
        match self.kind {
            Kind::Openai => Api::ChatCompletions,
            Kind::Anthropic => Api::Messages,
        }
    }

    /// Returns the key with which this provider is called, if it is called with one. A key that is `given` takes precedence
    /// over the configured one.
    #[must_use]
    pub fn key<'a>(&'a self, given: Option<&'a HeaderValue>) -> Option<&'a str> {
        let key = str::from_utf8(given.or(self.key.as_ref())?.as_bytes()).ok()?;
        Some(token(key).unwrap_or(key))
    }

    /// Returns what the provider has said of an error without its configured key, which it may quote.
    #[must_use]
    pub fn without_key(&self, said: Bytes) -> Bytes {
        let without = str::from_utf8(&said).ok().and_then(|text| failure::redacted(text, self.key(None)));
        without.map_or(said, Bytes::from)
    }

    fn headers(&self, extra: &HeaderMap, given: Option<&HeaderValue>) -> HeaderMap {
        let mut headers = extra.clone();
        headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static("application/json"));
        // Answers are read and recorded as they come.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.kind == Kind::Anthropic {
            headers.entry("anthropic-version").or_insert(HeaderValue::from_static(ANTHROPIC_VERSION));
        }
        let Some(key) = given.or(self.key.as_ref()) else {
            return headers;
        };
        let text = key.to_str().unwrap_or_default();
        let is_bearer = token(text).is_some();
        let (name, mut value) = if self.kind == Kind::Anthropic && !is_bearer {
            (header::HeaderName::from_static("x-api-key"), key.clone())
        } else if is_bearer {
            (header::AUTHORIZATION, key.clone())
        } else {
            let bearer = HeaderValue::try_from(format!("Bearer {text}"));
            (header::AUTHORIZATION, bearer.unwrap_or_else(|_| key.clone()))
        };
        value.set_sensitive(true);
        headers.insert(name, value);
        headers
    }
}

/// Returns the token of credentials of the scheme Bearer (RFC 6750).
fn token(credentials: &str) -> Option<&str> {
    let (scheme, token) = credentials.split_at_checked("bearer ".len())?;
    scheme.eq_ignore_ascii_case("bearer ").then_some(token.trim())
}

/// Returns whether the paths of an API can be appended to this text to form an HTTP address.
fn is_base_url(text: &str) -> bool {
    text.parse().is_ok_and(|url: reqwest::Url| {
        ["http", "https"].contains(&url.scheme()) && url.query().is_none() && url.fragment().is_none()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
        [[providers]]
        name = "a"
        kind = "openai"
        base_url = "https://a.example/v1/"
        api_key_env = "A_KEY"
        [[providers.models]]
        name = "m"
        context_window = 100
        [[providers]]
        name = "b"
        kind = "anthropic"
        base_url = "http://127.0.0.1:1/v1"
    "#;

    fn providers() -> Providers {
        Providers::parse(FILE, |name| (name == "A_KEY").then(|| "secret-key".to_owned())).expect("reads")
    }

    #[test]
    fn a_model_is_found_by_who_lists_it_by_name_or_as_the_only_one_of_a_kind() {
        let providers = providers();
        let found = |kind, model| {
            providers.find(kind, model).map(|(provider, model)| (provider.name.as_str(), model))
        };
        assert_eq!(found(None, "m"), Some(("a", "m")));
        assert_eq!(found(None, "b/x"), Some(("b", "x")));
        assert_eq!(found(Some(Kind::Anthropic), "x"), Some(("b", "x")));
        assert_eq!(found(Some(Kind::Openai), "org/x"), Some(("a", "org/x")));
        assert_eq!(found(None, "x"), None);
        assert_eq!(providers.catalog().find("a/m").map(|limits| limits.context_window), Some(100));
    }

    #[test]
    fn keys_are_sent_as_each_kind_takes_them_and_never_shown() {
        let providers = providers();
        let (a, b) = (&providers.all[0], &providers.all[1]);
        let none = HeaderMap::new();
        assert_eq!(a.headers(&none, None)[header::AUTHORIZATION], "Bearer secret-key");
        assert_eq!(b.headers(&none, Some(&HeaderValue::from_static("k")))["x-api-key"], "k");
        assert_eq!(
            b.headers(&none, Some(&HeaderValue::from_static("Bearer t")))[header::AUTHORIZATION],
            "Bearer t"
        );
        assert!(!format!("{providers:?} {:?}", a.headers(&none, None)).contains("secret-key"));
    }

    #[test]
    fn a_file_that_is_wrong_says_what_is() {
        let error = |text: &str| Providers::parse(text, |_| None).expect_err("is wrong").to_string();
        assert!(error(FILE).contains("A_KEY"));
        assert!(error("[[providers]]\nname = \"a\"\nkind = \"other\"\nbase_url = \"x\"").contains("kind"));
        let unknown = error("[[providers]]\nname = \"a\"\nkind = \"openai\"\napi_key = \"qQ7xK2mZ9vB4nR8t\"");
        assert!(
            unknown.starts_with("line 4, \"api_key\": unknown field") && !unknown.contains("qQ7x"),
            "{unknown}"
        );
        let colon = error("[[providers]]\nname = \"a\"\napi_key: qQ7xK2mZ9vB4nR8t");
        let number = error("[[providers]]\nname = \"a\"\nmodels = \"qQ7xK2mZ9vB4nR8t\"");
        assert!(!colon.contains("qQ7x") && !number.contains("qQ7x"), "{colon}, {number}");
        let file = "[[providers]]\nname = \"a\"\nkind = \"openai\"\nbase_url = \"ftp://x\"";
        assert!(error(file).contains("must be an HTTP address"));
    }

    #[test]
    fn a_base_url_is_an_http_address_without_a_query() {
        for good in ["https://a.example", "http://127.0.0.1:1/v1/"] {
            assert!(is_base_url(good), "{good}");
        }
        for bad in [
            "",
            "a.example/v1",
            "/v1",
            "localhost:8000/v1",
            "ftp://a.example",
            "https://",
            "https://a.example/?v=1",
        ] {
            assert!(!is_base_url(bad), "{bad}");
        }
    }
}
