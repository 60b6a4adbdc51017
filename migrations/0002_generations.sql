-- Generation logs: an intent, the attempts to turn it into a program, and how it ended (seed 001).
--
-- No foreign key joins the children to their log: the writer holds the log's row locked while it adds to it, so the
-- check that a trigger would make on every row has already been made.

create extension if not exists pg_trgm;
create extension if not exists btree_gist;

create table generations (
    project         text not null,
    id              uuid not null,
    user_intent     text,
    domain_name     text not null,
    session_id      text,
    cbu_id          text,
    instance_id     text,
    model_used      text,
    metadata        jsonb not null default '{}',
    created_at      timestamptz not null,
    success         boolean,
    final_valid_dsl text,
    error           text,
    completed_at    timestamptz,
    rating          text check (rating in ('good', 'acceptable', 'poor')),
    reviewer        text,
    review_note     text,
    corrected_dsl   text,
    reviewed_at     timestamptz,
    search_keys     integer[],
    request_hash    bytea not null,
    outcome_hash    bytea,
    pair_hash       uuid generated always as (
        case when success then
            md5(length(user_intent)::text || ':' || user_intent || coalesce(corrected_dsl, final_valid_dsl))::uuid
        end
    ) stored,
    primary key (id, project)
);

create index generations_created on generations (project, created_at desc, id desc);
-- The newest of all projects, which statements on the view dsl_generation_log ask for.
create index generations_newest on generations (created_at);
-- By age, as retention asks: since when a log is over, or else there.
create index generations_age on generations (project, coalesce(completed_at, created_at));
create index generations_domain on generations (project, domain_name, created_at desc, id desc);
create index generations_session on generations (project, session_id, created_at) where session_id is not null;
create index generations_cbu on generations (project, cbu_id, created_at desc, id desc) where cbu_id is not null;
create index generations_instance on generations (project, instance_id, created_at desc, id desc) where instance_id is not null;
create index generations_completed on generations (project, completed_at, id) where success;
create index generations_pair on generations (project, pair_hash, completed_at, id) where success;
create index generations_search_keys on generations using gin (search_keys) with (gin_pending_list_limit = 16384) where success;
-- For the seed's own query for similar examples, which has a domain and sorts by similarity(). A GiST index knows how long a
-- text is and so finds little that is not similar; what a GIN index finds would nearly all have to be read for nothing.
-- The trigrams of a long text do not fit an index row.
create index generations_intent on generations using gist (domain_name, user_intent gist_trgm_ops (siglen = 256))
    where octet_length(user_intent) <= 2000;
create index generations_long on generations (created_at) where (octet_length(user_intent) <= 2000) is not true;
-- Without them the planner takes two thirds of all texts for long ones, and reads the whole domain instead.
create statistics generations_intent_length on (octet_length(user_intent)) from generations;
create index generations_metadata on generations using gin (metadata jsonb_path_ops) with (gin_pending_list_limit = 16384);

comment on table generations is 'One intent and how the effort to satisfy it ended. Its attempts are rows of attempts.';
comment on column generations.user_intent is 'What the user wanted, in natural language: the input side of a training pair. Null: not kept.';
comment on column generations.final_valid_dsl is 'The program that passed: the output side of a training pair. Null unless success, and where not kept.';
comment on column generations.domain_name is 'Area of the language, such as cbu, entity, document.';
comment on column generations.session_id is 'The agent session it belongs to; erasing the session erases it.';
comment on column generations.cbu_id is 'The business unit the program is about, if any; opaque here.';
comment on column generations.instance_id is 'Where the program was persisted, if it was; opaque here.';
comment on column generations.success is 'Null while the log is open.';
comment on column generations.error is 'Why the effort was given up, where the client said so.';
comment on column generations.completed_at is 'Database clock at the write that finalized the log: exports are ordered by it.';
comment on column generations.rating is 'A reviewer''s verdict: good, acceptable or poor.';
comment on column generations.corrected_dsl is 'What a reviewer says the program should have been; replaces it in training pairs.';
comment on column generations.search_keys is 'Hashes of its words and of the project, by which similar intents are found; see retrieval/keys.rs.';
comment on column generations.request_hash is 'Of the request that started the log: tells a replay from a conflict.';
comment on column generations.outcome_hash is 'Of the request that finalized the log, likewise.';
comment on column generations.pair_hash is 'Of intent and program as exported: finds equal training pairs.';

create table attempts (
    project                 text not null,
    generation_id           uuid not null,
    attempt                 integer not null check (attempt >= 1),
    id                      uuid not null,
    timestamp               timestamptz not null,
    prompt_template         text,
    prompt_template_version integer,
    prompt_text             text,
    raw_response            text,
    extracted_dsl           text,
    parse_result            jsonb,
    lint_result             jsonb,
    compile_result          jsonb,
    passed                  boolean,
    error_stage             text,
    error_message           text,
    latency_ms              integer,
    input_tokens            integer,
    output_tokens           integer,
    metadata                jsonb not null default '{}',
    request_hash            bytea not null,
    primary key (generation_id, attempt, project),
    unique (generation_id, id, project)
);

