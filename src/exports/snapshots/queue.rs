//! The queues between the steps of a building. Rows are of very different lengths, so the number of bytes that wait is
//! limited, too.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// The maximum number of items that wait in a queue.
const ITEMS: usize = 8;
/// The maximum number of bytes that wait in a queue or have been taken from it and not been dropped yet. A longer item
/// waits until there is no other one.
const BYTES: u32 = 8 << 20;

/// The end of a queue at which items are added.
pub(super) struct Sender<T> {
    items: mpsc::Sender<Item<T>>,
    bytes: Arc<Semaphore>,
}

/// The end of a queue at which items are taken.
pub(super) type Receiver<T> = mpsc::Receiver<Item<T>>;

/// An item of a queue, with its part of the bytes.
pub(super) struct Item<T> {
    pub(super) value: T,
    _bytes: OwnedSemaphorePermit,
}

/// Makes a queue.
pub(super) fn queue<T>() -> (Sender<T>, Receiver<T>) {
    let (items, receiver) = mpsc::channel(ITEMS);
    (Sender { items, bytes: Arc::new(Semaphore::new(BYTES as usize)) }, receiver)
}

impl<T> Sender<T> {
    /// Adds an item of so many bytes, and waits for room before. Returns whether somebody takes it.
    pub(super) async fn send(&self, value: T, bytes: usize) -> bool {
        let bytes = u32::try_from(bytes).map_or(BYTES, |bytes| bytes.min(BYTES));
        let room = Arc::clone(&self.bytes).acquire_many_owned(bytes).await;
        let item = Item { value, _bytes: room.expect("it is never closed") };
        self.items.send(item).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn what_waits_in_a_queue_is_limited_in_number_and_in_bytes() {
        let (sender, mut receiver) = queue();
        for number in 0..ITEMS {
            assert!(sender.send(number, 1).await);
        }
        let mut ninth = Box::pin(sender.send(8, 1));
        assert!(ninth.as_mut().now_or_never().is_none(), "eight wait");
        drop(receiver.recv().await.expect("an item"));
        assert!(ninth.await);
        while receiver.try_recv().is_ok() {}

        let long = BYTES as usize / 2 + 1;
        assert!(sender.send(9, long).await);
        let mut second = Box::pin(sender.send(10, long));
        assert!(second.as_mut().now_or_never().is_none(), "the first one waits");
        let first = receiver.recv().await.expect("an item");
        assert!(second.as_mut().now_or_never().is_none(), "the first one is in memory");
        drop(first);
        assert!(second.await);
    }

    #[tokio::test]
    async fn an_item_that_is_longer_than_a_queue_waits_alone() {
        let (sender, mut receiver) = queue();
        assert!(sender.send(1, usize::MAX).await);
        let mut short = Box::pin(sender.send(2, 1));
        assert!(short.as_mut().now_or_never().is_none(), "the long one waits");
        assert_eq!(receiver.recv().await.expect("an item").value, 1);
        assert!(short.await);
    }

    #[tokio::test]
    async fn who_waits_for_room_in_a_queue_that_nobody_empties_any_more_is_told() {
        let (sender, receiver) = queue();
        assert!(sender.send(1, usize::MAX).await);
        let mut waiting = Box::pin(sender.send(2, usize::MAX));
        assert!(waiting.as_mut().now_or_never().is_none(), "the first one waits");
        drop(receiver);
        assert!(!waiting.await);
    }
}
