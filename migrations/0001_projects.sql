-- Projects keep tenants apart; keys say who may act for one. Both tables are small: on Citus they are reference tables.

create table projects (
    name       text primary key,
    settings   jsonb not null default '{}',
    hash_key   bytea not null default uuid_send(gen_random_uuid()) || uuid_send(gen_random_uuid()),
    created_at timestamptz not null default now()
);

comment on table projects is 'A tenant. Every key holds the project''s name: first where rows are read by project, last where one is found by its id, which tells rows apart at the first comparison.';
comment on column projects.settings is 'Settings that differ from the defaults; see projects::Settings in the code.';
comment on column projects.hash_key is 'Key of the hashes that stand in for texts that are not kept.';

insert into projects (name) values ('default');

create table keys (
    id         uuid primary key,
    project    text not null references projects (name),
    name       text not null,
    prefix     text not null,
    hash       bytea not null unique,
    scopes     text[] not null,
    created_at timestamptz not null,
    expires_at timestamptz,
    revoked_at timestamptz,
    requests_per_second integer,
    last_used_on date
);

create index keys_prefix on keys (prefix);
create index keys_list on keys (project, created_at desc, id desc);

comment on table keys is 'API keys. The secret itself is never stored. While this table is empty the service is open on loopback.';
comment on column keys.prefix is 'First twelve characters of the key: finds it, and lets a person recognize it.';
comment on column keys.hash is 'SHA-256 of the whole key.';
comment on column keys.last_used_on is 'The last day, in UTC, on which a request brought it. Written now and then, not with each request.';
comment on column keys.scopes is 'Out of write, read, admin, operator.';

create table audit (
    project    text not null,
    id         uuid not null,
    action     text not null,
    key_id     uuid,
    actor      text not null,
    details    jsonb not null default '{}',
    created_at timestamptz not null,
    primary key (id, project)
);

create index audit_created on audit (project, created_at desc, id desc);

comment on table audit is 'Who has changed keys and settings, and who has erased records; changed only while an erasure goes on, and without texts of records.';
comment on column audit.key_id is 'The key that it was done with; null where none was needed.';
comment on column audit.actor is 'The name of that key at the time, or how it was done without one.';
