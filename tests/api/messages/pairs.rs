//! Message pairs: made, listed, changed, erased.

use futures_util::future::join_all;
use serde_json::json;
use uuid::Uuid;

use super::{overflow, pair, patch, recorded, service};
use crate::support::{Service, assert_whole, column, with};

#[tokio::test]
async fn a_pair_comes_back_whole_and_the_same_again_is_no_second_one() {
    let service = Service::open().await;
    let new = json!({"id": Uuid::from_u128(1), "topic_id": "t", "session_id": "s", "model": "m", "user_text": "u",
        "assistant_text": "a", "star": 3, "color_flag": "green", "tokens": 12, "timestamp": "2026-03-01T12:00:00Z"});
    let made = service.post("/v1/pairs", &new).await;
    assert_eq!(made.header("location"), Some("/v1/pairs/00000000-0000-0000-0000-000000000001"));
    let made = made.expect(201);
    assert_whole!("a_pair", made);
    assert_eq!(service.post("/v1/pairs", &new).await.expect(200), made);
    service.post("/v1/pairs", &with(new, &json!({"star": 1}))).await.refused(409, &[]);
    let idle = service.post("/v1/pairs", &json!({"user_text": ""})).await.expect(201);
    assert_eq!(idle["lifecycle_state"], "idle");
}

#[tokio::test]
async fn of_several_pairs_of_an_id_that_are_written_together_one_is_made() {
    let service = Service::open().await;
    let held = service.holding("lock table pairs in exclusive mode").await;
    let post = async |id: u128, text: &str| {
        let new = json!({"id": Uuid::from_u128(id), "user_text": text});
        service.post("/v1/pairs", &new).await.status.as_u16()
    };
    let path = |id: u128| format!("/v1/pairs/{}", Uuid::from_u128(id));
    // Both writers wait for the lock with a pair, and the first to go on takes all that has come meanwhile.
    let second = async {
        service.blocked(1).await;
        post(4, "x").await
    };
    let sent = [(1, "x"), (2, "x"), (2, "y"), (1, "y"), (1, "x"), (2, "y")];
    let together = async {
        service.blocked(2).await;
        join_all(sent.map(|(id, text)| post(id, text))).await
    };
    let released = async {
        service.queued(8).await;
        held.commit().await.expect("released");
    };
    let (first, second, statuses, ()) = tokio::join!(post(3, "x"), second, together, released);
    assert_eq!((first, second), (201, 201));
    for id in [1, 2] {
        let stored = service.get(&path(id)).await.expect(200)["user_text"].clone();
        let answers = sent.iter().zip(&statuses).filter(|((of, _), _)| *of == id);
        let (mut same, other): (Vec<_>, Vec<_>) = answers.partition(|((_, text), _)| stored == *text);
        same.sort_unstable_by_key(|(_, status)| **status);
        assert!(other.iter().all(|(_, status)| **status == 409), "{statuses:?}");
        let same: Vec<_> = same.into_iter().map(|(_, status)| *status).collect();
        assert!(same == [201] || same == [200, 201], "{statuses:?}");
    }
}

#[tokio::test]
async fn pairs_are_listed_by_what_they_have_and_in_either_order() {
    let service = Service::open().await;
    for (number, topic, star) in [(1, "a", 0), (2, "a", 2), (3, "b", 3), (4, "b", 0)] {
        let new = json!({"id": Uuid::from_u128(number), "topic_id": topic, "star": star, "user_text": format!("text {number}"),
            "created_at": format!("2026-03-0{number}T00:00:00Z")});
        service.post("/v1/pairs", &new).await.expect(201);
    }
    let numbers = async |query: &str| {
        let pairs = service.all(&format!("/v1/pairs?{query}")).await;
        let texts = column(&pairs, "user_text");
        texts.iter().map(|text| text.as_str().expect("a text").replace("text ", "")).collect::<String>()
    };
    assert_eq!(numbers("limit=1").await, "4321");
    assert_eq!(numbers("limit=1&order=asc").await, "1234");
    assert_eq!(numbers("topic_id=a,b&min_star=2").await, "32");
    assert_eq!(numbers("star=0,3&order=asc").await, "134");
    assert_eq!(numbers("q=EXT+2").await, "2");
    assert_eq!(numbers("state=complete").await, "");
    assert_eq!(numbers("since=2026-03-02T00:00:00Z&until=2026-03-04T00:00:00Z").await, "32");
    service.get("/v1/pairs?state=done").await.refused(422, &["/state"]);
    service.get("/v1/pairs?star=many").await.refused(422, &["/star"]);
    assert_whole!("topics", service.get("/v1/topics").await.expect(200));
}

