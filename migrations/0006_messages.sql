-- Messages: the pairs of a chat, the sends that made them, and what is known of models (seed 003).
--
-- As with attempts, no foreign key joins the children to their send: the writer holds its row locked.

create table models (
    project         text not null,
    name            text not null,
    context_window  bigint not null,
    tpm             bigint,
    rpm             bigint,
    tpd             bigint,
    chars_per_token double precision,
    updated_at      timestamptz not null,
    primary key (name, project)
);

create index models_project on models (project, name);

comment on table models is 'Limits of models as a project has set them. They go before those of the providers'' file.';
comment on column models.tpd is 'Tokens per day.';

create table model_ratios (
    project text not null,
    model   text not null,
    ratio   double precision not null,
    weight  double precision not null,
    primary key (model, project)
);

comment on table model_ratios is 'How many tokens of a model a unit of text is, as reported usage has taught it; see rules/estimate.rs.';

create table pairs (
    project          text not null,
    id               uuid not null,
    topic_id         text,
    session_id       text,
    model            text,
    user_text        text,
    assistant_text   text,
    tool_calls       json,
    is_partial       boolean not null default false,
    has_media        boolean not null default false,
    turn             uuid,
    said             uuid,
    user_chars       bigint not null,
    user_units       double precision not null,
    assistant_chars  bigint not null,
    assistant_units  double precision not null,
    star             smallint not null default 0 check (star between 0 and 3),
    color_flag       text,
    lifecycle_state  text not null check (lifecycle_state in ('idle', 'sending', 'complete', 'error')),
    error            json,
    tokens           bigint,
    tokens_model     text,
    revision         integer not null default 1 + floor(random() * 1000000000)::integer,
    send_id          uuid,
    created_at       timestamptz not null,
    completed_at     timestamptz,
    request_hash     bytea not null,
    conversation     uuid not null generated always as
        (md5(coalesce('topic ' || topic_id, 'session ' || session_id, 'pair ' || id::text))::uuid) stored,
    primary key (id, project)
);

create index pairs_created on pairs (project, created_at desc, id desc);
create index pairs_age on pairs (project, coalesce(completed_at, created_at));
create index pairs_topic on pairs (project, topic_id, created_at, id) where topic_id is not null;
create index pairs_session on pairs (project, session_id, created_at) where session_id is not null;
create index pairs_completed on pairs (project, completed_at, id) where lifecycle_state = 'complete';
create index pairs_turn on pairs (turn) where turn is not null;
create index pairs_conversation on pairs (project, conversation, completed_at, id) where lifecycle_state = 'complete';

comment on table pairs is 'What a user said and what the model answered.';
comment on column pairs.user_text is 'Null: not kept. Neither text has an index: trigrams of both took four fifths of the time that a pair takes to be written.';
comment on column pairs.tool_calls is 'The tools that the answer calls, as the gateway saw them.';
comment on column pairs.is_partial is 'Whether the model did not end the answer by itself: it was cut off or withheld. Conversations that are exported leave it out.';
comment on column pairs.has_media is 'Whether the user has sent a picture or another file with the text, which is not in it. Conversations that are exported leave it out.';
comment on column pairs.turn is 'Of a pair that the gateway made: names the human message in its conversation, the same for all pairs that answer it.';
comment on column pairs.said is 'Of such a pair: sent_messages.content of that message. By it, copies are found even if the send of the pair is erased.';
comment on column pairs.user_units is 'Length of the text by kinds of characters, of which sizes are estimated; see rules/estimate.rs.';
comment on column pairs.tokens is 'The measured size, from usage that the provider reported. tokens_model says of which model; null: of any.';
comment on column pairs.revision is 'Counts edits of the texts from a random number on, so that sends of an erased pair do not show the texts of one that is posted with its id. Earlier texts are rows of pair_revisions.';
comment on column pairs.completed_at is 'Database clock at the write that completed the pair: exports are ordered by it.';
comment on column pairs.conversation is 'Derived from the topic, else the session, else the pair itself: what an export makes one chat of.';
comment on column pairs.request_hash is 'Of the request that made the pair: tells a replay from a conflict.';

create table pair_revisions (
    project        text not null,
    pair_id        uuid not null,
    revision       integer not null,
    user_text      text,
    assistant_text text,
    primary key (pair_id, revision, project)
);

comment on table pair_revisions is 'Texts of pairs before they were edited, as earlier sends have sent them.';

