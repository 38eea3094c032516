-- What `backfill init` guesses about the view `rows`, all of whose columns are texts.
SET TimeZone = 'UTC';
CREATE TABLE sample AS SELECT *, row_number() OVER () AS "#" FROM (FROM rows LIMIT 20000);
CREATE TABLE cells AS
    FROM sample UNPIVOT INCLUDE NULLS (value FOR name IN (COLUMNS(* EXCLUDE "#")));

-- By column: the first type that all values have, the options of its field, and the pattern of its days for strptime.
CREATE TABLE kinds AS SELECT name, min(rowid) AS place, count(*) = count(value) AS is_filled, CASE
        WHEN count(value) = 0 THEN ['STRING', '', '']
        WHEN bool_and(regexp_full_match(value, '-?(0|[1-9]\d{0,17})')) THEN ['BIGINT', '', '']
        WHEN bool_and(regexp_full_match(value, '-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?')) THEN ['DOUBLE', '', '']
        WHEN bool_and(regexp_full_match(value, '-?(0|[1-9]\d{0,2}(\.\d{3})*|[1-9]\d*)(,\d+)?'))
            THEN ['DOUBLE', ', decimal=",", thousands="."', '']
        WHEN bool_and(lower(value) IN ('true', 'false')) THEN ['BOOLEAN', '', '']
        WHEN bool_and(regexp_full_match(value, '\d{4}-\d\d-\d\d')) THEN ['DATE', '', '']
        WHEN bool_and(regexp_full_match(value,
            '\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?(Z|[+-]\d\d(:\d\d)?)?)?')) THEN ['TIMESTAMP', '', '']
        WHEN bool_and(try_strptime(value, '%d.%m.%Y') IS NOT NULL)
            THEN ['DATE', ', formats="d.M.yyyy"', '%d.%m.%Y']
        WHEN bool_and(try_strptime(value, '%d.%m.%Y %H:%M') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d.M.yyyy H:mm"', '%d.%m.%Y %H:%M']
        WHEN bool_and(try_strptime(value, '%d.%m.%Y %H:%M:%S') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d.M.yyyy H:mm:ss"', '%d.%m.%Y %H:%M:%S']
        WHEN bool_and(try_strptime(value, '%m/%d/%Y') IS NOT NULL)
            THEN ['DATE', ', formats="M/d/yyyy"', '%m/%d/%Y']
        WHEN bool_and(try_strptime(value, '%m/%d/%Y %H:%M') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="M/d/yyyy H:mm"', '%m/%d/%Y %H:%M']
        WHEN bool_and(try_strptime(value, '%m/%d/%Y %H:%M:%S') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="M/d/yyyy H:mm:ss"', '%m/%d/%Y %H:%M:%S']
        WHEN bool_and(try_strptime(value, '%d/%m/%Y') IS NOT NULL)
            THEN ['DATE', ', formats="d/M/yyyy"', '%d/%m/%Y']
        WHEN bool_and(try_strptime(value, '%d/%m/%Y %H:%M') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d/M/yyyy H:mm"', '%d/%m/%Y %H:%M']
        WHEN bool_and(try_strptime(value, '%d/%m/%Y %H:%M:%S') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d/M/yyyy H:mm:ss"', '%d/%m/%Y %H:%M:%S']
        WHEN bool_and(try_strptime(value, '%d-%m-%Y') IS NOT NULL)
            THEN ['DATE', ', formats="d-M-yyyy"', '%d-%m-%Y']
        WHEN bool_and(try_strptime(value, '%d-%m-%Y %H:%M') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d-M-yyyy H:mm"', '%d-%m-%Y %H:%M']
        WHEN bool_and(try_strptime(value, '%d-%m-%Y %H:%M:%S') IS NOT NULL)
            THEN ['TIMESTAMP', ', formats="d-M-yyyy H:mm:ss"', '%d-%m-%Y %H:%M:%S']
        ELSE ['STRING', '', '']
    END AS kind
    FROM cells GROUP BY name;

-- Names that a table may have. A source adds columns of its own.
CREATE TABLE columns AS
    WITH plain AS (
        SELECT *, regexp_replace(replace(lower(strip_accents(name)), 'ß', 'ss'), '[^a-z0-9]+', '_', 'g').trim('_') AS plain FROM kinds
    ), safe AS (
        SELECT * REPLACE (CASE WHEN plain.regexp_matches('^[a-z]') THEN plain ELSE 'c_' || plain END AS plain)
        FROM plain
    )
    SELECT name, place, is_filled, kind[1] AS type, kind[2] AS options, kind[3] AS pattern, CASE
        WHEN plain IN ('arrival_day', 'source_file', 'unparsed', 'unknown_fields', 'malformed')
            OR row_number() OVER (PARTITION BY plain ORDER BY place) > 1 THEN plain || '_' || place
        ELSE plain
    END AS plain
    FROM safe ORDER BY place;

-- The day of a row as SQL: of the first date, or else of the first time.
CREATE VIEW days AS SELECT coalesce((
        SELECT CASE
            WHEN pattern <> '' THEN format('TRY(strptime("{}", ''{}''))::DATE', replace(name, '"', '""'), pattern)
            ELSE format('TRY_CAST(TRY_CAST("{}" AS TIMESTAMPTZ) AS DATE)', replace(name, '"', '""'))
        END FROM columns WHERE type IN ('DATE', 'TIMESTAMP') ORDER BY type, place LIMIT 1
    ), error('it has no column of days'));