-- Few logs may have nearly all attempts of a server. If statistics said so, those of any log would be found by reading all of
-- them. The same is said of the parts of other records.
alter table attempts alter column generation_id set (n_distinct = -0.2);

create index attempts_template on attempts (project, prompt_template) where prompt_template is not null;

comment on table attempts is 'One call of the model for a generation and what parser, linter and compiler said of it.';
comment on column attempts.attempt is 'Number within the log, from 1; gaps and late arrivals are fine.';
comment on column attempts.prompt_text is 'The whole prompt as sent.';
comment on column attempts.raw_response is 'The whole response; in exports only with include=metadata.';
comment on column attempts.extracted_dsl is 'The program found in the response.';
comment on column attempts.parse_result is '{"success", "error"}; null: the stage did not run.';
comment on column attempts.lint_result is '{"valid", "errors", "warnings"}; null: the stage did not run.';
comment on column attempts.compile_result is '{"success", "error", "step_count"}; null: the stage did not run.';
comment on column attempts.passed is 'True: has a program and every stage that ran succeeded. False: has one and a stage failed. Null: neither.';
comment on column attempts.error_stage is 'Of a failed attempt: the first stage that failed (parse, lint or compile).';
comment on column attempts.error_message is 'Of a failed attempt: what that stage said; lint errors joined by newlines.';
comment on column attempts.request_hash is 'Of the request that made it: tells a replay from a conflict.';

-- A text as it is compared where white space does not count.
create function without_space(text) returns text language sql immutable strict parallel safe
    return replace(replace(replace(replace(replace(replace(replace($1,
        ' ', ''), E'\t', ''), E'\n', ''), E'\r', ''), E'\f', ''), E'\x0b', ''), E'\u00a0', '');

-- Whether a text has more than white space. Most texts begin with a printable character of ASCII; the others are searched
-- by an expression that takes ten times as long. Of a long text, only the beginning is unpacked for the first character.
-- The function is not strict, since Postgres would not inline it then.
create function has_text(text) returns boolean language sql immutable parallel safe
    return ascii(left($1, 1)) between 33 and 126 or $1 ~ '\S';

-- What a text is compared by where white space does not count; null for one of nothing but white space.
create function bare_hash(text) returns text language sql immutable strict parallel safe
    return case when has_text($1) then md5(without_space($1)) end;

create table correction_pairs (
    project       text not null,
    kind          text not null check (kind in ('fix', 'next', 'final', 'steps')),
    is_review     boolean not null,
    completed_at  timestamptz not null,
    generation_id uuid not null,
    bad_attempt   integer not null,
    fixed_attempt integer,
    fixed_is_final boolean,
    row_hash      uuid not null,
    primary key (project, kind, completed_at, generation_id, bad_attempt)
);

create index correction_pairs_log on correction_pairs (project, generation_id);
create index correction_pairs_row on correction_pairs (project, kind, row_hash, completed_at, generation_id, bad_attempt);

comment on table correction_pairs is 'Which attempts of a successful log teach a correction; written by the write that finalizes the log.';
comment on column correction_pairs.kind is 'The pairing rule (fix, next, final); steps: one row for the whole chain of attempts.';
comment on column correction_pairs.is_review is 'Whether it is a program and the reviewer''s correction of it. Such a pair stands under every rule, so that each rule is read in the order of one index.';
comment on column correction_pairs.completed_at is 'The log''s.';
comment on column correction_pairs.bad_attempt is 'Number of the failed attempt, or of the one whose program a reviewer corrected; 0 for steps, and where there is no such attempt.';
comment on column correction_pairs.fixed_attempt is 'Number of the attempt that fixed it; null where the log''s final program or a reviewer''s correction does.';
comment on column correction_pairs.fixed_is_final is 'For kind next: whether the next program is the log''s final one, but for white space. Null if the log has none.';
comment on column correction_pairs.row_hash is 'Of the intent and both programs, or of all programs of steps: finds equal rows.';

create table prompt_templates (
    project       text not null,
    template_id   text not null,
    version       integer not null,
    template_text text not null,
    domain_name   text not null,
    description   text,
    created_at    timestamptz not null,
    deprecated_at timestamptz,
    primary key (project, template_id, version)
);

comment on table prompt_templates is 'Registered prompt templates, every version kept.';
comment on column prompt_templates.template_id is 'The name that attempts give as prompt_template.';
comment on column prompt_templates.deprecated_at is 'Null: in use.';

