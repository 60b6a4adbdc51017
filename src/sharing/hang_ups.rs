//! Requests whose clients hang up before they are answered. The server drops such a request, but Postgres goes on with the
//! statement that it was given. If the request gave back its project's places at that moment, a project could have any
//! number of statements in progress. A request therefore continues in a task of its own, with what it holds, and ends
//! [in full](in_full). Only where it [waits](while_wanted) for something that is of no use without a client is it dropped.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::time::timeout;
use tracing::{Instrument as _, Span};

tokio::task_local! {
    static WAITS: Waits;
}

/// The number of things that a request currently waits for and would not wait for without a client.
#[derive(Debug, Clone, Default)]
struct Waits(Arc<AtomicUsize>);

impl Waits {
    fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

/// Runs a request, which ends even if this is dropped, unless it then waits for something [only while it is
/// wanted](while_wanted). A request that is part of another one ends with it.
pub async fn in_full<T: Send + 'static>(request: impl Future<Output = T> + Send + 'static) -> T {
    if WAITS.try_with(|_| ()).is_ok() {
        return request.await;
    }
    let waits = Waits::default();
    let request = Box::pin(WAITS.scope(waits.clone(), request));
    Attended { request: Some(request), waits, span: Span::current() }.await
}

/// How long a wait that has a limit of its own is silent at most, so that the request is not given up as one that waits for a
/// dead connection.
const SILENCE: Duration = Duration::from_mins(1);

/// Waits for something that is of no use to a request whose client has hung up, and that has a limit of its own.
pub async fn while_wanted<F: Future>(awaited: F) -> F::Output {
    let _waiting = WAITS.try_with(|waits| Waiting::begin(waits.clone())).ok();
    let mut awaited = pin!(awaited);
    loop {
        if let Ok(done) = timeout(SILENCE, &mut awaited).await {
            return done;
        }
    }
}

/// Does a part of a request that ends in full even if the client hangs up while it waits, because it leaves something behind
/// that has to be ended.
pub async fn to_its_end<T>(part: impl Future<Output = T>) -> T {
    WAITS.scope(Waits::default(), part).await
}

struct Waiting(Waits);

impl Waiting {
    fn begin(waits: Waits) -> Self {
        waits.0.fetch_add(1, Ordering::Relaxed);
        Self(waits)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

type Request<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// A request whose client is there.
struct Attended<T: 'static> {
    /// None once it has ended.
    request: Option<Request<T>>,
    waits: Waits,
    span: Span,
}

impl<T> Future for Attended<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        let request = self.request.as_mut().expect("it is not polled after its end");
        let response = ready!(request.as_mut().poll(context));
        self.request = None;
        Poll::Ready(response)
    }
}

impl<T> Drop for Attended<T> {
    fn drop(&mut self) {
        let Some(request) = self.request.take() else { return };
        if self.waits.are_there() {
            return;
        }
        // Without a runtime, the program ends.
        if let Ok(runtime) = Handle::try_current() {
            let abandoned = Abandoned { request, waits: self.waits.clone() };
            runtime.spawn(abandoned.instrument(self.span.clone()));
        }
    }
}

/// A request whose client has hung up.
struct Abandoned<T> {
    request: Request<T>,
    waits: Waits,
}

impl<T> Future for Abandoned<T> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let is_done = self.request.as_mut().poll(context).is_ready() || self.waits.are_there();
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::sync::oneshot;
    use tokio::task::yield_now;

    use super::*;

    /// A request that does something, then waits for something while that is wanted, and then does something else. Returns
    /// it with what ends each step.
    fn request() -> (impl Future<Output = &'static str> + Send + 'static, [oneshot::Sender<()>; 3]) {
        let [(first, one), (second, two), (third, three)] = std::array::from_fn(|_| oneshot::channel());
        let request = in_full(async move {
            one.await.expect("the first step ends");
            while_wanted(two).await.expect("the second step ends");
            three.await.expect("the third step ends");
            "done"
        });
        (request, [first, second, third])
    }

    async fn is_dropped(step: &oneshot::Sender<()>) -> bool {
        for _ in 0..10 {
            yield_now().await;
        }
        step.is_closed()
    }

    #[tokio::test]
    async fn a_request_that_nobody_gives_up_is_answered() {
        let (request, steps) = request();
        for step in steps {
            step.send(()).expect("it is there");
        }
        assert_eq!(request.await, "done");
    }

    #[tokio::test]
    async fn a_request_whose_client_is_gone_goes_on_until_it_waits_for_what_only_a_client_wants() {
        let (request, [first, second, third]) = request();
        let mut request = Box::pin(request);
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        assert!(!is_dropped(&third).await);
        first.send(()).expect("it is there");
        assert!(is_dropped(&third).await && second.is_closed());
    }

    #[tokio::test]
    async fn a_request_whose_client_goes_while_it_waits_is_dropped() {
        let (request, [first, _second, third]) = request();
        let mut request = Box::pin(request);
        first.send(()).expect("it is there");
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        assert!(third.is_closed());
    }

    #[tokio::test]
    async fn a_request_whose_client_goes_after_it_has_waited_ends() {
        let (request, [first, second, third]) = request();
        let (ended, end) = oneshot::channel();
        let mut outer = Box::pin(in_full(async move {
            let _ = ended.send(request.await);
        }));
        for step in [first, second] {
            step.send(()).expect("it is there");
        }
        assert!((&mut outer).now_or_never().is_none());
        drop(outer);
        assert!(!is_dropped(&third).await);
        third.send(()).expect("it is there");
        assert_eq!(end.await, Ok("done"));
    }

    #[tokio::test]
    async fn a_part_that_leaves_something_behind_ends_although_the_client_goes_while_it_waits() {
        let [(first, one), (second, two), (third, three)] = std::array::from_fn(|_| oneshot::channel());
        let mut request = Box::pin(in_full(async move {
            let part = async {
                while_wanted(one).await.expect("the first step ends");
                two.await.expect("the second step ends");
            };
            to_its_end(part).await;
            while_wanted(three).await.expect("the third step ends");
        }));
        assert!((&mut request).now_or_never().is_none());
        drop(request);
        assert!(!is_dropped(&second).await);
        first.send(()).expect("it is there");
        assert!(!is_dropped(&third).await);
        second.send(()).expect("it is there");
        assert!(is_dropped(&third).await);
    }
}
