-- Suggestion records: what a model offered, what the user looked at and typed, and what was submitted in the end (seed 000).
--
-- As with attempts, no foreign key joins the children to their slate: the writer holds its row locked.

create table suggestions (
    project                 text not null,
    id                      uuid not null,
    state                   text not null default 'pending' check (state in ('pending', 'finalized', 'discarded')),
    context                 json,
    llm_request             json,
    llm_response            json,
    failed                  boolean not null default false,
    error                   text,
    suggestions             json,
    suggestion_count        integer not null,
    suggestion_hashes       bytea,
    suggestion_node_version text,
    session_name            text,
    server_name             text,
    trigger_block_number    integer,
    result_block_number     integer,
    policy_id               text,
    propensities            double precision[],
    context_block_count     integer,
    model                   text,
    temperature             double precision,
    total_tokens            bigint,
    prompt_tokens           bigint,
    completion_tokens       bigint,
    fetch_start_ts          double precision,
    fetch_end_ts            double precision,
    submit_ts               double precision,
    created_at              timestamptz not null,
    completed_at            timestamptz,
    viewed_indices          integer[],
    cycle_count             integer,
    cycled_back             boolean,
    displayed_index         integer,
    actual_input            text,
    actual_input_hash       bytea,
    match_type              text check (match_type in ('exact', 'partial', 'prefix', 'none')),
    accepted_index          integer,
    time_to_action_ms       double precision,
    reported                json,
    request_hash            bytea not null,
    outcome_hash            bytea,
    request_is_readable     boolean not null default false,
    prompt_hash             uuid,
    context_hash            uuid,
    example_hash            uuid,
    context_example_hash    uuid generated always as (md5(context_hash::text || actual_input)::uuid) stored,
    slate_hash              uuid,
    primary key (id, project)
);

create index suggestions_created on suggestions (project, created_at desc, id desc);
create index suggestions_age on suggestions (project, coalesce(completed_at, created_at));
create index suggestions_session on suggestions (project, session_name, created_at) where session_name is not null;
create index suggestions_completed on suggestions (project, completed_at, id) where state = 'finalized';
create index suggestions_example on suggestions (project, example_hash, completed_at, id)
    where state = 'finalized' and example_hash is not null;
create index suggestions_context_example on suggestions (project, context_example_hash, completed_at, id)
    where state = 'finalized' and context_example_hash is not null;
create index suggestions_slate on suggestions (project, slate_hash, completed_at, id)
    where state = 'finalized' and slate_hash is not null;
create index suggestions_line on suggestions (project, request_hash, completed_at, id)
    where state = 'finalized' and reported is not null;

