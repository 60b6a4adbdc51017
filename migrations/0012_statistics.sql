-- The planner keeps no statistics of which project a row belongs to, and takes each project to have a two-hundredth of a
-- table. With statistics, it takes a project that is newer than they are to have a single row. Any index that begins with
-- the project then looks as good as the right one, and each row of a join could read all rows of the project.

do $$
declare
    with_projects regclass;
begin
    for with_projects in
        select attrelid::regclass
        from pg_attribute join pg_class on pg_class.oid = attrelid
        where attname = 'project' and relkind in ('r', 'p') and relnamespace = current_schema()::regnamespace
    loop
        execute format('alter table %s alter column project set statistics 0', with_projects);
    end loop;
end $$;

-- A conversation is taken to have a few pairs, even if the planner knows only projects with long ones. With those, it would
-- look for the last pair of a conversation among all pairs of the project.
alter table pairs alter column conversation set (n_distinct = -0.3);
