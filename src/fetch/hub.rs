//! The Hugging Face hub, over HTTP.

use std::io::{self, Read};
use std::thread;
use std::time::Duration;

use ureq::http::Response;
use ureq::tls::{RootCerts, TlsConfig};
use ureq::{Agent, Body};

use super::cache::{Checksum, Part};
use super::{Attempt, Fetcher, Progress};

/// The hub's own address.
pub(super) const ENDPOINT: &str = "https://huggingface.co";

/// A download that breaks off is taken up again this often.
const RESUMPTIONS: usize = 3;

/// No listing of a repository is longer.
const MAX_LISTING_BYTES: u64 = 16 << 20;

pub(super) struct Hub {
    agent: Agent,
    endpoint: String,
    token: Option<String>,
    progress: Progress,
    /// Between attempts.
    pause: Duration,
}

/// A transfer that came to its end.
struct Received {
    checksum: Option<Checksum>,
    /// Whether its first bytes are from an earlier one.
    resumed: bool,
}

/// Why a transfer ended early.
enum Broken {
    /// The other side: trying again may help.
    Off(String),
    /// Trying again is no use.
    Final(String),
}

impl Hub {
    pub(super) fn new(fetcher: &Fetcher) -> Self {
        let connect = fetcher.patience.min(Duration::from_secs(5));
        let mut config = Agent::config_builder()
            .user_agent(concat!("rml/", env!("CARGO_PKG_VERSION")))
            .timeout_resolve(Some(connect))
            .timeout_connect(Some(connect))
            .timeout_recv_response(Some(fetcher.patience))
            .timeout_per_read(Some(fetcher.patience))
            .http_status_as_error(false)
            // The hub's own answer carries the checksum and then redirects to a store, which must not see the token.
            .max_redirects(0)
            .max_redirects_will_error(false)
            .tls_config(TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build());
        if fetcher.endpoint.contains("://127.0.0.1") || fetcher.endpoint.contains("://localhost") {
            // A mirror on this machine is not behind the proxy that leads out of it.
            config = config.proxy(None);
        }
        let Fetcher { endpoint, token, progress, patience, .. } = fetcher.clone();
        Hub { agent: config.build().into(), endpoint, token, progress, pause: patience / 20 }
    }

    /// Writes a file of a repository to `part`, which is whole and checked if this succeeds.
    pub(super) fn fetch(&self, repo: &str, revision: &str, file: &str, pinned: Option<Checksum>, part: &mut Part) -> Attempt<()> {
        let url = format!("{}/{repo}/resolve/{revision}/{}", self.endpoint, percent_encoded(file));
        let mut broken = String::new();
        for attempt in 0..=RESUMPTIONS {
            if attempt > 0 {
                thread::sleep(self.pause);
            }
            match self.transfer(&url, pinned, part) {
                Ok(Received { checksum: None, .. }) => return Ok(()),
                Ok(Received { checksum: Some(expected), resumed }) => match part.check(expected) {
                    // The damage may be in what was there before, and is gone now.
                    Err(reason) if resumed => broken = reason,
                    checked => return checked,
                },
                Err(Broken::Final(reason)) => return Err(reason),
                Err(Broken::Off(reason)) => broken = reason,
            }
        }
        Err(broken)
    }

    /// The files of a repository.
    pub(super) fn files(&self, repo: &str) -> Attempt<Vec<String>> {
        let url = format!("{}/api/models/{repo}", self.endpoint);
        let mut answer = self.get(&url, true, None).map_err(|b| b.reason())?;
        ensure_success(&answer, &url).map_err(|b| b.reason())?;
        let text = answer.body_mut().with_config().limit(MAX_LISTING_BYTES).read_to_string().map_err(|e| format!("{url}: {e}"))?;
        #[derive(serde::Deserialize)]
        struct Listing {
            #[serde(default)]
            siblings: Vec<Sibling>,
        }
        #[derive(serde::Deserialize)]
        struct Sibling {
            rfilename: String,
        }
        let listing: Listing = serde_json::from_str(&text).map_err(|e| format!("{url}: the answer is not a listing: {e}"))?;
        Ok(listing.siblings.into_iter().map(|s| s.rfilename).collect())
    }

