//! Embeddings: vectors that stand for the meaning of texts, from any API that is compatible with OpenAI's
//! `/v1/embeddings`. Nothing is sent anywhere unless an address is configured.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use reqwest::header::{AUTHORIZATION, HeaderValue};
use reqwest::{Client, StatusCode, Url};
use serde::Deserialize;
use serde_json::json;

/// The maximum time of a request.
const PATIENCE: Duration = Duration::from_secs(30);
/// The maximum size of a response, in bytes.
const MOST_BYTES: usize = 32 << 20;
/// The maximum number of values of an embedding.
const MOST_VALUES: usize = 8_192;

/// A model of embeddings.
#[derive(Debug)]
pub struct Embedder {
    client: Client,
    url: Url,
    key: Option<HeaderValue>,
    /// The name of the model. Embeddings of different models cannot be compared.
    pub model: String,
}

/// Why texts have no embeddings.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The API does not accept these texts, for example because they are too long for the model.
    #[error("the embeddings API refuses the texts with {0}")]
    Refused(StatusCode),
    /// The API cannot be used at present.
    #[error(transparent)]
    Unavailable(#[from] anyhow::Error),
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: usize,
    embedding: Vec<f32>,
}

impl Embedder {
    /// Makes an embedder. `base_url` is the address of the API up to and including `/v1`.
    pub fn new(base_url: &str, model: &str, key: Option<&str>) -> anyhow::Result<Self> {
        let address =
            format!("{}/embeddings", base_url.trim_end_matches('/').trim_end_matches("/embeddings"));
        let url: Url = address.parse().context("the address of the embeddings API is not a URL")?;
        ensure!(
            ["http", "https"].contains(&url.scheme()),
            "the address of the embeddings API is not one of HTTP"
        );
        let key = key.map(|key| HeaderValue::try_from(format!("Bearer {key}"))).transpose();
        let mut key =
            key.map_err(|_| anyhow::anyhow!("the key of the embeddings API cannot be sent in a header"))?;
        if let Some(key) = &mut key {
            key.set_sensitive(true);
        }
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A redirect could lead texts and the key elsewhere.
        let client = Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .timeout(PATIENCE)
            .no_proxy()
            .build()?;
        Ok(Self { client, url, key, model: model.to_owned() })
    }

    /// Returns the embeddings of texts, in their order.
    pub async fn embed(&self, texts: &[&str]) -> Result<Vec<Vec<f32>>, Failure> {
        let mut request = self.client.post(self.url.clone());
        if let Some(key) = &self.key {
            request = request.header(AUTHORIZATION, key.clone());
        }
        let body = json!({"model": self.model, "input": texts, "encoding_format": "float"}).to_string();
        let request = request.header("content-type", "application/json").body(body);
        let mut response = request.send().await.map_err(|error| anyhow::Error::from(error.without_url()))?;
        let status = response.status();
        let is_about_texts =
            [StatusCode::BAD_REQUEST, StatusCode::PAYLOAD_TOO_LARGE, StatusCode::UNPROCESSABLE_ENTITY];
        if is_about_texts.contains(&status) {
            return Err(Failure::Refused(status));
        }
        if !status.is_success() {
            return Err(anyhow::anyhow!("the embeddings API responds with {status}").into());
        }
        let mut bytes = Vec::new();
        while let Some(chunk) =
            response.chunk().await.map_err(|error| anyhow::Error::from(error.without_url()))?
        {
            bytes.extend_from_slice(&chunk);
            if bytes.len() > MOST_BYTES {
                return Err(anyhow::anyhow!("the response of the embeddings API is too long").into());
            }
        }
        Ok(read(&bytes, texts.len())?)
    }
}

/// Reads so many embeddings.
fn read(bytes: &[u8], count: usize) -> anyhow::Result<Vec<Vec<f32>>> {
    let mut response: Response =
        serde_json::from_slice(bytes).context("the response of the embeddings API has no embeddings")?;
    response.data.sort_by_key(|embedding| embedding.index);
    let is_complete = response.data.iter().map(|embedding| embedding.index).eq(0..count);
    ensure!(is_complete, "the response of the embeddings API does not have one embedding for each text");
    let fits = |values: &Vec<f32>| {
        (1..=MOST_VALUES).contains(&values.len()) && values.iter().all(|value| value.is_finite())
    };
    let embeddings: Vec<_> = response.data.into_iter().map(|embedding| embedding.embedding).collect();
    ensure!(
        embeddings.iter().all(fits),
        "the embeddings API returns vectors that are empty, too long or infinite"
    );
    Ok(embeddings)
}

/// Returns the cosine of the angle between two vectors, from -1 to 1, or none if they cannot be compared.
#[must_use]
pub fn cosine(one: &[f32], other: &[f32]) -> Option<f64> {
    if one.len() != other.len() {
        return None;
    }
    let product =
        |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let length = (product(one, one) * product(other, other)).sqrt();
    (length > 0.0).then(|| (product(one, other) / length).clamp(-1.0, 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn embeddings_are_read_in_the_order_of_their_texts() {
        let response = br#"{"data": [{"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [1, 0.5]}], "model": "m"}"#;
        assert_eq!(read(response, 2).expect("they are complete"), [vec![1.0, 0.5], vec![0.0, 1.0]]);
        for (response, count) in [
            (r#"{"data": []}"#, 1),
            (r#"{"data": [{"index": 0, "embedding": []}]}"#, 1),
            (r#"{"data": [{"index": 1, "embedding": [1]}]}"#, 1),
            (r#"{"data": [{"index": 0, "embedding": [1e39]}]}"#, 1),
            (r#"{"error": {}}"#, 1),
        ] {
            assert!(read(response.as_bytes(), count).is_err(), "{response}");
        }
    }

    #[test]
    fn vectors_of_one_direction_have_a_cosine_of_one() {
        let rounded = |one: &[f32], other: &[f32]| cosine(one, other).map(|cosine| format!("{cosine:.2}"));
        assert_eq!(rounded(&[1.0, 2.0], &[2.0, 4.0]).as_deref(), Some("1.00"));
        assert_eq!(rounded(&[1.0, 0.0], &[0.0, 4.0]).as_deref(), Some("0.00"));
        assert_eq!(rounded(&[1.0], &[-1.0]).as_deref(), Some("-1.00"));
        assert_eq!((rounded(&[1.0], &[1.0, 1.0]), rounded(&[0.0], &[1.0])), (None, None));
    }

    #[test]
    fn the_address_is_that_of_the_api_with_or_without_its_last_part() {
        for base_url in [
            "http://localhost:11434/v1",
            "http://localhost:11434/v1/",
            "http://localhost:11434/v1/embeddings",
        ] {
            let embedder = Embedder::new(base_url, "m", None).expect("an address");
            assert_eq!(embedder.url.as_str(), "http://localhost:11434/v1/embeddings");
        }
        assert!(Embedder::new("localhost", "m", None).is_err());
        assert!(Embedder::new("file:///v1", "m", None).is_err());
    }
}
