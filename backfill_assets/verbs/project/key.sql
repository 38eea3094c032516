-- The first one or two columns that are unique within a day.
WITH candidates AS (
    FROM cells JOIN (FROM columns WHERE is_filled ORDER BY place LIMIT 8) USING (name)
    WHERE type NOT IN ('DOUBLE', 'BOOLEAN')
)
SELECT CASE WHEN a.plain = b.plain THEN [a.plain] ELSE [a.plain, b.plain] END
FROM candidates a JOIN candidates b USING ("#") JOIN dated USING ("#")
WHERE a.place <= b.place GROUP BY a.plain, a.place, b.plain, b.place
HAVING count(*) = count(DISTINCT (day, a.value, b.value))
ORDER BY a.place < b.place, a.place, b.place LIMIT 1
