-- PostgreSQL's catalogue over SQLite's schema. Integers are cast, so that they compare equal to
-- texts, as psql writes them: `oid = '16385'`.

CREATE TEMP VIEW pg_namespace AS
  SELECT CAST(2200 AS INTEGER) AS oid, 'public' AS nspname, CAST(10 AS INTEGER) AS nspowner, NULL AS nspacl
  UNION ALL SELECT CAST(11 AS INTEGER), 'pg_catalog', CAST(10 AS INTEGER), NULL;

-- The indexes of keys and unique constraints have PostgreSQL's names here, and names of their own in SQLite.
CREATE TEMP VIEW paceline_key AS
  SELECT x.name AS name, paceline_key_name(m.name, m.sql, (SELECT json_group_array(name) FROM pragma_index_info(x.name))) AS shown
  FROM main.sqlite_master x JOIN main.sqlite_master m ON m.type = 'table' AND m.name = x.tbl_name
  WHERE x.type = 'index' AND x.sql IS NULL;

CREATE TEMP VIEW pg_class AS
  SELECT CAST(16384 + m.rowid AS INTEGER) AS oid,
    coalesce((SELECT shown FROM paceline_key k WHERE k.name = m.name), m.name) AS relname,
    CAST(2200 AS INTEGER) AS relnamespace, 0 AS reltype, CAST(0 AS INTEGER) AS reloftype,
    CAST(10 AS INTEGER) AS relowner, CAST(CASE m.type WHEN 'index' THEN 403 ELSE 2 END AS INTEGER) AS relam,
    0 AS relfilenode, CAST(0 AS INTEGER) AS reltablespace, 0 AS relpages, -1.0 AS reltuples,
    0 AS relallvisible, CAST(0 AS INTEGER) AS reltoastrelid,
    m.type = 'table' AS relhasindex, 0 AS relisshared, 'p' AS relpersistence,
    CASE m.type WHEN 'table' THEN 'r' WHEN 'view' THEN 'v' ELSE 'i' END AS relkind,
    (SELECT count(*) FROM pragma_table_info(m.name)) AS relnatts,
    CASE m.type WHEN 'table' THEN json_array_length(paceline_checks(m.name, m.sql)) ELSE 0 END AS relchecks,
    0 AS relhasrules,
    m.type = 'table' AND (EXISTS (SELECT 1 FROM pragma_foreign_key_list(m.name))
      OR EXISTS (SELECT 1 FROM main.sqlite_master t WHERE t.type = 'trigger' AND t.tbl_name = m.name)) AS relhastriggers,
    0 AS relhassubclass, 0 AS relrowsecurity, 0 AS relforcerowsecurity, 1 AS relispopulated,
    'd' AS relreplident, 0 AS relispartition, NULL AS relacl, NULL AS reloptions, NULL AS relpartbound,
    m.tbl_name AS paceline_table, m.name AS paceline_name, m.sql AS paceline_sql
  FROM main.sqlite_master m
  WHERE m.type IN ('table', 'view', 'index') AND m.name NOT IN ('sqlite_sequence', 'sqlite_stat1', 'sqlite_stat4')
  UNION ALL
  -- The key that is the row's number has no index of its own.
  SELECT CAST(8388608 + m.rowid AS INTEGER),
    paceline_key_name(m.name, m.sql, (SELECT json_group_array(name) FROM pragma_table_info(m.name) WHERE pk > 0)),
    CAST(2200 AS INTEGER), 0, CAST(0 AS INTEGER),
    CAST(10 AS INTEGER), CAST(403 AS INTEGER), 0, CAST(0 AS INTEGER), 0, -1.0, 0, CAST(0 AS INTEGER), 0, 0, 'p', 'i',
    1, 0, 0, 0, 0, 0, 0, 1, 'n', 0, NULL, NULL, NULL, m.name, NULL, NULL
  FROM main.sqlite_master m
  WHERE m.type = 'table'
    AND (SELECT count(*) FROM pragma_table_info(m.name) WHERE pk > 0) = 1
    AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) WHERE origin = 'pk');

