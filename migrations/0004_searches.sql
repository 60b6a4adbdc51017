-- Searches: one that came back weak, what the agent then did, and what that teaches (seed 004).
--
-- No foreign keys: whoever writes holds the thread locked, and erasing goes the same way.

create extension if not exists pg_trgm;

create table agent_threads (
    project     text not null,
    id          uuid not null,
    session     text,
    agent       text,
    root        text,
    turn        text,
    waiting     uuid[] not null default '{}',
    last_at     timestamptz,
    prompted_at timestamptz,
    prompts     integer not null default 0,
    names       integer not null default 0,
    received_at timestamptz not null,
    has_open    boolean not null default false,
    primary key (id, project)
);

create index agent_threads_session on agent_threads (project, session) where session is not null;
-- A root may be longer than what a B-tree takes, which is a third of a page: its hash is indexed.
create index agent_threads_root on agent_threads (project, md5(root), last_at) where agent is null and session is not null;
create index agent_threads_open on agent_threads (project, received_at) where has_open;

comment on table agent_threads is 'What one agent does: an agent session, or a subagent in it. Its row is the lock under which its searches change.';
comment on column agent_threads.id is 'Derived from session and agent; of a search that names no session, the search''s own id.';
comment on column agent_threads.root is 'The folder in which it began: paths are kept relative to it.';
comment on column agent_threads.turn is 'The turn under way, where the agent names its turns.';
comment on column agent_threads.waiting is 'Calls of tools that have not been answered yet: who waits is not silent.';
comment on column agent_threads.last_at is 'When its latest event happened, by the agent''s clock: silence is measured from here.';
comment on column agent_threads.prompted_at is 'When a person last said something in it, by the agent''s clock: what they object to came after that.';
comment on column agent_threads.prompts is 'How many prompts of a person there were in it: the number of its turn.';
comment on column agent_threads.names is 'How many names its rows of named_files have.';
comment on column agent_threads.received_at is 'When an event of it last came in, by our clock.';
comment on column agent_threads.has_open is 'Whether a search of it is still tracked.';

create table searches (
    project           text not null,
    id                uuid not null,
    thread_id         uuid not null,
    query             text not null,
    best_score        double precision,
    result_count      integer not null,
    results           jsonb not null default '[]',
    agent_session_id  text,
    agent_id          text,
    turn_id           text,
    root              text,
    timestamp         timestamptz not null,
    state             text not null check (state in ('tracking', 'strong', 'resolved', 'unresolved', 'timed_out')),
    ended_at          timestamptz,
    completed_at      timestamptz,
    request_hash      bytea not null,
    corrects          uuid,
    primary key (id, project)
);

create index searches_age on searches (project, coalesce(completed_at, timestamp)) where state <> 'tracking';
create index searches_time on searches (project, timestamp desc, id desc);
create index searches_session on searches (project, agent_session_id, timestamp) where agent_session_id is not null;
create index searches_open on searches (project, thread_id) where state = 'tracking';
create index searches_answered on searches (project, thread_id, timestamp) where state = 'resolved';
create index searches_completed on searches (project, completed_at, id) where state = 'resolved';
create index searches_corrects on searches (corrects, project) where corrects is not null;

comment on table searches is 'A search by an agent. One whose best score is under the threshold is tracked until its turn ends or silence does.';
comment on column searches.best_score is 'Of its results; 0 where there were none, null where there were some and no score is known.';
comment on column searches.results is 'What it offered: [{"path", "score"}], paths relative to root.';
comment on column searches.timestamp is 'When it was made, by the agent''s clock.';
comment on column searches.state is 'strong: not tracked. resolved: enough reads followed. unresolved: the turn ended first. timed_out: silence came first.';
comment on column searches.ended_at is 'When its session ended, by the agent''s clock.';
comment on column searches.completed_at is 'Database clock at the write that ended it: exports are ordered by it.';
comment on column searches.request_hash is 'Of the request that started it: tells a replay from a conflict.';
comment on column searches.corrects is 'The search that it repeats, because a person has objected to what that one led to; its results are just that.';

create table fallbacks (
    project      text not null,
    search_id    uuid not null,
    id           uuid not null,
    kind         text not null check (kind in ('read', 'grep', 'glob', 'edit', 'index')),
    target       text not null,
    ok           boolean not null,
    timestamp    timestamptz not null,
    share        double precision not null,
    counts       boolean not null,
    request_hash bytea,
    primary key (search_id, id, project)
);

alter table fallbacks alter column search_id set (n_distinct = -0.2);

