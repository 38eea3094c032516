{{ config(lookback=6) }}
SELECT days.day, daily.region, sum(daily.updates) AS updates, max(daily.customers) AS customers
FROM (SELECT DISTINCT day FROM {{ ref('daily') }}) AS days
JOIN {{ ref('daily').render() }} AS daily ON daily.day BETWEEN days.day - 6 AND days.day
GROUP BY days.day, daily.region