CREATE TEMP VIEW paceline_index AS
  SELECT CAST(16384 + x.rowid AS INTEGER) AS oid, CAST(16384 + m.rowid AS INTEGER) AS table_oid,
    coalesce((SELECT shown FROM paceline_key k WHERE k.name = x.name), x.name) AS name, m.name AS table_name, l."unique" AS is_unique,
    l.origin = 'pk' OR x.name = m.name || '_pkey' AS is_key, l.origin AS origin,
    (SELECT group_concat(quote_column(name), ', ') FROM pragma_index_info(x.name)) AS columns,
    (SELECT group_concat(cid + 1, ' ') FROM pragma_index_info(x.name)) AS numbers
  FROM main.sqlite_master m JOIN pragma_index_list(m.name) l JOIN main.sqlite_master x ON x.name = l.name AND x.type = 'index'
  WHERE m.type = 'table'
  UNION ALL
  SELECT CAST(8388608 + m.rowid AS INTEGER), CAST(16384 + m.rowid AS INTEGER),
    paceline_key_name(m.name, m.sql, (SELECT json_group_array(name) FROM pragma_table_info(m.name) WHERE pk > 0)), m.name, 1, 1, 'pk',
    (SELECT quote_column(name) FROM pragma_table_info(m.name) WHERE pk > 0),
    (SELECT cid + 1 FROM pragma_table_info(m.name) WHERE pk > 0)
  FROM main.sqlite_master m
  WHERE m.type = 'table'
    AND (SELECT count(*) FROM pragma_table_info(m.name) WHERE pk > 0) = 1
    AND NOT EXISTS (SELECT 1 FROM pragma_index_list(m.name) WHERE origin = 'pk');

CREATE TEMP VIEW pg_index AS
  SELECT oid AS indexrelid, table_oid AS indrelid, 1 AS indnatts, 1 AS indnkeyatts, is_unique AS indisunique,
    is_key AS indisprimary, 0 AS indisexclusion, 1 AS indimmediate, 0 AS indisclustered, 1 AS indisvalid,
    0 AS indcheckxmin, 1 AS indisready, 1 AS indislive, 0 AS indisreplident, numbers AS indkey,
    NULL AS indcollation, NULL AS indclass, NULL AS indoption, NULL AS indexprs, NULL AS indpred,
    0 AS indnullsnotdistinct
  FROM paceline_index;

CREATE TEMP VIEW paceline_definition AS
  SELECT oid, 'CREATE ' || iif(is_unique, 'UNIQUE ', '') || 'INDEX ' || quote_column(name) || ' ON public.'
    || quote_column(table_name) || ' USING btree (' || columns || ')' AS definition
  FROM paceline_index
  UNION ALL
  SELECT CAST(16384 + rowid AS INTEGER), sql FROM main.sqlite_master WHERE type = 'view'
  UNION ALL
  SELECT CAST(32768 + rowid AS INTEGER), sql FROM main.sqlite_master WHERE type = 'trigger';

CREATE TEMP VIEW pg_attribute AS
  SELECT c.oid AS attrelid, i.name AS attname,
    CAST(CASE WHEN i.pk > 0 THEN coalesce(paceline_counter(c.paceline_sql), pg_type_oid(i.type)) ELSE pg_type_oid(i.type) END AS INTEGER)
      AS atttypid, -1 AS attstattarget, -1 AS attlen, CAST(i.cid + 1 AS INTEGER) AS attnum, 0 AS attndims, -1 AS attcacheoff,
    CAST(pg_type_modifier(i.type) AS INTEGER) AS atttypmod, 0 AS attbyval, 'i' AS attalign, 'p' AS attstorage,
    '' AS attcompression, (i."notnull" OR i.pk > 0) AS attnotnull,
    i.dflt_value IS NOT NULL OR i.pk > 0 AND paceline_counter(c.paceline_sql) IS NOT NULL AS atthasdef,
    0 AS atthasmissing, '' AS attidentity, CASE WHEN i.hidden IN (2, 3) THEN 's' ELSE '' END AS attgenerated,
    0 AS attisdropped, 1 AS attislocal, 0 AS attinhcount, CAST(0 AS INTEGER) AS attcollation, NULL AS attacl,
    NULL AS attoptions, NULL AS attfdwoptions
  FROM pg_class c JOIN pragma_table_xinfo(c.relname) i WHERE c.relkind IN ('r', 'v')
  UNION ALL
  SELECT c.oid, i.name, CAST(25 AS INTEGER), -1, -1, CAST(i.seqno + 1 AS INTEGER), 0, -1, CAST(-1 AS INTEGER), 0, 'i', 'p', '', 0, 0, 0,
    '', '', 0, 1, 0, CAST(0 AS INTEGER), NULL, NULL, NULL
  FROM pg_class c JOIN pragma_index_info(c.paceline_name) i WHERE c.relkind = 'i';

