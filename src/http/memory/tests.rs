use futures_util::FutureExt as _;

use super::*;

/// The length of a long record.
const LONG: usize = 1 << 20;

#[tokio::test]
async fn a_request_with_a_large_body_waits_for_a_turn_of_its_project_beside_others() {
    let work = Arc::new(Work::new(crate::sharing::Limits { at_a_time: 1, ..Default::default() }));
    let [own, other]: [Arc<str>; 2] = ["own".into(), "other".into()];
    work.note(&other);
    work.note(&own);
    let memory = Memory::unbounded();
    memory.set_project(&own);
    let held = work.turn(&own, Kind::Parse).await;
    memory.begin_turn(FREE + 1).now_or_never().expect("nothing has said that it takes turns");
    memory.takes_turns(&work);
    memory.begin_turn(FREE).now_or_never().expect("a small body needs none");
    assert!(memory.begin_turn(FREE + 1).now_or_never().is_none(), "another request has the turn");
    drop(held);
    memory.begin_turn(FREE + 1).now_or_never().expect("its turn");
    assert!(work.turn(&own, Kind::Read).now_or_never().is_none(), "the request has the turn");
    memory.begin_turn(FREE + 1).now_or_never().expect("it has one");
    memory.end_turn();
    assert!(work.turn(&own, Kind::Read).now_or_never().is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_kept_beside_a_body_counts_when_it_was_taken_and_is_more_than_a_little() {
    let budget = Budget::new(200 << 10);
    let of = |project: &str| Memory::of_project(&budget, &project.into());
    let (memory, other) = (of("own"), of("other"));
    memory.hold_beside(FREE).await.expect("it is a little");
    assert!(!memory.is_held());
    other.hold(48 << 10).await.expect("there is enough");
    memory.hold_beside(90 << 10).await.expect_err("the other one holds 96 of 200 KiB");
    assert!(!memory.is_held());
    drop(other);
    for bytes in (20 << 10)..(24 << 10) {
        memory.hold_beside(bytes).await.expect("there is enough");
    }
    assert_eq!(budget.held(), 24 << 10, "a unit is taken for each KiB, and not for each step");
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_memory_that_others_hold_and_are_refused_after_five_seconds() {
    let budget = Budget::new(100 << 10);
    let begin = || Memory::begin(&mut Request::default(), &budget);
    let (first, second) = (begin(), begin());
    first.hold(40 << 10).await.expect("there is enough");
    first.hold(FREE).await.expect("it holds more already");
    second.hold(FREE).await.expect("a small body is not counted");
    let refused = second.hold(40 << 10).await.expect_err("the first one holds 80 of 100 KiB");
    assert!(refused.is_transient(), "{refused}");
    drop(first);
    second.hold(40 << 10).await.expect("the first one has given its memory back");
    second.hold(50 << 10).await.expect("it grows by what is left");
}

#[tokio::test]
async fn a_request_that_asks_for_a_little_more_any_number_of_times_holds_one_place() {
    let budget = Budget::new(8 << 20);
    let memory = Memory::begin(&mut Request::default(), &budget);
    for bytes in 0..1_000 {
        memory.hold(bytes * UNIT).await.expect("there is enough");
    }
    memory.set_project(&"p".into());
    assert!(memory.try_hold(1_000 * UNIT));
    assert_eq!((memory.places().len(), budget.held()), (1, 2_000 * UNIT));
    memory.give_back();
    assert_eq!(budget.held(), 0);
}

#[tokio::test(start_paused = true)]
async fn requests_that_read_as_much_as_there_can_be_wait_for_each_other_until_all_have_read() {
    // Pages of a list, and large records, of one project and of several.
    for (steps, most, projects) in [(56, 16 << 20, 1), (80, 32 << 20, 1), (80, 32 << 20, 5)] {
        let budget = Budget::new(192 << 20);
        let step = 256 << 10;
        let read = async |number: usize| {
            let memory = Memory::begin(&mut Request::default(), &budget);
            memory.set_project(&(number % projects).to_string().into());
            let reading = memory.reading(most);
            let read = async || {
                for _ in 0..steps {
                    reading.hold(step)?;
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                Ok(())
            };
            reading.by(read).await.map(|()| memory.held())
        };
        let read = futures_util::future::join_all((0..8).map(read)).await;
        for held in read {
            assert_eq!(held.expect("its turn comes"), 2 * steps * step / UNIT);
        }
        assert_eq!(budget.held(), 0);
    }
}

#[tokio::test]
async fn beside_large_pages_of_a_project_another_one_reads_a_large_record_at_once() {
    let budget = Budget::new(192 << 20);
    let reads = async |project: &str, most: usize| {
        let memory = Memory::of_project(&budget, &project.into());
        let reading = memory.reading(most);
        let mut held = true;
        for _ in 0..9 {
            held &= reading.hold(LONG - 1).is_ok();
        }
        let place = reading.progress().place.take();
        (held, place)
    };
    let mut pages = Vec::new();
    while let (true, place) = reads("busy", 16 << 20).await {
        pages.push(place);
    }
    assert_eq!(pages.len(), 3);
    assert!(reads("quiet", 32 << 20).await.0);
}

#[tokio::test(start_paused = true)]
async fn beside_the_largest_records_of_two_projects_a_third_one_reads_a_smaller_one_at_once_and_a_larger_one_again()
 {
    let budget = Budget::new(192 << 20);
    let of = |project: &str| Memory::of_project(&budget, &project.into());
    let (a, b, c) = (of("a"), of("b"), of("c"));
    let large = [a.reading(32 << 20), b.reading(30 << 20)];
    for large in &large {
        for _ in 0..9 {
            large.hold(LONG).expect("there is enough");
        }
    }
    let (reading, large) = (c.reading(32 << 20), Mutex::new(Some(large)));
    let tries = AtomicUsize::default();
    let read = async || {
        tries.fetch_add(1, Ordering::Relaxed);
        for _ in 0..2 {
            reading.hold(LONG - 1).expect("there is room for a little");
        }
        reading.hold(28 << 20)
    };
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!((tries.load(Ordering::Relaxed), c.held()), (1, 0), "what was let go is not held");
        drop(lock(&large).take());
    };
    let (read, ()) = futures_util::join!(reading.by(read), others);
    read.expect("the others have read");
    assert_eq!((tries.into_inner(), c.held()), (2, 2 * (2 * (LONG - 1) + (28 << 20)).div_ceil(UNIT)));
}

#[tokio::test(start_paused = true)]
async fn responses_that_clients_do_not_read_hold_memory_for_themselves_only() {
    let budget = Budget::new(192 << 20);
    let mut unread = Vec::new();
    for _ in 0..8 {
        let memory = Memory::begin(&mut Request::default(), &budget);
        memory.reading(32 << 20).hold(4 << 20).expect("the others have read");
        unread.push(memory);
    }
    assert_eq!(budget.held(), 64 << 20);
}

#[tokio::test(start_paused = true)]
async fn of_requests_that_each_hold_what_the_others_wait_for_one_gets_it() {
    let budget = Budget::new(800 << 10);
    let grow = async |bytes: usize| {
        let memory = Memory::begin(&mut Request::default(), &budget);
        memory.hold(bytes).await?;
        // All hold a part before one of them needs more.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let grown = memory.hold(3 * bytes).await;
        // Whoever is refused still has to say so, before what they hold is free.
        tokio::time::sleep(Duration::from_secs(1)).await;
        grown
    };
    let grown = futures_util::future::join_all((0..4).map(|_| grow(50 << 10))).await;
    assert_eq!(grown.iter().filter(|grown| grown.is_ok()).count(), 1, "{grown:?}");
}

#[tokio::test(start_paused = true)]
async fn records_for_which_others_leave_no_memory_are_let_go_and_refused_after_five_seconds() {
    let budget = Budget::new(64 << 20);
    let of = |project: &str| Memory::of_project(&budget, &project.into());
    let others = [(of("x"), 16 << 20), (of("y"), 10 << 20)];
    for (other, bytes) in &others {
        other.hold(*bytes).await.expect("there is enough");
    }
    let read = async |(project, bytes): (&str, usize)| {
        let (begun, memory) = (Instant::now(), of(project));
        let reading = memory.reading(8 << 20);
        let tries = AtomicUsize::default();
        let read = async || {
            tries.fetch_add(1, Ordering::Relaxed);
            reading.hold(bytes)
        };
        let is_read = reading.by(read).await.is_ok();
        (is_read, tries.into_inner(), begun.elapsed().as_secs())
    };
    let all = [("a", 8 << 20), ("a", 8 << 20), ("a", 8 << 20), ("b", 8 << 20), ("c", LONG / 4), ("c", FREE)];
    let read = futures_util::future::join_all(all.map(read)).await;
    assert_eq!(read[..4], [(false, 1, 5); 4]);
    assert_eq!(read[4..], [(true, 1, 0); 2], "a short one needs no place");
}

#[tokio::test(start_paused = true)]
async fn a_long_record_is_read_again_when_others_leave_memory() {
    let budget = Budget::new(128 << 20);
    let of = |project: &str| Memory::of_project(&budget, &project.into());
    let (first, second) = (of("p"), of("p"));
    let others = Mutex::new(Some(first.reading(24 << 20)));
    for _ in 0..9 {
        let others = lock(&others);
        others.as_ref().expect("they read").hold(LONG).expect("there is enough");
    }
    let reading = second.reading_one();
    let read = async || {
        let held = reading.hold(16 << 20);
        drop(lock(&others).take());
        held
    };
    reading.by(read).await.expect("the other one has read");
    assert_eq!(second.held(), (32 << 20) / UNIT, "what was let go does not count");
}

#[tokio::test(start_paused = true)]
async fn a_request_that_waits_to_read_a_long_record_leaves_its_place_to_others_of_its_project() {
    let budget = Budget::new(128 << 20);
    let (places, work) = (crate::sharing::Shares::new(1), Arc::default());
    let [own, other] = ["own", "other"].map(Arc::<str>::from);
    let large = budget.reading.try_take(&other, u32::try_from((64 << 20) / UNIT).expect("few"));
    assert!(large.is_some());
    let memory = Memory::of_project(&budget, &own);
    memory.enter(Entry::to_read(&own, &places, &work)).await.expect("nobody else is there");
    let reading = memory.reading(32 << 20);
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let place = places.try_take(&own, 1).expect("the place is free meanwhile");
        drop(large);
        tokio::time::sleep(Duration::from_secs(1)).await;
        drop(place);
    };
    let read = async || {
        assert!(places.try_take(&own, 1).is_none(), "whoever reads has the place");
        reading.hold(30 << 20)
    };
    let (read, ()) = futures_util::join!(reading.by(read), others);
    read.expect("the others have gone");
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_what_unread_responses_hold_leaves_its_place_and_gives_back_what_it_does_not_need()
{
    let budget = Budget::new(128 << 20);
    let (places, work, own) = (crate::sharing::Shares::new(1), Arc::default(), Arc::<str>::from("own"));
    let unread = Memory::of_project(&budget, &own);
    unread.hold(30 << 20).await.expect("there is enough");
    let memory = Memory::of_project(&budget, &own);
    memory.enter(Entry::to_read(&own, &places, &work)).await.expect("nobody else is there");
    let reading = memory.reading(32 << 20);
    let read = async || {
        for _ in 0..3 {
            reading.hold(LONG)?;
        }
        Ok(())
    };
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(places.try_take(&own, 1).is_some(), "the place is free meanwhile");
        drop(unread);
    };
    let (read, ()) = futures_util::join!(reading.by(read), others);
    read.expect("the response was read");
    assert_eq!(memory.held(), 2 * 3 * LONG / UNIT);
}

#[tokio::test(start_paused = true)]
async fn some_requests_of_a_project_leave_their_places_while_they_wait_and_further_ones_keep_theirs() {
    let budget = Budget::new(128 << 20);
    let (places, work, own) = (crate::sharing::Shares::new(32), Arc::default(), Arc::<str>::from("own"));
    let unread = Memory::of_project(&budget, &own);
    unread.hold(30 << 20).await.expect("there is enough");
    let read = async |_| {
        let memory = Memory::of_project(&budget, &own);
        memory.enter(Entry::to_read(&own, &places, &work)).await.expect("there are places");
        let reading = memory.reading(32 << 20);
        let read = reading.by(async || reading.hold(8 << 20)).await;
        memory.leave();
        read
    };
    let others = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(places.taken(), 3);
        drop(unread);
    };
    let (all, ()) = futures_util::join!(futures_util::future::join_all((0..OUTSIDE + 3).map(read)), others);
    assert!(all.into_iter().all(|read| read.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn requests_that_read_long_records_do_not_wait_for_each_other_in_a_circle() {
    let budget = Budget::new(128 << 20);
    let places = crate::sharing::Shares::with_total(8, 16);
    let projects = ["a", "b"].map(Arc::<str>::from);
    let read = |number: usize| {
        let (budget, places, project) = (&budget, &places, &projects[number % 2]);
        async move {
            let memory = Memory::of_project(budget, project);
            memory.enter(Entry::without_turn(project, places)).await?;
            let reading = memory.reading(32 << 20);
            let parts = async || {
                for _ in 0..16 {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    reading.hold(1 << 20)?;
                }
                Ok(())
            };
            let read = reading.by(parts).await;
            memory.leave();
            read
        }
    };
    let begun = Instant::now();
    for read in futures_util::future::join_all((0..60).map(read)).await {
        read.expect("each has its turn");
    }
    assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
}

#[tokio::test]
async fn a_request_that_stops_reading_in_the_middle_leaves_its_place() {
    let (places, own) = (crate::sharing::Shares::new(1), Arc::<str>::from("own"));
    let memory = Memory::of_project(&Budget::new(8 << 20), &own);
    let entry = Entry::without_turn(&own, &places);
    let mut read = Box::pin(memory.entered(entry, std::future::pending::<Result<()>>()));
    assert!((&mut read).now_or_never().is_none());
    assert_eq!(places.taken(), 1);
    drop(read);
    assert_eq!(places.taken(), 0);
}