    /// One attempt, from where `part` stands.
    fn transfer(&self, url: &str, pinned: Option<Checksum>, part: &mut Part) -> Result<Received, Broken> {
        let mut answer = self.get(url, true, None)?;
        let checksum = pinned.or_else(|| Checksum::from_hex(header(&answer, "x-linked-etag")?.trim_matches('"')));
        // Two halves of different files would pass unseen if there were no checksum.
        let resumable = checksum.is_some() && answer.status().is_redirection();
        if resumable { part.resume() } else { part.restart() }.map_err(on_disk)?;
        for _ in 0..5 {
            if !answer.status().is_redirection() {
                break;
            }
            let from = (part.len() > 0).then(|| part.len());
            let target = absolute(url, header(&answer, "location").unwrap_or_default());
            answer = self.get(&target, false, from)?;
        }
        match answer.status().as_u16() {
            206 if part.len() > 0 => {}
            // Nothing lies beyond what there is: it is whole, or its checksum will say that it is not.
            416 if part.len() > 0 => return Ok(Received { checksum, resumed: true }),
            _ => {
                ensure_success(&answer, url)?;
                part.restart().map_err(on_disk)?;
            }
        }
        let resumed = part.len() > 0;
        self.copy(url, answer, part)?;
        Ok(Received { checksum, resumed })
    }

    fn copy(&self, url: &str, answer: Response<Body>, part: &mut Part) -> Result<(), Broken> {
        let total = answer.body().content_length().map(|rest| part.len() + rest);
        let meter = self.progress.bytes(&format!("fetching {url}"), total, part.len());
        let mut body = answer.into_body().into_reader();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match body.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    part.write(&buffer[..n]).map_err(on_disk)?;
                    meter.add(n as u64);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Broken::Off(format!("{url}: broke off after {} bytes: {e}", part.len()))),
            }
        }
        match total {
            Some(total) if part.len() != total => Err(Broken::Off(format!("{url}: broke off after {} of {total} bytes", part.len()))),
            _ => Ok(()),
        }
    }

    fn get(&self, url: &str, to_hub: bool, from: Option<u64>) -> Result<Response<Body>, Broken> {
        let mut request = self.agent.get(url);
        if let Some(token) = self.token.as_ref().filter(|_| to_hub) {
            request = request.header("authorization", format!("Bearer {token}"));
        }
        if let Some(from) = from {
            request = request.header("range", format!("bytes={from}-"));
        }
        request.call().map_err(|e| Broken::Final(format!("{url}: {e}")))
    }
}

impl Broken {
    fn reason(self) -> String {
        match self {
            Broken::Off(reason) | Broken::Final(reason) => reason,
        }
    }
}

fn on_disk(e: io::Error) -> Broken {
    Broken::Final(format!("cannot write to the cache: {e}"))
}

fn header<'a>(answer: &'a Response<Body>, name: &str) -> Option<&'a str> {
    answer.headers().get(name)?.to_str().ok()
}

fn ensure_success(answer: &Response<Body>, url: &str) -> Result<(), Broken> {
    let reason = match answer.status().as_u16() {
        200 => return Ok(()),
        401 | 403 => "the repository is private, gated or not there (set HF_TOKEN to a token that may read it)".to_owned(),
        404 => "there is no such repository or file".to_owned(),
        code @ (429 | 500..=599) => return Err(Broken::Off(format!("{url}: the server answered {code}"))),
        code => format!("the server answered {code}"),
    };
    Err(Broken::Final(format!("{url}: {reason}")))
}

/// The target of a redirection, which may be given without a host.
fn absolute(url: &str, location: &str) -> String {
    if !location.starts_with('/') || location.starts_with("//") {
        return location.to_owned();
    }
    let host_end = url.find("://").map_or(0, |i| i + 3);
    let path_start = url[host_end..].find('/').map_or(url.len(), |i| host_end + i);
    format!("{}{location}", &url[..path_start])
}

/// A path as a URL spells it.
fn percent_encoded(path: &str) -> String {
    let keep = |b: u8| b.is_ascii_alphanumeric() || b"-_.~/".contains(&b);
    path.bytes().map(|b| if keep(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
