"""A fuzzer: mutated objects, reports and requests beside a healthy job, through what is shipped.

A round is a small fleet in simulated time in which one job trains. Objects that fit no schema, or fit it and are
strange, come to its API server, as old versions, backups and other tenants leave them there; mutated reports and bytes
come to the launchers' door. The operator must go on as if nothing was: no defect in its log, nothing ended, the job
decided in its usual time, and recovered after a failure.
"""
