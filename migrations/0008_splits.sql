-- Which texts stand together in a record, so that a split of a data set puts none of them into two parts (exports/groups.rs).

-- A text in which each letter is composed in the same way, where the encoding has several. Those of ASCII have one, and most
-- other texts are composed already, which is known in half the time. The time of `normalize` grows with the square of the number of
-- marks on a letter, and nothing can interrupt it. So a text with a hundred characters in a row that are not ASCII's, as Chinese
-- and Japanese have, which are composed, stays as it is.
create function composed(content text) returns text language sql immutable strict parallel safe
    return case
        when octet_length(content) = length(content) or getdatabaseencoding() <> 'UTF8'
            or content ~ '[^\u0001-\u007f]{100}' or content is nfc normalized
            then content
        else normalize(content, nfc)
    end;

-- A text as a split compares it: without case, white space and quotation marks, and with composed letters; its kind sets it
-- apart from equal texts of another kind. The letters of ASCII are the same in every locale, so that a server can compute the
-- hash of such a text (exports/text.rs).
-- All of these `replace` together take a third of the time of one `translate`.
create function split_hash(kind text, content text) returns bigint language sql immutable strict parallel safe
    return hashtextextended(kind || ':' || lower(lower(
        replace(replace(replace(replace(replace(replace(replace(replace(
        replace(replace(replace(replace(replace(replace(replace(replace(composed(content),
            ' ', ''), E'\t', ''), E'\n', ''), E'\r', ''), E'\f', ''), E'\x0b', ''), '"', ''), '''', ''), '`', ''),
            E'\u00a0', ''), E'\u2018', ''), E'\u2019', ''), E'\u201c', ''), E'\u201d', ''), E'\u00ab', ''), E'\u00bb', '')
        collate "C") collate "default"), 0);

-- What a model was asked: the messages or the input of the request, or the context if the request has none that can be read.
-- Whether they can be read is known to those who read them (exports/chat.rs).
create function prompt_of(llm_request json, is_readable boolean, context json) returns json
    language sql immutable parallel safe
    return case
        when not is_readable then context
        when coalesce(json_typeof(llm_request -> 'messages'), 'null') = 'null' then llm_request -> 'input'
        else llm_request -> 'messages'
    end;

-- The JSON of a prompt as a text that does not depend on the order of its members, nor on the white space and the escapes
-- between and in its strings.
create function prompt_text(prompt json) returns text language sql immutable strict parallel safe
    return replace(replace(replace(replace(prompt::jsonb::text, '\n', ' '), '\r', ' '), '\t', ' '), '\"', '"');

create table split_texts (
    project      text not null,
    domain       text not null,
    record       uuid not null,
    hash         bigint not null,
    completed_at timestamptz not null,
    split_group  bigint not null,
    primary key (record, domain, hash, project)
);

create index split_texts_hash on split_texts (hash, project, completed_at, record) include (split_group);
create index split_texts_groups on split_texts (project, hash, split_group, completed_at);

comment on table split_texts is 'The questions and answers of finalized records, as hashes. Filled by the first export with a split, and then by each further one.';
comment on column split_texts.domain is 'The record''s. Records of two domains may have the same id.';
comment on column split_texts.completed_at is 'The record''s.';
comment on column split_texts.split_group is 'The group of the record; all records of a group are in the same part of a split.';

create table text_progress (
    project      text not null,
    work         text not null,
    completed_at timestamptz,
    record       uuid,
    primary key (project, work)
);

comment on table text_progress is 'How far exports have worked through the records of a project, where they note something of each: the last one.';
comment on column text_progress.work is 'What is noted: groups for a split, by the name of the domain, or which records are like it.';
