//! Examples: what the document prints works when it is sent as printed.

use std::collections::BTreeSet;

use super::Contract;
use crate::support::provider;

/// Every operation, in the order in which a reader would try them: what is referred to comes before what refers to it, and
/// erasure last.
const ORDER: &[&str] = &[
    "get_service",
    "get_problem",
    "get_health",
    "get_readiness",
    "get_version",
    "get_metrics",
    "put_project",
    "get_project",
    "try_redaction",
    "put_prompt_template",
    "get_prompt_template",
    "list_prompt_templates",
    "put_model",
    "list_models",
    "post_events",
    "start_generation",
    "append_attempt",
    "finalize_generation",
    "amend_generation",
    "review_generation",
    "get_generation",
    "list_generations",
    "find_similar_generations",
    "get_generation_figures",
    "get_prompt_figures",
    "compare_prompts",
    "start_suggestion",
    "append_views",
    "append_partial_inputs",
    "finalize_suggestion",
    "amend_suggestion",
    "get_suggestion",
    "list_suggestions",
    "list_negative_signals",
    "get_block_metadata",
    "get_suggestion_figures",
    "compare_suggestion_versions",
    "start_search",
    "append_fallback",
    "resolve_search",
    "end_turn",
    "get_search",
    "list_searches",
    "find_associations",
    "find_expansions",
    "list_association_changes",
    "report_association",
    "mark_file_gone",
    "get_search_figures",
    "report_claude_code_hook",
    "report_codex_hook",
    "append_transcript",
    "create_pair",
    "get_pair",
    "change_pair",
    "list_pairs",
    "list_topics",
    "predict_context",
    "classify_error",
    "start_send",
    "append_send_attempt",
    "finalize_send",
    "get_send",
    "list_sends",
    "cancel_send",
    "get_message_figures",
    "create_chat_completion",
    "create_response",
    "list_openai_models",
    "create_message",
    "count_message_tokens",
    "list_anthropic_models",
    "store_memory",
    "get_memory",
    "change_memory",
    "list_memories",
    "add_conversation_query",
    "suggest_memories",
    "search_memories",
    "detect_intent",
    "get_conversation",
    "judge_memory",
    "get_memory_figures",
    "list_datasets",
    "export_training_pairs",
    "export_correction_pairs",
    "export_preference_pairs",
    "export_accepted_suggestions",
    "export_rankings",
    "export_suggestion_history",
    "export_search_pairs",
    "export_conversations",
    "export_memory_suggestions",
    "describe_training_pairs",
    "describe_correction_pairs",
    "describe_preference_pairs",
    "describe_accepted_suggestions",
    "describe_rankings",
    "describe_suggestion_history",
    "describe_search_pairs",
    "describe_conversations",
    "describe_memory_suggestions",
    "profile_training_pairs",
    "profile_correction_pairs",
    "profile_preference_pairs",
    "profile_accepted_suggestions",
    "profile_rankings",
    "profile_suggestion_history",
    "profile_search_pairs",
    "profile_conversations",
    "profile_memory_suggestions",
    "put_code",
    "create_snapshot",
    "get_snapshot",
    "list_snapshots",
    "download_snapshot",
    "deprecate_prompt_template",
    "list_sessions",
    "delete_snapshot",
    "delete_generation",
    "delete_suggestion",
    "delete_pair",
    "delete_memory",
    "delete_send",
    "erase_record",
    "erase_records",
    "erase_session",
    "create_key",
    "list_keys",
    "rotate_key",
    "revoke_key",
    "list_audit",
];

#[tokio::test]
async fn every_example_works_when_it_is_sent_as_printed() {
    let (service, _) = provider::service().await;
    let key = service.first_key().await;
    let contract = Contract::of(&service).await;
    let operations = contract.operations();
    let known: BTreeSet<_> = operations.iter().map(|operation| operation.id).collect();
    assert_eq!(ORDER.iter().copied().collect::<BTreeSet<_>>(), known);

    for id in ORDER {
        let operation = operations.iter().find(|operation| operation.id == *id).expect("an operation");
        for parameter in operation.parameters().filter(|parameter| parameter["required"] == true) {
            assert!(!parameter["example"].is_null(), "{id} has no example of {}", parameter["name"]);
        }
        let calls = operation.examples();
        assert!(!calls.is_empty(), "{id} has no example of its body");
        for call in calls {
            if let Some((media_type, body)) = &call.body {
                let content = operation.bodies().find(|(other, _)| *other == media_type).expect("a body").1;
                contract.assert_valid(&content["schema"], body, id);
            }
            let answer = service.send(operation.request(&call, &key)).await;
            assert!(answer.status.is_success(), "{id}: {} {}", answer.status, answer.text());
            let response = &operation.value["responses"][answer.status.as_str()];
            assert!(response.is_object(), "{id} does not say that it answers {}", answer.status);
            let media_type = answer.header("content-type").unwrap_or_default();
            let media_type = media_type.split(';').next().unwrap_or_default();
            match &response["content"] {
                content if content.is_object() => {
                    let content = &content[media_type];
                    assert!(content.is_object(), "{id} does not say that it answers with {media_type:?}");
                    let body = match media_type {
                        "application/json" => answer.json(),
                        _ => answer.text().into(),
                    };
                    contract.assert_valid(&content["schema"], &body, id);
                }
                _ => assert_eq!(answer.text(), "", "{id} does not say that it answers with a body"),
            }
        }
    }
}
