-- Exports kept as files (exports/snapshots).

create table snapshots (
    project      text not null,
    id           uuid not null,
    name         text not null,
    dataset      text not null,
    format       text not null,
    file         text not null check (file in ('jsonl', 'jsonl.gz', 'parquet')),
    parameters   jsonb not null,
    licence      text,
    row_schema   jsonb not null,
    request_hash bytea not null,
    state        text not null check (state in ('waiting', 'building', 'complete', 'failed')),
    as_of        timestamptz not null,
    row_count    bigint not null default 0,
    rows_expected bigint,
    rows_dropped bigint,
    byte_count   bigint not null default 0,
    sha256       bytea,
    error        text,
    erased       bigint not null default 0,
    has_texts    boolean not null default false,
    is_indexed   boolean not null default false,
    attempts     integer not null default 0,
    lease        uuid,
    lease_until  timestamptz,
    created_at   timestamptz not null,
    completed_at timestamptz,
    keep_until   timestamptz,
    primary key (id, project)
);

create index snapshots_created on snapshots (project, created_at desc, id desc);
create index snapshots_due on snapshots (created_at) where state in ('waiting', 'building');
create index snapshots_kept on snapshots (keep_until) where keep_until is not null;

comment on table snapshots is 'Exports that are kept as files. A complete one never changes.';
comment on column snapshots.parameters is 'The parameters of the export, as names and values of a query string.';
comment on column snapshots.row_schema is 'The JSON Schema of its rows.';
comment on column snapshots.request_hash is 'Hash of the request, which tells a replay from another request of the same id.';
comment on column snapshots.rows_expected is 'How many rows there are to be, counted when the building began.';
comment on column snapshots.rows_dropped is 'How many rows its part of a split lacks because their texts stand in another part too.';
comment on column snapshots.erased is 'How many records that have rows in it were erased since.';
comment on column snapshots.has_texts is 'Whether its rows have a question and an answer that other exports can be compared with.';
comment on column snapshots.is_indexed is 'Whether these texts stand in snapshot_texts.';
comment on column snapshots.attempts is 'How often the building was begun.';
comment on column snapshots.lease is 'Who builds it, until lease_until; then somebody else may.';

create table snapshot_chunks (
    project     text not null,
    snapshot_id uuid not null,
    number      integer not null,
    bytes       bytea not null,
    primary key (snapshot_id, number, project)
);

-- Files are compressed already.
alter table snapshot_chunks alter column bytes set storage external;

comment on table snapshot_chunks is 'The bytes of snapshots, in pieces of 512 KiB; the last one may be shorter.';

create table snapshot_contents (
    project     text not null,
    snapshot_id uuid not null,
    number      integer not null,
    records     uuid[] not null,
    texts       bigint[] not null,
    primary key (snapshot_id, number, project)
);

-- Ids and hashes cannot be compressed.
alter table snapshot_contents alter column records set storage external, alter column texts set storage external;

create index snapshot_contents_records on snapshot_contents using gin (records) with (gin_pending_list_limit = 65536);

comment on table snapshot_contents is 'Of which records a snapshot has rows, and the hashes of their questions and answers, for some thousand rows each.';

create table snapshot_texts (
    project     text not null,
    snapshot_id uuid not null,
    hash        bigint not null,
    primary key (hash, snapshot_id, project)
);

create index snapshot_texts_snapshot on snapshot_texts (snapshot_id, project);

comment on table snapshot_texts is 'The questions and answers of snapshots that an export has excluded, as hashes; see snapshot_contents.texts.';

create table snapshot_erased (
    project     text not null,
    snapshot_id uuid not null,
    record      uuid not null,
    primary key (snapshot_id, record, project)
);

comment on table snapshot_erased is 'Records that were erased while a snapshot was built.';