create table sends (
    project                text not null,
    id                     uuid not null,
    pair_id                uuid not null,
    mode                   text not null check (mode in ('record', 'execute', 'gateway')),
    state                  text not null check (state in ('sending', 'complete', 'error')),
    stage                  text not null,
    model                  text not null,
    topic_id               text,
    session_id             text,
    system                 text,
    system_hash            bytea,
    system_tokens          bigint not null,
    max_context            bigint,
    user_request_allowance bigint not null,
    max_trim_attempts      integer not null,
    chars_per_token        double precision,
    ratio                  double precision,
    visible_count          integer not null,
    visible_ids            uuid[] not null,
    selected_ids           uuid[] not null,
    selected_revisions     integer[] not null,
    selected_tokens        bigint[] not null,
    selected_models        text[] not null,
    measured               boolean[] not null,
    given_pairs            json,
    predicted_history      bigint not null,
    aut                    bigint not null,
    preflight_count        integer not null,
    trimmed_count          integer not null,
    attempts_used          integer not null default 0,
    error                  json,
    error_class            text,
    overflow_matched       boolean,
    usage                  json,
    input_tokens           bigint,
    output_tokens          bigint,
    finish_reason          text,
    quota                  json,
    reask_of               uuid,
    sent_before            uuid,
    generation_id          uuid,
    lease_until            timestamptz,
    created_at             timestamptz not null,
    completed_at           timestamptz,
    request_hash           bytea not null,
    outcome_hash           bytea,
    primary key (id, project)
);

create index sends_created on sends (project, created_at desc, id desc);
create index sends_age on sends (project, coalesce(completed_at, created_at));
create index sends_session on sends (project, session_id, created_at) where session_id is not null;
create index sends_in_progress on sends (project, model, created_at)
    where state = 'sending' or stage in ('cancelled', 'interrupted');
create index sends_lease on sends (lease_until) where state = 'sending';

comment on table sends is 'One send: what was predicted to fit, and what became of it. Its calls are rows of send_attempts, its pair is a row of pairs.';
comment on column sends.max_context is 'The model''s limit as it was at the prediction. Null: not known, as the gateway asks for none.';
comment on column sends.ratio is 'Tokens of a unit of text by which sizes were estimated. Null where chars_per_token was given, or where the provider counts more than the text, such as pictures.';
comment on column sends.visible_ids is 'The stored pairs that the user saw, oldest first.';
comment on column sends.selected_ids is 'The pairs that were predicted to fit, oldest first; the other arrays tell of the same ones.';
comment on column sends.selected_revisions is 'Which text of each pair was sent.';
comment on column sends.measured is 'Whether the size of each pair was measured and not estimated.';
comment on column sends.sent_before is 'The send of the pair that this one asks again, which is no longer there.';
comment on column sends.given_pairs is 'Pairs that the client sent along instead of naming stored ones.';
comment on column sends.preflight_count is 'How many pairs were dropped before the first call; part of trimmed_count.';
comment on column sends.lease_until is 'When a send that is still sending counts as interrupted.';

create function without_text(error json) returns json language sql stable parallel safe
    return (error::jsonb || jsonb_build_object('message', null, 'label', '[error: ' || (error ->> 'class') || ']'))::json;

comment on function without_text is 'An error of a send without what the provider has written, as failure::forget leaves it.';

create table send_attempts (
    project                text not null,
    send_id                uuid not null,
    attempt                integer not null,
    line_id                uuid,
    model                  text not null,
    stage                  text not null,
    trimmed_count          integer not null,
    attempt_history_tokens bigint not null,
    attempt_total_tokens   bigint not null,
    error                  json,
    overflow               boolean not null,
    usage                  json,
    tokens                 bigint not null,
    latency_ms             integer,
    at                     timestamptz not null,
    request_hash           bytea not null,
    primary key (send_id, attempt, project)
);

alter table send_attempts alter column send_id set (n_distinct = -0.2);

create index send_attempts_model on send_attempts (project, model, at) include (tokens);

comment on table send_attempts is 'One call of a provider.';
comment on column send_attempts.line_id is 'The id by which a call without a number is known when it is reported again.';
comment on column send_attempts.tokens is 'What the call counts in quotas: the reported usage, else the estimated sizes of the request and of the answer that ends the send.';

create table sent_messages (
    project text not null,
    id      uuid not null,
    parent  uuid,
    turn    uuid,
    content uuid,
    message json,
    primary key (id, project),
    foreign key (parent, project) references sent_messages (id, project)
);

create index sent_messages_parent on sent_messages (parent);
create index sent_messages_content on sent_messages (content);

comment on table sent_messages is 'Messages that went through the gateway, each stored once in a session however often it is sent again. A row follows the last message of each send: its end. A message is erased with the last row that follows it.';
comment on column sent_messages.id is 'Keyed hash of the session, the parent and the message. At the end of a send: its id.';
comment on column sent_messages.parent is 'The message before it. The foreign key locks it, so that a new row never follows one that is being erased. It is looked up by an index without the project: the planner takes a new project to have a single row.';
comment on column sent_messages.turn is 'The human message that this one is or follows, also one beside the result of a tool: pairs.turn. Null before the first.';
comment on column sent_messages.content is 'Keyed hash of the session and the message, or what a person says in it, by which copies are found that clients send without what came before or with something else beside it. Null at the end of a send.';
comment on column sent_messages.message is 'Null: erased with its pair, or the end of a send.';
