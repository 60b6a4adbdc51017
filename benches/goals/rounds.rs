//! The results of a measurement over its rounds.

use crate::load::Latencies;
use crate::machine::Machine;

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Returns the compared servers with their indices, in reverse order in every second round, so that none is always
/// measured after the same one.
pub(crate) fn in_turn<T>(compared: &[T], round: usize) -> Vec<(usize, &T)> {
    let mut order: Vec<_> = compared.iter().enumerate().collect();
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

/// The rounds of one measurement.
pub(crate) struct Rounds {
    /// The number of events in a request.
    events: u64,
    took: Vec<Latencies>,
    /// The CPU time of an event, of the server and of Postgres, in microseconds.
    used: Vec<(f64, f64)>,
}

impl Rounds {
    /// Makes the rounds of requests with this many events each.
    pub(crate) fn of(events: u64) -> Self {
        Self { events, took: Vec::new(), used: Vec::new() }
    }

    /// Makes the same rounds for each server.
    pub(crate) fn for_each(machines: &[Machine], events: u64) -> Vec<Self> {
        machines.iter().map(|_| Self::of(events)).collect()
    }

    pub(crate) fn push(&mut self, took: Latencies) {
        self.took.push(took);
    }

    /// Measures a round, with the CPU time that it uses. Returns the number of requests.
    pub(crate) async fn measure(&mut self, machine: &Machine, round: impl Future<Output = Latencies>) -> u64 {
        let before = machine.usage();
        let took = round.await;
        let after = machine.usage();
        let each = |seconds: f64| seconds * 1e6 / (took.count() * self.events) as f64;
        self.used.push((each(after.server - before.server), each(after.postgres - before.postgres)));
        let requests = took.count();
        self.took.push(took);
        requests
    }

    /// Returns the number of events per second.
    pub(crate) fn rate(&self) -> f64 {
        median(self.took.iter().map(Latencies::rate).collect()) * self.events as f64
    }

    /// Returns the latencies of a request, in milliseconds.
    pub(crate) fn percentile(&self, percent: usize) -> f64 {
        median(self.took.iter().map(|round| round.percentile(percent)).collect())
    }

    /// Returns the CPU time of an event, of the server and of Postgres, in microseconds.
    pub(crate) fn processor(&self) -> (f64, f64) {
        let (server, postgres) = self.used.iter().copied().unzip();
        (median(server), median(postgres))
    }

    pub(crate) fn rate_text(&self) -> String {
        format!("{:.0}/s", self.rate())
    }

    pub(crate) fn rate_and_latency(&self) -> String {
        let [p50, p95, p99] = [50, 95, 99].map(|percent| self.percentile(percent));
        format!("{}, p50 {p50:.2} p95 {p95:.2} p99 {p99:.2} ms", self.rate_text())
    }

    pub(crate) fn processor_text(&self) -> String {
        let (server, postgres) = self.processor();
        format!("{server:.0} + {postgres:.0} µs")
    }

    pub(crate) fn rate_and_processor(&self) -> String {
        format!("{}, {} each", self.rate_text(), self.processor_text())
    }
}