CREATE TEMP VIEW pg_attrdef AS
  SELECT CAST(c.oid * 1000 + i.cid AS INTEGER) AS oid, c.oid AS adrelid, CAST(i.cid + 1 AS INTEGER) AS adnum, i.dflt_value AS adbin
  FROM pg_class c JOIN pragma_table_xinfo(c.relname) i WHERE c.relkind = 'r' AND i.dflt_value IS NOT NULL
  UNION ALL
  SELECT CAST(c.oid * 1000 + i.cid AS INTEGER), c.oid, CAST(i.cid + 1 AS INTEGER),
    'nextval(''' || c.relname || '_' || i.name || '_seq''::regclass)'
  FROM pg_class c JOIN pragma_table_xinfo(c.relname) i
  WHERE c.relkind = 'r' AND i.dflt_value IS NULL AND i.pk > 0 AND paceline_counter(c.paceline_sql) IS NOT NULL;

CREATE TEMP VIEW paceline_foreign AS
  SELECT CAST(16777216 + (c.oid - 16384) * 64 + f.id AS INTEGER) AS oid, c.oid AS table_oid,
    CAST((SELECT 16384 + m.rowid FROM main.sqlite_master m WHERE m.type = 'table' AND m.name = f."table" COLLATE NOCASE) AS INTEGER) AS other_oid,
    paceline_foreign_name(c.relname, c.paceline_sql, json_group_array(f."from")) AS name,
    'FOREIGN KEY (' || group_concat(quote_column(f."from"), ', ') || ') REFERENCES ' || quote_column(f."table")
      || coalesce('(' || group_concat(quote_column(f."to"), ', ') || ')', '')
      || CASE f.on_update WHEN 'NO ACTION' THEN '' ELSE ' ON UPDATE ' || f.on_update END
      || CASE f.on_delete WHEN 'NO ACTION' THEN '' ELSE ' ON DELETE ' || f.on_delete END AS definition
  FROM pg_class c JOIN pragma_foreign_key_list(c.relname) f WHERE c.relkind = 'r'
  GROUP BY c.oid, f.id;

CREATE TEMP VIEW pg_constraint AS
  SELECT oid + 4194304 AS oid, name AS conname, CAST(2200 AS INTEGER) AS connamespace,
    CASE WHEN is_key THEN 'p' ELSE 'u' END AS contype, 0 AS condeferrable, 0 AS condeferred, 1 AS convalidated,
    table_oid AS conrelid, CAST(0 AS INTEGER) AS contypid, oid AS conindid, CAST(0 AS INTEGER) AS conparentid,
    CAST(0 AS INTEGER) AS confrelid, ' ' AS confupdtype, ' ' AS confdeltype, ' ' AS confmatchtype,
    1 AS conislocal, 0 AS coninhcount, 1 AS connoinherit, numbers AS conkey, NULL AS confkey, NULL AS conbin,
    CASE WHEN is_key THEN 'PRIMARY KEY (' ELSE 'UNIQUE (' END || columns || ')' AS paceline_definition
  FROM paceline_index WHERE is_unique AND (is_key OR origin IN ('pk', 'u'))
  UNION ALL
  SELECT oid, name, CAST(2200 AS INTEGER), 'f', 0, 0, 1, table_oid, CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER), other_oid,
    'a', 'a', 's', 1, 0, 1, NULL, NULL, NULL, definition
  FROM paceline_foreign
  UNION ALL
  SELECT CAST(33554432 + (c.oid - 16384) * 64 + k.key AS INTEGER), k.value ->> 0, CAST(2200 AS INTEGER), 'c', 0, 0, 1, c.oid, CAST(0 AS INTEGER),
    CAST(0 AS INTEGER), CAST(0 AS INTEGER), CAST(0 AS INTEGER), ' ', ' ', ' ', 1, 0, 0, NULL, NULL, NULL, 'CHECK (' || (k.value ->> 1) || ')'
  FROM pg_class c JOIN json_each(paceline_checks(c.relname, c.paceline_sql)) k WHERE c.relkind = 'r';

CREATE TEMP VIEW pg_trigger AS
  SELECT CAST(32768 + t.rowid AS INTEGER) AS oid, c.oid AS tgrelid, CAST(0 AS INTEGER) AS tgparentid, t.name AS tgname,
    0 AS tgfoid, 0 AS tgtype, 'O' AS tgenabled, 0 AS tgisinternal, 0 AS tgconstrrelid, 0 AS tgconstrindid,
    CAST(0 AS INTEGER) AS tgconstraint, 0 AS tgdeferrable, 0 AS tginitdeferred, 0 AS tgnargs
  FROM main.sqlite_master t JOIN pg_class c ON c.relname = t.tbl_name AND c.relkind = 'r' WHERE t.type = 'trigger';

