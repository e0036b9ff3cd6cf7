-- one trained forecaster whose memory is penalised or certified, against the one of its seed that is left alone
-- mse_change [] log of mse over mse of storage none, same seed and batches
-- violation_change [] violation over violation of storage none, less 1
-- scaled_change [] violation_scaled over that of storage none, less 1
-- share_change [] violating_share over that of storage none, less 1
-- d_off_change [] violation_d_off over that of storage none, less 1
-- state_change [] state_norm over state_norm of storage none, less 1
SELECT b.dataset, b.horizon, b.host, b.storage, b.weight, b.beta, b.router_weight, b.seed,
    ln(b.mse / a.mse) AS mse_change, b.violation / nullif(a.violation, 0) - 1 AS violation_change,
    b.violation_scaled / nullif(a.violation_scaled, 0) - 1 AS scaled_change,
    b.violating_share / nullif(a.violating_share, 0) - 1 AS share_change,
    b.violation_d_off / nullif(a.violation_d_off, 0) - 1 AS d_off_change,
    b.state_norm / nullif(a.state_norm, 0) - 1 AS state_change
FROM stability AS a JOIN stability AS b USING (dataset, horizon, host, router_weight, seed)
WHERE a.storage = 'none' AND b.storage <> 'none' AND a.mse > 0 AND b.mse > 0
ORDER BY ALL