comment on table fallbacks is 'What an agent did after a weak search. One that follows several open searches is a row of each.';
comment on column fallbacks.target is 'A path relative to the search''s root, or a pattern.';
comment on column fallbacks.share is 'Which part of it is this search''s, 0 to 1: the more it resembles the query, the more.';
comment on column fallbacks.counts is 'False where it came after a silence that had ended the session.';
comment on column fallbacks.request_hash is 'Of the request, where it was posted for this very search.';

create table association_queries (
    project text not null,
    id      uuid not null,
    root    text not null,
    repository text not null,
    query   text not null,
    search_keys integer[] not null,
    primary key (id, project)
);

create index association_queries_repository on association_queries (project, repository, id);
-- Nobody tidies the list of new rows after transcripts and hooks, and few rows come: they go into the index at once.
create index association_queries_search_keys on association_queries using gin (search_keys) with (fastupdate = off);

comment on table association_queries is 'A query that led somewhere. Its id is derived from root and query.';
comment on column association_queries.root is 'Empty where no root is known.';
comment on column association_queries.repository is 'The name of the repository that the root is a clone of; see rules/repository.rs.';
comment on column association_queries.search_keys is 'Hashes of its words and of the project, by which similar queries are found; see retrieval/keys.rs.';

create table associations (
    project      text not null,
    query_id     uuid not null,
    id           uuid not null,
    path         text not null,
    weight       double precision not null,
    weighed_at   timestamptz not null,
    evidence     integer not null,
    last_seen_at timestamptz not null,
    gone_at      timestamptz,
    settled_weight   double precision not null default 0,
    settled_at       timestamptz,
    settled_evidence integer not null default 0,
    primary key (query_id, id, project)
) with (fillfactor = 80);

create unique index associations_id on associations (id, project);
-- A path may be longer than what a B-tree takes.
create index associations_path on associations (project, md5(path));

comment on table associations is 'Where the answer to a query was found.';
comment on column associations.id is 'Derived from query and path.';
comment on column associations.weight is 'Sum of the evidence, each decayed to weighed_at. No index has it, so that adding evidence touches none.';
comment on column associations.evidence is 'How many searches found it.';
comment on column associations.last_seen_at is 'When it was last found, by the agents'' clocks.';
comment on column associations.gone_at is 'When the file was said to have left; finding it again brings it back.';
comment on column associations.settled_weight is 'What evidence has added whose searches are gone, as of settled_at; part of weight.';
comment on column associations.settled_evidence is 'How many of these searches had found the file; part of evidence.';

create table association_evidence (
    project        text not null,
    association_id uuid not null,
    source         uuid not null,
    kind           text not null check (kind in ('found', 'hint_read', 'hint_unread', 'useful', 'wrong', 'corrected')),
    weight         double precision not null,
    at             timestamptz not null,
    rank           integer not null,
    primary key (association_id, source, kind, project)
);

create index association_evidence_source on association_evidence (source, project);
-- Few associations are reported as wrong, and an export asks which.
create index association_evidence_wrong on association_evidence (association_id, project) where kind = 'wrong';

comment on table association_evidence is 'Why an association has its weight; erasing a session takes its part away again.';
comment on column association_evidence.source is 'The search, or the feedback.';
comment on column association_evidence.rank is 'The rank among what the search found, by weight, from 1; 0 for other kinds.';

create table search_hints (
    project        text not null,
    search_id      uuid not null,
    rank           integer not null,
    path           text not null,
    association_id uuid,
    file_id        uuid,
    score          double precision not null,
    read           boolean,
    primary key (project, search_id, rank)
);

alter table search_hints alter column search_id set (n_distinct = -0.2);

create index search_hints_association on search_hints (association_id, project) where association_id is not null;
create index search_hints_file on search_hints (file_id, project) where association_id is null;

comment on table search_hints is 'Files that a tracked search was answered with.';
comment on column search_hints.association_id is 'The association that spoke for the file, if one did.';
comment on column search_hints.file_id is 'Derived from repository and path, as in touched_files; null where no folder is known.';
comment on column search_hints.rank is 'The rank among the hints of the search, by score, from 1.';
comment on column search_hints.read is 'Whether the agent then read the file; null while the search is open.';

create table association_feeds (
    project     text primary key,
    last_change bigint not null
);

comment on table association_feeds is 'The number of the latest change. Its row is locked from there to the commit, so numbers appear in their order.';

create table association_changes (
    project        text not null,
    association_id uuid not null,
    change         bigint not null,
    primary key (project, association_id)
);