CREATE TEMP VIEW pg_type AS
  SELECT CAST(value ->> 0 AS INTEGER) AS oid, value ->> 1 AS typname, CAST(11 AS INTEGER) AS typnamespace, CAST(10 AS INTEGER) AS typowner,
    value ->> 2 AS typlen, 0 AS typbyval, 'b' AS typtype, value ->> 3 AS typcategory, 0 AS typispreferred,
    1 AS typisdefined, ',' AS typdelim, CAST(0 AS INTEGER) AS typrelid, CAST(0 AS INTEGER) AS typelem,
    CAST(value ->> 4 AS INTEGER) AS typarray, value ->> 1 || 'in' AS typinput, value ->> 1 || 'out' AS typoutput,
    value ->> 1 || 'recv' AS typreceive, value ->> 1 || 'send' AS typsend, 0 AS typnotnull, CAST(0 AS INTEGER) AS typbasetype,
    -1 AS typtypmod, 0 AS typndims, CAST(0 AS INTEGER) AS typcollation, NULL AS typdefault, NULL AS typacl
  FROM json_each('[[16,"bool",1,"B",1000],[17,"bytea",-1,"U",1001],[18,"char",1,"S",1002],[19,"name",64,"S",1003],
    [20,"int8",8,"N",1016],[21,"int2",2,"N",1005],[23,"int4",4,"N",1007],[25,"text",-1,"S",1009],[26,"oid",4,"N",1028],
    [114,"json",-1,"U",199],[700,"float4",4,"N",1021],[701,"float8",8,"N",1022],[705,"unknown",-2,"X",0],
    [1042,"bpchar",-1,"S",1014],[1043,"varchar",-1,"S",1015],[1082,"date",4,"D",1182],[1083,"time",8,"D",1183],
    [1114,"timestamp",8,"D",1115],[1184,"timestamptz",8,"D",1185],[1700,"numeric",-1,"N",1231],
    [2950,"uuid",16,"U",2951],[3802,"jsonb",-1,"U",3807]]')
  UNION ALL
  SELECT CAST(value ->> 0 AS INTEGER), value ->> 1, CAST(11 AS INTEGER), CAST(10 AS INTEGER), -1, 0, 'b', 'A', 0, 1, ',', CAST(0 AS INTEGER),
    CAST(value ->> 2 AS INTEGER), CAST(0 AS INTEGER), 'array_in', 'array_out', 'array_recv', 'array_send', 0, CAST(0 AS INTEGER), -1, 0,
    CAST(0 AS INTEGER), NULL, NULL
  FROM json_each('[[1000,"_bool",16],[1001,"_bytea",17],[1003,"_name",19],[1005,"_int2",21],[1007,"_int4",23],[1009,"_text",25],
    [1014,"_bpchar",1042],[1015,"_varchar",1043],[1016,"_int8",20],[1021,"_float4",700],[1022,"_float8",701],[1115,"_timestamp",1114],
    [1182,"_date",1082],[1183,"_time",1083],[1185,"_timestamptz",1184],[1231,"_numeric",1700],[2951,"_uuid",2950],[199,"_json",114],
    [3807,"_jsonb",3802]]');

CREATE TEMP VIEW pg_roles AS
  SELECT CAST(10 + key AS INTEGER) AS oid, value AS rolname, 1 AS rolsuper, 1 AS rolinherit, 1 AS rolcreaterole, 1 AS rolcreatedb,
    1 AS rolcanlogin, 0 AS rolreplication, -1 AS rolconnlimit, NULL AS rolvaliduntil, 0 AS rolbypassrls, NULL AS rolconfig
  FROM json_each(paceline_roles());
CREATE TEMP VIEW pg_authid AS SELECT * FROM pg_roles;
CREATE TEMP VIEW pg_user AS
  SELECT rolname AS usename, oid AS usesysid, rolcreatedb AS usecreatedb, rolsuper AS usesuper FROM pg_roles;
CREATE TEMP VIEW pg_am AS
  SELECT CAST(2 AS INTEGER) AS oid, 'heap' AS amname, 't' AS amtype UNION ALL SELECT CAST(403 AS INTEGER), 'btree', 'i';
