//! What is told of a session beyond its own turns: forks that repeat it, and people who object to what it came to.

use serde_json::{Value, json};

use super::{call, found, learned, prompt, reads, send, text};
use crate::support::{Service, column, encoded, with};

/// The id of a call as the API draws it.
fn drawn(number: usize) -> String {
    format!("toolu_01AbCdEfGhIjKlMnOpQr{number:04}")
}

/// A turn of a session in which a search finds nothing and a file is read, its calls numbered from `first`.
fn searching(session: &str, first: usize, at: u32, file: &str) -> Vec<Value> {
    let pattern = json!({"pattern": format!("needle{first}")});
    let mut lines = vec![prompt(at, "where is it?")];
    lines.extend(call(at + 1, &drawn(first), "Grep", &pattern, &json!("No matches found")));
    lines.extend(reads(at + 3, &drawn(first + 1), file));
    lines.push(prompt(at + 9, "thanks"));
    lines.into_iter().map(|line| with(line, &json!({"sessionId": session}))).collect()
}

#[tokio::test]
async fn a_session_that_was_forked_from_another_teaches_only_what_is_new_in_it() {
    let service = Service::open().await;
    send(&service, "a", text(&searching("a", 1, 0, "/src/app/a.rs"))).await;
    let before = learned(&service).await;
    // The fork repeats the lines under its own name, and goes on.
    let mut fork = searching("b", 1, 0, "/src/app/a.rs");
    let copied = send(&service, "b", text(&fork)).await;
    assert_eq!(
        (&copied["matched"], &copied["searches_started"], &copied["searches_resolved"]),
        (&json!(2), &json!(0), &json!(0))
    );
    assert_eq!(learned(&service).await, before);
    fork.extend(searching("b", 3, 20, "/src/app/b.rs"));
    let grown = send(&service, "b", text(&fork)).await;
    assert_eq!((&grown["searches_started"], &grown["searches_resolved"]), (&json!(1), &json!(1)));
    let evidence =
        service.get("/v1/associations?query=needle1").await.expect(200)["data"][0]["evidence"].clone();
    assert_eq!(evidence, 1);
    // Ids that count the calls of a session are others in another session.
    for session in ["c", "d"] {
        let mut lines = vec![prompt(0, "where?")];
        lines.extend(call(
            1,
            "functions.Grep:0",
            "Grep",
            &json!({"pattern": "counted"}),
            &json!("No matches found"),
        ));
        lines.extend(reads(3, "functions.Read:1", "/src/app/c.rs"));
        lines.push(prompt(9, "thanks"));
        let lines: Vec<_> =
            lines.into_iter().map(|line| with(line, &json!({"sessionId": session}))).collect();
        assert_eq!(send(&service, session, text(&lines)).await["searches_resolved"], 1, "{session}");
    }
}

#[tokio::test]
async fn a_person_who_objects_moves_the_answer_to_the_file_that_the_agent_goes_to_then() {
    let turn = |objection: &str, second: Vec<Value>| {
        let mut lines = vec![prompt(0, "find the login button")];
        lines.extend(call(1, "t1", "Grep", &json!({"pattern": "loginButton"}), &json!("No matches found")));
        lines.extend(reads(3, "t2", "/src/app/Button.tsx"));
        lines.push(prompt(200, objection));
        lines.extend(second);
        lines.push(prompt(300, "thanks"));
        lines
    };
    let edits = |at: u32, id: &str, file: &str| {
        call(
            at,
            id,
            "Edit",
            &json!({"file_path": file, "old_string": "a", "new_string": "b"}),
            &json!("edited"),
        )
    };
    let other = [
        reads(203, "t3", "/src/app/auth/LoginButton.tsx"),
        edits(205, "t4", "/src/app/auth/LoginButton.tsx"),
    ];
    for (objection, second, paths) in [
        ("no, the other file", other.concat(), vec!["auth/LoginButton.tsx"]),
        (
            "no, the other file",
            edits(205, "t4", "/src/app/auth/LoginButton.tsx").to_vec(),
            vec!["auth/LoginButton.tsx"],
        ),
        // The person objected to something else, or to nothing, or the agent did nothing about it.
        (
            "No, make it the other colour",
            edits(205, "t4", "/src/app/Button.tsx").to_vec(),
            vec!["Button.tsx"],
        ),
        ("great, now the tests", other.concat(), vec!["Button.tsx"]),
        ("no, the other file", vec![], vec!["Button.tsx"]),
    ] {
        let service = Service::open().await;
        let lines = turn(objection, second.clone());
        send(&service, "a", text(&lines)).await;
        assert_eq!(found(&service, "loginButton").await, paths, "{objection} {second:?}");
        // Piece by piece it is the same.
        let pieces = Service::open().await;
        for line in &lines {
            send(&pieces, "a", text(std::slice::from_ref(line))).await;
        }
        assert_eq!(learned(&pieces).await, learned(&service).await, "{objection} {second:?}");
    }
}