-- LZ4 costs a third of PGLZ's time on bodies of some kilobytes; servers built without it keep their default.
do $$
begin
    alter table attempts alter column prompt_text set compression lz4;
    alter table attempts alter column raw_response set compression lz4;
    alter table attempts alter column extracted_dsl set compression lz4;
    alter table attempts alter column metadata set compression lz4;
    alter table generations alter column metadata set compression lz4;
    alter table generations alter column user_intent set compression lz4;
    alter table generations alter column final_valid_dsl set compression lz4;
exception
    when feature_not_supported or invalid_parameter_value then null;
end $$;

-- A text as a UUID; null where it is none, for a client may call its sessions as it likes.
create function text_as_uuid(text) returns uuid language sql immutable parallel safe
    return case when $1 ~ '^([0-9a-fA-F]{4}-?){7}[0-9a-fA-F]{4}$' then $1::uuid end;

-- Left joins, so that a statement reads no attempts of which it shows nothing.
create view dsl_generation_log as
select
    g.id as log_id,
    text_as_uuid(g.instance_id) as instance_id,
    g.user_intent,
    case when learned.success then coalesce(g.corrected_dsl, g.final_valid_dsl) end as final_valid_dsl,
    coalesce(attempted.iterations, '[]') as iterations,
    g.domain_name,
    text_as_uuid(g.session_id) as session_id,
    text_as_uuid(g.cbu_id) as cbu_id,
    g.model_used,
    total.attempts as total_attempts,
    learned.success,
    total.latency_ms as total_latency_ms,
    total.input_tokens as total_input_tokens,
    total.output_tokens as total_output_tokens,
    g.created_at,
    g.completed_at,
    g.rating,
    g.corrected_dsl,
    g.project
from generations g
cross join lateral (
    select g.success is true and (g.rating is distinct from 'poor' or g.corrected_dsl is not null) as success
) learned
left join lateral (
    select
        count(*)::int as attempts,
        case when sum(a.latency_ms) > 2147483647 then 2147483647 else sum(a.latency_ms) end::int as latency_ms,
        case when sum(a.input_tokens) > 2147483647 then 2147483647 else sum(a.input_tokens) end::int as input_tokens,
        case when sum(a.output_tokens) > 2147483647 then 2147483647 else sum(a.output_tokens) end::int as output_tokens
    from attempts a
    where a.project = g.project and a.generation_id = g.id
) total on true
left join lateral (
    select
        jsonb_agg(
            jsonb_build_object(
                'attempt', a.attempt,
                'timestamp', a.timestamp,
                'prompt_template', a.prompt_template,
                'prompt_template_version', a.prompt_template_version,
                'prompt_text', a.prompt_text,
                'raw_response', a.raw_response,
                'extracted_dsl', a.extracted_dsl,
                'parse_result', a.parse_result,
                'lint_result', a.lint_result,
                'compile_result', a.compile_result,
                'latency_ms', a.latency_ms,
                'input_tokens', a.input_tokens,
                'output_tokens', a.output_tokens
            )
            order by a.attempt
        ) as iterations
    from attempts a
    where a.project = g.project and a.generation_id = g.id
) attempted on true
-- This is so of every log. It lets a condition on intents use the index over the short ones and read the few long ones beside.
where octet_length(g.user_intent) <= 2000 or (octet_length(g.user_intent) <= 2000) is not true;

comment on view dsl_generation_log is 'The table of seed 001, with its columns and their types, and after them rating, corrected_dsl and project. It is read-only.';
comment on column dsl_generation_log.instance_id is 'Null where the log has another text than a UUID; so are session_id and cbu_id.';
comment on column dsl_generation_log.final_valid_dsl is 'The program to learn from: the reviewer''s, or else the one that passed. Null unless success.';
comment on column dsl_generation_log.success is 'Whether there is a program to learn from: the log succeeded, and no reviewer found its program poor without correcting it.';

create function refuse_to_write() returns trigger language plpgsql as $$
begin
    raise exception 'the view % is read-only', tg_table_name
        using errcode = 'feature_not_supported',
            hint = 'Logs are written over HTTP, beginning with POST /v1/generations; gleaner import takes files of them.';
end $$;

create trigger read_only instead of insert or update or delete on dsl_generation_log
    for each row execute function refuse_to_write();

-- The name that the seed's statements give it. A database may have a table of that name already, or not allow a schema to
-- be made; then there is only the view above.
do $$
begin
    create schema if not exists "ob-poc";
    if to_regclass('"ob-poc".dsl_generation_log') is null then
        create view "ob-poc".dsl_generation_log as select * from dsl_generation_log;
        comment on view "ob-poc".dsl_generation_log is 'The view dsl_generation_log under the schema that the statements of seed 001 name.';
    end if;
exception
    when insufficient_privilege then
        raise notice 'no schema "ob-poc" was made, as this role may not create one';
end $$;
