-- Memories: what is worth knowing again, the queries of conversations, and what was shown in them (seed 002).
--
-- No foreign keys but that of embeddings: a memory may be erased while figures of it stay.

create table memories (
    project      text not null,
    id           uuid not null,
    source_type  text not null check (source_type in ('memory', 'code')),
    content      text,
    revision     integer not null default 0,
    importance   double precision not null check (importance between 0 and 1),
    tags         jsonb not null default '[]',
    file_path    text,
    symbol       text,
    root         text,
    session_id   text,
    code_file    uuid,
    metadata     jsonb not null default '{}',
    created_at   timestamptz not null,
    search_keys  integer[],
    term_counts  bytea,
    request_hash bytea not null,
    primary key (id, project)
);

create index memories_created on memories (project, created_at desc, id desc);
-- Those that expire. The others go with their files.
create index memories_notes on memories (project, created_at) where code_file is null;
create index memories_session on memories (project, session_id, created_at) where session_id is not null;
create index memories_code_file on memories (project, code_file) where code_file is not null;
-- A path may be longer than what a B-tree takes: its hash is indexed.
create index memories_file on memories (project, md5(file_path)) where file_path is not null;
create index memories_search_keys on memories using gin (search_keys) with (gin_pending_list_limit = 16384) where search_keys is not null;

comment on table memories is 'What is worth knowing again: a note, a decision, a function.';
comment on column memories.content is 'Null: not kept.';
comment on column memories.revision is 'How often the content has changed.';
comment on column memories.root is 'The folder that the memory is about. Nearness to it is preferred; memories of other folders are found too.';
comment on column memories.code_file is 'The file of source code that it is a piece of, derived from folder and path, if it came with the whole file.';
comment on column memories.search_keys is 'Hashes of the project, and of its terms, ascending; see memories/rules/terms.rs. Null: not kept, so it is never found.';
comment on column memories.term_counts is 'How often the term of each search key stands in the memory, a byte each, 255 at most.';
comment on column memories.request_hash is 'Of the request that made the memory: tells a replay from a conflict. Empty: a piece of a file that was changed since.';

create table memory_embeddings (
    project   text not null,
    memory_id uuid not null,
    model     text not null,
    embedding real[] not null,
    primary key (memory_id, project),
    foreign key (memory_id, project) references memories (id, project) on delete cascade
);

comment on table memory_embeddings is 'What memories mean, by a model of embeddings, if one is configured. Filled in by a background task.';
comment on column memory_embeddings.embedding is 'Empty: the model does not accept the text.';

create table conversation_queries (
    project      text not null,
    session_id   text not null,
    id           uuid not null,
    query        text,
    shown        uuid[] not null,
    root         text,
    asked_by     uuid,
    at           timestamptz not null,
    request_hash bytea not null,
    primary key (id, project)
);

create index conversation_queries_asked_by on conversation_queries (project, asked_by, at, id) where asked_by is not null;
create index conversation_queries_age on conversation_queries (project, at);
create index conversation_queries_session on conversation_queries (project, session_id, at, id);

comment on table conversation_queries is 'What was asked in a conversation, which is named by its agent session.';
comment on column conversation_queries.query is 'Null: not kept.';
comment on column conversation_queries.asked_by is 'The key with which it was asked; nil without a key on an open server; null where it is not known.';
comment on column conversation_queries.shown is 'The memories that the client has shown with it, as it says: these are not suggested again. They need not exist.';

create table memory_suggests (
    project              text not null,
    id                   uuid not null,
    session_id           text not null,
    query_id             uuid,
    intent_type          text not null,
    intent_confidence    double precision not null,
    keywords             jsonb not null,
    search_query         text not null,
    confidence_threshold double precision not null,
    took_ms              double precision not null,
    created_at           timestamptz not null,
    request_hash         bytea not null,
    primary key (id, project)
);

create index memory_suggests_session on memory_suggests (project, session_id);
create index memory_suggests_created on memory_suggests (project, created_at);
create index memory_suggests_query on memory_suggests (query_id, project) where query_id is not null;

comment on table memory_suggests is 'An answer to the question what belongs to a conversation. What it suggested are rows of conversation_memories.';
comment on column memory_suggests.query_id is 'The last query of the conversation at that moment. Null: there was none, or it is erased.';
comment on column memory_suggests.took_ms is 'How long it took to find the memories.';

create table conversation_memories (
    project             text not null,
    id                  uuid not null,
    session_id          text not null,
    memory_id           uuid not null,
    memory_revision     integer,
    suggest_id          uuid,
    query_id            uuid,
    intent_type         text,
    source_type         text not null,
    rank                integer,
    confidence          double precision,
    log_odds            double precision,
    score               double precision,
    semantic_similarity double precision,
    recency             double precision,
    importance          double precision,
    context_match       double precision,
    reason              text,
    shown_at            timestamptz,
    verdict             text check (verdict in ('used', 'dismissed')),
    judged_at           timestamptz,
    primary key (session_id, memory_id, project)
);

create index conversation_memories_session on conversation_memories (project, session_id);
create index conversation_memories_query on conversation_memories (query_id, project) where query_id is not null;
create index conversation_memories_suggest on conversation_memories (suggest_id, project) where suggest_id is not null;
create index conversation_memories_shown on conversation_memories (project, shown_at) where suggest_id is not null;
create index conversation_memories_memory on conversation_memories (memory_id, project);
create index conversation_memories_judged on conversation_memories (project, judged_at, id) where verdict is not null;

comment on table conversation_memories is 'What a conversation has to do with a memory: each is suggested in it once at most, and its last verdict counts.';
comment on column conversation_memories.memory_revision is 'Which content of the memory was suggested. A verdict says nothing about another one. Null: a content that was erased.';
comment on column conversation_memories.id is 'Derived from the session and the memory.';
comment on column conversation_memories.suggest_id is 'The answer that suggested it. Null: it was only judged.';
comment on column conversation_memories.log_odds is 'Of the confidence, before the project''s own verdicts corrected it.';
comment on column conversation_memories.query_id is 'Null: it was only judged, or the query is erased.';
comment on column conversation_memories.reason is 'Null: not kept, suggested for a search, or the memory or a query is erased.';
comment on column conversation_memories.judged_at is 'Database clock at the write of the verdict: exports are ordered by it.';

create table unasked_help (
    project    text not null,
    id         uuid not null,
    session_id text not null,
    kind       text not null check (kind in ('memory', 'file', 'example')),
    subject    uuid not null,
    signs      bigint[],
    held_out   boolean not null,
    shown_at   timestamptz not null,
    used_at    timestamptz,
    primary key (id, project)
);

create index unasked_help_session on unasked_help (project, session_id);
create index unasked_help_open on unasked_help (project, session_id) where used_at is null;
create index unasked_help_shown on unasked_help (project, shown_at);
create index unasked_help_subject on unasked_help (subject, project) where signs is not null;

comment on table unasked_help is 'What an agent was told without a question, once for each session.';
comment on column unasked_help.id is 'Derived from the session and the subject.';
comment on column unasked_help.subject is 'The memory, association or log. It may be erased by now.';
comment on column unasked_help.signs is 'Keyed hashes of what the agent writes or opens where it uses this. None: its use cannot be told. Null: erased with the memory or the log.';
comment on column unasked_help.held_out is 'It was not shown, so that it can be told what happens without.';