CREATE TEMP VIEW pg_tables AS
  SELECT 'public' AS schemaname, relname AS tablename, 'paceline' AS tableowner, NULL AS tablespace, relhasindex AS hasindexes,
    0 AS hasrules, relhastriggers AS hastriggers, 0 AS rowsecurity FROM pg_class WHERE relkind = 'r';
CREATE TEMP VIEW pg_views AS
  SELECT 'public' AS schemaname, name AS viewname, 'paceline' AS viewowner, sql AS definition
  FROM main.sqlite_master WHERE type = 'view';
CREATE TEMP VIEW pg_indexes AS
  SELECT 'public' AS schemaname, table_name AS tablename, i.name AS indexname, NULL AS tablespace, d.definition AS indexdef
  FROM paceline_index i JOIN paceline_definition d ON d.oid = i.oid;
CREATE TEMP VIEW information_schema_tables AS
  SELECT pg_current_database() AS table_catalog, 'public' AS table_schema, relname AS table_name,
    CASE relkind WHEN 'r' THEN 'BASE TABLE' ELSE 'VIEW' END AS table_type FROM pg_class WHERE relkind IN ('r', 'v');
CREATE TEMP VIEW information_schema_columns AS
  SELECT pg_current_database() AS table_catalog, 'public' AS table_schema, c.relname AS table_name, a.attname AS column_name,
    a.attnum AS ordinal_position, d.adbin AS column_default, CASE WHEN a.attnotnull THEN 'NO' ELSE 'YES' END AS is_nullable,
    format_type(a.atttypid, -1) AS data_type, (SELECT t.typname FROM pg_type t WHERE t.oid = a.atttypid) AS udt_name,
    CASE WHEN a.atttypid IN (1042, 1043) AND a.atttypmod >= 4 THEN a.atttypmod - 4 END AS character_maximum_length,
    CASE WHEN a.atttypid = 1700 AND a.atttypmod >= 4 THEN (a.atttypmod - 4) >> 16 END AS numeric_precision,
    CASE WHEN a.atttypid = 1700 AND a.atttypmod >= 4 THEN (a.atttypmod - 4) & 65535 END AS numeric_scale,
    NULL AS datetime_precision, 'NO' AS is_identity, 'NEVER' AS is_generated, 'YES' AS is_updatable
  FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid AND c.relkind IN ('r', 'v')
  LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum;
CREATE TEMP VIEW information_schema_schemata AS
  SELECT pg_current_database() AS catalog_name, 'public' AS schema_name, 'paceline' AS schema_owner;
CREATE TEMP VIEW information_schema_table_constraints AS
  SELECT pg_current_database() AS constraint_catalog, 'public' AS constraint_schema, o.conname AS constraint_name,
    pg_current_database() AS table_catalog, 'public' AS table_schema, c.relname AS table_name,
    CASE o.contype WHEN 'p' THEN 'PRIMARY KEY' WHEN 'u' THEN 'UNIQUE' WHEN 'f' THEN 'FOREIGN KEY' ELSE 'CHECK' END AS constraint_type,
    'NO' AS is_deferrable, 'NO' AS initially_deferred
  FROM pg_constraint o JOIN pg_class c ON c.oid = o.conrelid;
CREATE TEMP VIEW information_schema_key_column_usage AS
  SELECT pg_current_database() AS constraint_catalog, 'public' AS constraint_schema, i.name AS constraint_name,
    pg_current_database() AS table_catalog, 'public' AS table_schema, i.table_name AS table_name,
    (SELECT name FROM pragma_table_info(i.table_name) WHERE cid + 1 = CAST(n.value AS INTEGER)) AS column_name,
    n.key + 1 AS ordinal_position
  FROM paceline_index i JOIN json_each('[' || replace(i.numbers, ' ', ',') || ']') n
  WHERE i.is_unique AND (i.is_key OR i.origin IN ('pk', 'u'));
CREATE TEMP VIEW pg_database AS
  SELECT CAST(16384 + key AS INTEGER) AS oid, value AS datname, CAST(10 AS INTEGER) AS datdba, 6 AS encoding,
    'c' AS datlocprovider, 0 AS datistemplate, 1 AS datallowconn, -1 AS datconnlimit, CAST(0 AS INTEGER) AS dattablespace,
    'C' AS datcollate, 'C' AS datctype, NULL AS daticulocale, NULL AS datacl
  FROM json_each(paceline_databases());