#[tokio::test]
async fn a_file_to_which_a_person_objected_is_exported_as_unhelpful_and_not_as_the_answer() {
    let service = Service::open().await;
    let mut lines = vec![prompt(0, "find the login button")];
    lines.extend(call(1, "t1", "Grep", &json!({"pattern": "loginButton"}), &json!("No matches found")));
    lines.extend(reads(3, "t2", "/src/app/Button.tsx"));
    lines.push(prompt(200, "no, the other file"));
    send(&service, "a", text(&lines)).await;
    let export = async |parameters: &str| service.get(&format!("/v1/exports/search-pairs{parameters}")).await;
    let before = export("").await;
    let row = |path: &str, unhelpful: &[&str]| json!({"query": "loginButton", "path": path, "unhelpful": unhelpful, "root": "/src/app"});
    assert_eq!(before.rows(), [row("Button.tsx", &[])]);
    lines = reads(203, "t3", "/src/app/auth/LoginButton.tsx").into();
    lines.push(prompt(300, "thanks"));
    send(&service, "a", text(&lines)).await;
    let (right, wrong) = ("auth/LoginButton.tsx", "Button.tsx");
    for parameters in ["", "?dedupe=exact"] {
        assert_eq!(export(parameters).await.rows(), [row(right, &[wrong])], "{parameters}");
    }
    let pairs = export("?format=pairs").await.rows();
    assert_eq!(pairs, [json!({"anchor": "loginButton", "positive": right})]);
    let triplets = export("?format=triplets").await.rows();
    assert_eq!(triplets, [json!({"anchor": "loginButton", "positive": right, "negative": wrong})]);
    // What was exported before the objection had effect is exported again.
    let as_of = before.header("gleaner-as-of").expect("a time");
    assert_eq!(export(&format!("?as_of={}", encoded(as_of))).await.rows(), before.rows());
}

#[tokio::test]
async fn a_search_that_is_erased_takes_its_corrections_with_it() {
    let service = Service::open().await;
    let mut lines = vec![prompt(0, "find the login button")];
    lines.extend(call(1, "t1", "Grep", &json!({"pattern": "loginButton"}), &json!("No matches found")));
    lines.extend(reads(3, "t2", "/src/app/Button.tsx"));
    lines.push(prompt(200, "no, the other file"));
    lines.extend(reads(203, "t3", "/src/app/auth/LoginButton.tsx"));
    lines.push(prompt(300, "thanks"));
    send(&service, "a", text(&lines)).await;
    let searches = service.all("/v1/searches").await;
    assert_eq!(searches[0]["corrects"], searches[1]["id"]);
    let path = format!("/v1/records/{}", searches[1]["id"].as_str().expect("an id"));
    assert_eq!(service.delete(&path).await.expect(200)["searches"], 2);
    assert_eq!(service.all("/v1/searches").await, [json!(null); 0]);
    assert_eq!(found(&service, "loginButton").await, [json!(null); 0]);
}

#[tokio::test]
async fn a_fork_is_learned_from_that_corrects_twice_what_was_erased_but_for_the_second_correction() {
    let service = Service::open().await;
    let session = |session: &str| {
        let mut lines = vec![prompt(0, "find the login button")];
        let pattern = json!({"pattern": "loginButton"});
        lines.extend(call(1, &drawn(1), "Grep", &pattern, &json!("No matches found")));
        lines.extend(reads(3, &drawn(2), "/src/app/Button.tsx"));
        lines.push(prompt(100, "no, the other file"));
        lines.extend(reads(103, &drawn(3), "/src/app/auth/Button.tsx"));
        lines.push(prompt(200, "no, I meant the other one"));
        lines.extend(reads(203, &drawn(4), "/src/app/auth/LoginButton.tsx"));
        let lines: Vec<_> =
            lines.into_iter().map(|line| with(line, &json!({"sessionId": session}))).collect();
        text(&lines)
    };
    send(&service, "a", session("a")).await;
    let before = service.all("/v1/searches").await;
    assert_eq!(column(&before, "state"), ["tracking", "resolved", "resolved"]);
    // Only what is over is old enough to be erased.
    let erased = service.delete("/v1/records?domain=searches&before=2100-01-01T00:00:00Z").await.expect(200);
    assert_eq!(erased["erased"]["searches"], 2);
    send(&service, "b", session("b")).await;
    let after = service.all("/v1/searches").await;
    assert_eq!(column(&after, "id"), column(&before, "id"));
}