#[tokio::test]
async fn an_edited_text_loses_its_measured_size_and_earlier_sends_show_it_as_it_was() {
    let service = service().await;
    let id = service.create("/v1/pairs", with(pair(10), &json!({"tokens": 50, "user_text": "before"}))).await;
    let path = format!("/v1/pairs/{id}");
    let send = service.post("/v1/sends", &recorded("new", &json!({"ids": [id]}))).await.expect(201);
    assert_eq!(send["selection"][0]["tokens"], 50);

    let starred = patch(&service, &path, &json!({"star": 1, "topic_id": "t"})).await.expect(200);
    assert_eq!((&starred["tokens"], &starred["topic_id"]), (&json!(50), &json!("t")));
    let unchanged = patch(&service, &path, &json!({"user_text": "before"})).await.expect(200);
    assert_eq!(unchanged["tokens"], 50);
    service.put("/v1/projects/default", &json!({"capture": "metadata"})).await.expect(200);
    let without_text = service.create("/v1/pairs", with(pair(11), &json!({"tokens": 50}))).await;
    let longer = json!({"user_text": "longer than before ".repeat(9)});
    let edited = patch(&service, &format!("/v1/pairs/{without_text}"), &longer).await.expect(200);
    assert_eq!(edited["tokens"], json!(null), "its length tells that it is another text");
    service.put("/v1/projects/default", &json!({})).await.expect(200);
    let edited = patch(&service, &path, &json!({"user_text": "after", "topic_id": ""})).await.expect(200);
    assert_eq!((&edited["tokens"], &edited["topic_id"]), (&json!(null), &json!("t")));
    let shown = service.get(&format!("/v1/sends/{}", send["id"].as_str().expect("an id"))).await.expect(200);
    assert_eq!(shown["messages"][0]["content"], "before");
    let again = service.post("/v1/sends", &recorded("new", &json!({"ids": [id]}))).await.expect(201);
    assert_eq!(again["messages"][0]["content"], "after");
}

#[tokio::test]
async fn an_erased_pair_leaves_no_text_in_the_sends_that_sent_it() {
    let service = service().await;
    let id = service.create("/v1/pairs", with(pair(1), &json!({"user_text": "needle"}))).await;
    let path = format!("/v1/pairs/{id}");
    let send = service.post("/v1/sends", &recorded("new", &json!({"ids": [id]}))).await.expect(201);
    patch(&service, &path, &json!({"assistant_text": "needle"})).await.expect(200);
    assert_eq!(service.delete(&path).await.status, 204);
    assert!(!service.dump().await.contains("needle"));
    let send = service.get(&format!("/v1/sends/{}", send["id"].as_str().expect("an id"))).await.expect(200);
    assert_eq!(send["selection"][0]["id"], json!(null));
    assert_eq!(send["predicted_message_count"], 1);
    assert_eq!(column(send["messages"].as_array().expect("messages"), "content"), ["new"]);
    service.delete(&path).await.refused(404, &[]);
}

#[tokio::test]
async fn a_pair_that_is_being_sent_can_be_neither_changed_nor_erased() {
    let service = service().await;
    let send = service.post("/v1/sends", &recorded("new", &json!({"filter": {}}))).await.expect(201);
    let path = format!("/v1/pairs/{}", send["pair_id"].as_str().expect("an id"));
    patch(&service, &path, &json!({"star": 1})).await.refused(409, &[]);
    service.delete(&path).await.refused(409, &[]);
    // Nor is it part of what another send carries.
    let other = service.post("/v1/sends", &recorded("other", &json!({"filter": {}}))).await.expect(201);
    assert_eq!(other["counter"], "0 / 0");
    let address = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    service.post(&format!("{address}/attempts"), &overflow()).await.expect(201);
    service.post(&format!("{address}/cancel"), &json!({})).await.expect(200);
    assert_eq!(service.delete(&path).await.status, 204);
    assert_eq!(service.delete(&address).await.status, 204);
    service.get(&address).await.refused(404, &[]);
}

#[tokio::test]
async fn a_pair_that_is_posted_with_the_id_of_an_erased_one_is_no_part_of_earlier_sends() {
    let service = service().await;
    let id = service.create("/v1/pairs", pair(1)).await;
    let send = service.post("/v1/sends", &recorded("new", &json!({"ids": [id]}))).await.expect(201);
    let address = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    service.post(&format!("{address}/cancel"), &json!({})).await.expect(200);
    for id in [id.as_str(), send["pair_id"].as_str().expect("an id")] {
        service.delete(&format!("/v1/pairs/{id}")).await.gone();
        service.create("/v1/pairs", with(pair(1), &json!({"id": id, "user_text": "other"}))).await;
    }
    let shown = service.get(&address).await.expect(200);
    assert_eq!(
        (&shown["messages"], &shown["pair"], &shown["pair_id"]),
        (&json!([]), &json!(null), &json!(null))
    );
    assert_eq!(shown["snapshot"]["outgoing_user_text"], json!(null));
}

#[tokio::test]
async fn an_erasure_that_loses_a_race_is_tried_again() {
    let service = service().await;
    let id = service.create("/v1/pairs", pair(1)).await;
    let send = service.post("/v1/sends", &recorded("new", &json!({"ids": [id]}))).await.expect(201);
    let address = format!("/v1/sends/{}", send["id"].as_str().expect("an id"));
    service.post(&format!("{address}/cancel"), &json!({})).await.expect(200);
    // A sequence counts also what is rolled back, so that every other try fails.
    let lose = "create sequence tries;
        create function lose() returns trigger language plpgsql as $$ begin
            if nextval('tries') % 2 = 1 then raise exception using errcode = 'deadlock_detected'; end if;
            return old;
        end $$;
        create trigger lose before delete on pairs for each row execute function lose();
        create trigger lose before delete on sends for each row execute function lose();";
    sqlx::raw_sql(lose).execute(&mut service.connection().await).await.expect("triggers");
    service.delete(&address).await.gone();
    service.delete(&format!("/v1/pairs/{id}")).await.gone();
}