-- What SQLite has nothing of.
CREATE TEMP VIEW pg_inherits AS SELECT CAST(0 AS INTEGER) AS inhrelid, CAST(0 AS INTEGER) AS inhparent, 0 AS inhseqno, 0 AS inhdetachpending WHERE 0;
CREATE TEMP VIEW pg_auth_members AS SELECT CAST(0 AS INTEGER) AS roleid, CAST(0 AS INTEGER) AS member, 0 AS grantor, 0 AS admin_option WHERE 0;
CREATE TEMP VIEW pg_collation AS SELECT CAST(0 AS INTEGER) AS oid, '' AS collname, CAST(0 AS INTEGER) AS collnamespace, '' AS collprovider, '' AS collcollate, '' AS collctype, '' AS colliculocale, 1 AS collisdeterministic WHERE 0;
CREATE TEMP VIEW pg_description AS SELECT CAST(0 AS INTEGER) AS objoid, CAST(0 AS INTEGER) AS classoid, CAST(0 AS INTEGER) AS objsubid, '' AS description WHERE 0;
CREATE TEMP VIEW pg_shdescription AS SELECT CAST(0 AS INTEGER) AS objoid, CAST(0 AS INTEGER) AS classoid, '' AS description WHERE 0;
CREATE TEMP VIEW pg_proc AS SELECT CAST(0 AS INTEGER) AS oid, '' AS proname, CAST(0 AS INTEGER) AS pronamespace, CAST(0 AS INTEGER) AS proowner, '' AS prokind, CAST(0 AS INTEGER) AS prolang, CAST(0 AS INTEGER) AS prorettype, '' AS prosrc, '' AS proargtypes, 0 AS pronargs, 0 AS proretset, '' AS proacl WHERE 0;
CREATE TEMP VIEW pg_enum AS SELECT CAST(0 AS INTEGER) AS oid, CAST(0 AS INTEGER) AS enumtypid, 0.0 AS enumsortorder, '' AS enumlabel WHERE 0;
CREATE TEMP VIEW pg_range AS SELECT CAST(0 AS INTEGER) AS rngtypid, CAST(0 AS INTEGER) AS rngsubtype, CAST(0 AS INTEGER) AS rngmultitypid WHERE 0;
CREATE TEMP VIEW pg_extension AS SELECT CAST(0 AS INTEGER) AS oid, '' AS extname, CAST(0 AS INTEGER) AS extnamespace, '' AS extversion WHERE 0;
CREATE TEMP VIEW pg_sequence AS SELECT CAST(0 AS INTEGER) AS seqrelid, CAST(20 AS INTEGER) AS seqtypid, 1 AS seqstart, 1 AS seqincrement, 1 AS seqmax, 1 AS seqmin, 1 AS seqcache, 0 AS seqcycle WHERE 0;
CREATE TEMP VIEW pg_opclass AS SELECT CAST(0 AS INTEGER) AS oid, '' AS opcname, 1 AS opcdefault, CAST(0 AS INTEGER) AS opcmethod WHERE 0;
CREATE TEMP VIEW pg_rewrite AS SELECT CAST(0 AS INTEGER) AS oid, '' AS rulename, CAST(0 AS INTEGER) AS ev_class, '' AS ev_type, '' AS ev_enabled, 0 AS is_instead WHERE 0;
CREATE TEMP VIEW pg_depend AS SELECT CAST(0 AS INTEGER) AS classid, CAST(0 AS INTEGER) AS objid, 0 AS objsubid, CAST(0 AS INTEGER) AS refclassid, CAST(0 AS INTEGER) AS refobjid, 0 AS refobjsubid, '' AS deptype WHERE 0;
CREATE TEMP VIEW pg_tablespace AS SELECT CAST(1663 AS INTEGER) AS oid, 'pg_default' AS spcname, CAST(10 AS INTEGER) AS spcowner, NULL AS spcacl, NULL AS spcoptions;
CREATE TEMP VIEW pg_settings AS SELECT 'server_version' AS name, '15.0' AS setting, '' AS category WHERE 0;
CREATE TEMP VIEW pg_foreign_table AS SELECT CAST(0 AS INTEGER) AS ftrelid, CAST(0 AS INTEGER) AS ftserver WHERE 0;
CREATE TEMP VIEW pg_matviews AS SELECT '' AS schemaname, '' AS matviewname WHERE 0;
CREATE TEMP VIEW pg_partitioned_table AS SELECT CAST(0 AS INTEGER) AS partrelid, '' AS partstrat WHERE 0;
