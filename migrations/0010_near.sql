-- Which records are like earlier ones, so that a data set can do without them (exports/near.rs).

create table near_texts (
    project      text not null,
    work         text not null,
    record       uuid not null,
    completed_at timestamptz not null,
    bands        integer[] not null,
    signature    bytea not null,
    primary key (record, work, project)
);

-- Every comparison looks into it at once after an insert, so nothing is left pending.
create index near_texts_bands on near_texts using gin (bands) with (fastupdate = off);

comment on table near_texts is 'Signatures of question and answer of finalized records, by which later ones are compared with them. Filled by the first export with dedupe=near, and then by each further one.';
comment on column near_texts.work is 'Which comparison the text is part of. Records of two domains may have the same id.';
comment on column near_texts.bands is 'Hashes of project, work, and four numbers of the signature each: records that share one may be alike. Then five of twelve numbers each, which are all that is left where too many records share the others.';
comment on column near_texts.signature is 'Sixty MinHash numbers of four bytes.';

create table near_twins (
    project  text not null,
    work     text not null,
    record   uuid not null,
    twin     uuid not null,
    likeness real not null,
    primary key (record, work, twin, project)
);

create index near_twins_twin on near_twins (twin, work, project);

comment on table near_twins is 'Which earlier records a record is most like.';
comment on column near_twins.work is 'The comparison that found it.';
comment on column near_twins.likeness is 'The estimated share of words and pairs of words that the two have in common.';