create unique index association_changes_order on association_changes (project, change);

comment on table association_changes is 'The latest change of each association, erased ones too: a follower who reads on from the last number he has misses none.';

create table transcripts (
    project     text not null,
    source      uuid not null,
    session     text,
    agent       text,
    turn        text,
    root        text,
    last_at     timestamptz,
    bad_lines   bigint not null default 0,
    error_times timestamptz[] not null default '{}',
    error_texts text[] not null default '{}',
    error_lines uuid[] not null default '{}',
    received_at timestamptz not null,
    primary key (project, source)
);

create index transcripts_session on transcripts (project, session) where session is not null;

comment on table transcripts is 'A source of transcript lines, and what its latest line said of itself: the next one may leave it out.';
comment on column transcripts.source is 'Derived from the name that its sender gives it, which may be longer than what an index takes.';
comment on column transcripts.bad_lines is 'How many malformed lines were passed over.';
comment on column transcripts.error_times is 'When the last of them were passed over, twenty at most.';
comment on column transcripts.error_texts is 'What was wrong with each of these, without anything of what it said.';
comment on column transcripts.error_lines is 'The keyed hash of each of these: one that is sent again is not counted again. Older ones leave nothing.';

create table transcript_lines (
    project text not null,
    source  uuid not null,
    line    uuid not null,
    session text,
    primary key (project, source, line)
);

create index transcript_lines_session on transcript_lines (project, session) where session is not null;

comment on table transcript_lines is 'Lines that were taken, by a keyed hash of their bytes: each counts once within its source.';

create table tool_calls (
    project text not null,
    source  uuid not null,
    call    uuid not null,
    session text,
    used    boolean not null,
    answered boolean not null,
    pending jsonb,
    primary key (project, source, call)
);

create index tool_calls_session on tool_calls (project, session) where session is not null;

comment on table tool_calls is 'Uses of tools and their results, paired by the id that the agent gives them.';
comment on column tool_calls.call is 'Derived from the id that the agent gives the call.';
comment on column tool_calls.pending is 'What the half that is here says, until the other comes.';

create table touched_files (
    project     text not null,
    thread_id   uuid not null,
    file_id     uuid not null,
    repository  text not null,
    root        text not null,
    path        text not null,
    name        integer not null,
    words       integer[] not null,
    turns       integer[] not null,
    identifiers bytea not null,
    touched_at  timestamptz not null,
    gone        boolean not null default false,
    primary key (thread_id, file_id, project)
) with (fillfactor = 80, toast_tuple_target = 256);

-- Rows stay small: identifiers, which few questions need, are kept apart.
alter table touched_files
    alter column repository set storage main, alter column root set storage main, alter column path set storage main,
    alter column words set storage main, alter column turns set storage main, alter column identifiers set storage external;

create index touched_files_file on touched_files (file_id, project);
create index touched_files_name on touched_files (name, project);
create index touched_files_repository on touched_files (project, repository);
create index touched_files_words on touched_files using gin (words) with (fastupdate = off);

comment on table touched_files is 'The files that an agent has read or changed: what hints for other searches in the repository are made of.';
comment on column touched_files.file_id is 'Derived from repository and path: the same file in every clone.';
comment on column touched_files.name is 'The key of the last part of the path, in its repository.';
comment on column touched_files.words is 'The keys of the project, and of the words of the path, in its repository.';
comment on column touched_files.turns is 'The numbers of the turns in which the agent touched it, the last 64.';
comment on column touched_files.identifiers is 'The keys of the identifiers in what the agent read there or wrote, ascending, four bytes each.';
comment on column touched_files.touched_at is 'When the agent last touched it, by the agent''s clock.';
comment on column touched_files.gone is 'Whether the file was said to have left since.';

create table named_files (
    project   text not null,
    thread_id uuid not null,
    id        uuid not null,
    names     integer[] not null,
    primary key (thread_id, id, project)
);

comment on table named_files is 'The keys of the names of files that a person or a tool has told an agent of.';
comment on column named_files.id is 'Ordered by time.';

-- What is left of a weight after so many seconds. A float that becomes too small is an error in Postgres, so both the
-- decay and the weight end before that: ranks among what is older than a hundred half-lives no longer change.
create function decayed(weight double precision, seconds double precision, half_life double precision)
    returns double precision language sql immutable parallel safe as $$
    select case when abs(weight) < 1e-100 then 0
        else weight * power(2, -least(greatest(seconds, 0) / half_life, 100)) end
$$;
