-- The arguments of `Csv` for a file in UTF-8, and whether its first row has the names of columns.
SELECT concat_ws(', ',
    format('"{}"', replace(Delimiter, chr(9), '\t')),
    CASE WHEN Quote = '''' THEN 'quote="''"' END,
    CASE WHEN Escape = '\' THEN 'escape="\\"' END,
    CASE WHEN Comment NOT IN ('', '(empty)') THEN format('comment="{}"', Comment) END,
    CASE WHEN SkipRows > 0 THEN format('skip_rows={}', SkipRows) END,
    CASE WHEN NOT HasHeader
        THEN format('header=["{}"]', array_to_string([c.name FOR c IN Columns], '", "'))
    END
), HasHeader
FROM sniff_csv(?)