comment on table suggestions is 'One slate of suggestions and what became of it. What the user did in between are rows of suggestion_activity.';
comment on column suggestions.state is 'pending: not submitted yet; finalized; discarded: a command (:…) was typed, and nothing but the name is kept.';
comment on column suggestions.context is 'What the model was told of, as sent.';
comment on column suggestions.failed is 'Whether the fetch of suggestions failed.';
comment on column suggestions.error is 'Why it failed.';
comment on column suggestions.suggestions is 'The texts offered, in order.';
comment on column suggestions.suggestion_count is 'How many there are.';
comment on column suggestions.suggestion_hashes is 'Where the texts are not kept: a keyed hash of each, 16 bytes, one after the other.';
comment on column suggestions.policy_id is 'The policy that ordered the slate.';
comment on column suggestions.propensities is 'The probability with which that policy would have shown each suggestion first.';
comment on column suggestions.context_block_count is 'How many blocks the context has.';
comment on column suggestions.model is 'The model that answered, else the one asked.';
comment on column suggestions.total_tokens is 'Of the call of the model; prompt_tokens and completion_tokens are its parts, where they are told.';
comment on column suggestions.fetch_start_ts is 'Seconds of the client''s clock, whatever its epoch; fetch_end_ts and submit_ts likewise.';
comment on column suggestions.completed_at is 'Database clock at the write that finalized the record: exports are ordered by it.';
comment on column suggestions.viewed_indices is 'Of a finalized record: the suggestions looked at, in order, with repetitions.';
comment on column suggestions.cycled_back is 'Whether one was looked at more than once.';
comment on column suggestions.displayed_index is 'The one that was showing at the submit; -1: none.';
comment on column suggestions.actual_input is 'What the user submitted.';
comment on column suggestions.actual_input_hash is 'Where it is not kept: its keyed hash.';
comment on column suggestions.match_type is 'How it relates to the slate, by our own rule; null where the text to tell from was not kept.';
comment on column suggestions.accepted_index is 'Which suggestion it relates to; null where none.';
comment on column suggestions.reported is 'What the client reported of the same, where it did.';
comment on column suggestions.request_hash is 'Of the request that started the record: tells a replay from a conflict.';
comment on column suggestions.outcome_hash is 'Of the request that finalized it, likewise.';
comment on column suggestions.request_is_readable is 'Whether exports can read the messages of llm_request. Otherwise the context is what the model was told.';
comment on column suggestions.prompt_hash is 'Of what the model was told, as exported.';
comment on column suggestions.context_hash is 'Of the context.';
comment on column suggestions.example_hash is 'Of prompt_hash and the input: finds equal examples.';
comment on column suggestions.context_example_hash is 'Of context_hash and the input: finds equal examples where the context is the prompt.';
comment on column suggestions.slate_hash is 'Of prompt_hash, the slate, what was viewed, and the input: finds equal rankings.';

create table suggestion_activity (
    project       text not null,
    suggestion_id uuid not null,
    id            uuid not null,
    kind          text not null check (kind in ('view', 'input')),
    index         integer,
    direction     smallint check (direction in (-1, 1)),
    text          text,
    at            timestamptz,
    received_at   timestamptz not null,
    arrival       bigint generated always as identity,
    primary key (suggestion_id, id, project)
);

alter table suggestion_activity alter column suggestion_id set (n_distinct = -0.2);

comment on table suggestion_activity is 'What a user did before the submit, as sent: looked at a suggestion, or typed. Resolved on read.';
comment on column suggestion_activity.index is 'Of a view: the suggestion looked at; null: see direction.';
comment on column suggestion_activity.direction is 'Of a view: 1 went on to the next suggestion, -1 back to the one before.';
comment on column suggestion_activity.text is 'Of an input: all that stood there.';
comment on column suggestion_activity.at is 'When, by the client''s clock.';
comment on column suggestion_activity.arrival is 'The order of arrival, where times do not tell.';

create table preference_labels (
    project        text not null,
    completed_at   timestamptz not null,
    suggestion_id  uuid not null,
    rejected_index integer not null,
    label_hash     uuid not null,
    pair_hash      uuid,
    primary key (project, completed_at, suggestion_id, rejected_index)
);

create index preference_labels_record on preference_labels (project, suggestion_id);
create index preference_labels_label on preference_labels (project, label_hash, completed_at, suggestion_id, rejected_index);
create index preference_labels_pair on preference_labels (project, pair_hash, completed_at, suggestion_id, rejected_index)
    where pair_hash is not null;

comment on table preference_labels is 'Which texts of a slate a user chose and rejected; written by the write that finalizes the record.';
comment on column preference_labels.completed_at is 'The record''s.';
comment on column preference_labels.rejected_index is 'The suggestion that was viewed and not chosen; -1: what was submitted.';
comment on column preference_labels.label_hash is 'Of prompt, text and whether it was chosen: finds equal labels.';
comment on column preference_labels.pair_hash is 'Of prompt, chosen and rejected text: finds equal pairs. Null on what was submitted.';

do $$
begin
    alter table suggestions alter column context set compression lz4;
    alter table suggestions alter column llm_request set compression lz4;
    alter table suggestions alter column llm_response set compression lz4;
    alter table suggestions alter column suggestions set compression lz4;
exception
    when feature_not_supported or invalid_parameter_value then null;
end $$;
