-- one dataset, horizon, host, storage, weight, beta and router weight: error and memory over seeds
-- mse [squared sd of the channel] geometric mean of mse over seeds
-- mse_relative [] geometric mean over seeds of mse over mse of persistence on the same windows; NULL without that baseline
-- mae [sd of the channel] geometric mean of mae over seeds
-- n_seeds [] runs averaged
-- n_failed [] runs without a number; they are in no average
WITH still AS (
    SELECT dataset, horizon, mse AS still FROM stability WHERE host = 'persistence'
)
SELECT dataset, horizon, host, storage, weight, beta, router_weight, exp(avg(ln(mse))) AS mse,
    exp(avg(ln(mse / still))) AS mse_relative, exp(avg(ln(mae))) AS mae, avg(violation) AS violation,
    avg(violation_scaled) AS violation_scaled, avg(violating_share) AS violating_share, max(violation_max) AS violation_max,
    avg(violation_d_off) AS violation_d_off, avg(violation_identity) AS violation_identity, avg(state_norm) AS state_norm,
    avg(router_mean) AS router_mean, avg(router_correlation) AS router_correlation,
    count(mse) AS n_seeds, count(*) FILTER (mse IS NULL) AS n_failed
FROM stability LEFT JOIN still USING (dataset, horizon)
GROUP BY ALL
ORDER BY ALL
