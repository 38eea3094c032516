SELECT day, region, count(*) AS updates, max(customers) AS customers FROM {{ ref('events') }} GROUP BY day, region
